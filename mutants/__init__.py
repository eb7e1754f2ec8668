"""Bugs that are planted in the core, one at a time, to see whether the tests notice: `python -m mutants --help`.

`catalogue` has the bugs, `layers` the tests that are asked, `trees` the copies that bugs are planted in, `asking` runs one
layer against one bug, `matrix` all of them, `answers` keeps what came of it, and `table` publishes it. Nothing here imports the
core: that happens only in processes of their own, from a copy with a bug in it.
"""
