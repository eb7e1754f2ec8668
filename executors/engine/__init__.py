"""The loop around a pure machine, the same for every executor: events in, one step, its journal, its save, its commands out.

`kinds` is the table of machines: what each begins with, steps by and writes down. `loop` runs one of them, and says why what
a step decides is stored before its commands are given out; `store` is where to. `journal` and `reading` keep what happened
and read it back, `replay` runs it again. `deployments` and `clusters` are the entries of the table.
"""
