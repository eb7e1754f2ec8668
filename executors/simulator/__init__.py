"""A deterministic world for the core: a virtual clock, nodes, replicas with beliefs of their own, faults and requests.

The same scenario and seed give the same run to the byte. Begin with `executors.simulator.scenario.load_scenario` and
`executors.simulator.run.simulate`.
"""
