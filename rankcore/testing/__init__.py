"""For those who test what they build on the core: the conformance suite for executors, and the exhaustive checker of the core.

Not imported by `rankcore` itself, and free to need what tests need.
"""
