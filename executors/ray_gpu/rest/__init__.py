"""The REST server: Ray Serve's paths and ours, over HTTP, in an actor of its own on the controller's node.

It asks the controller, replicas and nodes seldom, however many readers ask it (`cluster_view`); what only the journal has it
reads from the journal's file.
What changes something is a call of the Python API, made on a thread (`writing`). What it answers to is one table (`endpoints`),
of which the OpenAPI description is made. The live page (`page`) is told by one task what there is (`live`), and a what-if of
it is computed in a process of its own (`whatif`).
"""
