"""A worker: a process that keeps weights in the memory of its node, and is a replica for as long as they are on a GPU.

`actor` is the process, `tenure` its replica of the moment (a pinned replica's code, with an end that the process survives),
`weights` binds weights to the user's object, `agreed_root` says which bytes they are, `move_sequence` carries out moves one
after the other, `places` is the memory of a node, `gpu_holder` keeps GPUs from Ray that a planner gives out, `starting` starts
workers, and `messages` is what a controller and a worker say to each other.
"""
