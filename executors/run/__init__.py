"""`rankcore run` with an executor that has no controller of its own, whichever it is; `executors.controller` runs it.

`files` are those of a deployment's folder, `folders` which one it has and whose turn it is there. `fence` is why a controller
that was replaced does no harm, `folder_fence` the one that is a folder, `checkpoint` what outlives a controller, `wanted` what
an application wants. `door`, `answers` and `maintenance_file` are how users change what runs, and `api` is how they ask, with
the functions of `executors.ray_gpu`.
"""
