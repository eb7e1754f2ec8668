"""A replica's half of the contract, once: frozen values, on which checker, simulator, local, Ray and fleet replicas are built.

`beliefs`, `replica` and `worker` need msgspec and `rankcore.values` alone, since every replica process imports them;
`messages` speaks of them in commands and events, for executors whose replicas do.
"""
