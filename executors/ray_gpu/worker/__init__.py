"""A worker: a process whose weights may be in the memory of its node without being on a GPU, and that is a replica while they are.

`actor` is the process, `tenure` the replica that it is for as long as its weights are HOT (the same code as a pinned replica's),
`weights` binds weights to the user's object, `move_sequence` carries out moves one after the other, `places` is the memory of a
node, `gpu_holder` keeps GPUs from Ray that the planner gives out, and `messages` is what a controller and a worker say.
"""
