"""Executors carry out what `rankcore` decides: everything here may touch the world, and nothing here decides.

`base` says what an executor is, `driver` connects one to the core, `journal` and `replay` keep and re-run what
happened.
"""
