"""A cluster that is asked through its REST server (`executors.ray_gpu.rest`), from a machine that need not have Ray."""
