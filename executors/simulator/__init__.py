"""A deterministic world for the core: a virtual clock, nodes, replicas with beliefs of their own, faults and requests.

The same scenario and seed give the same run to the byte. Begin with `executors.simulator.scenario.load_scenario` and
`executors.simulator.run.simulate`.

What lives where: `run`, `world`, `clock` and `controller` move it; `deployment` is what a driver hands commands to; `cluster`
has the nodes and the network, `replicas` the processes, `faults` what goes wrong, `load` the requests; `record` is what is kept
of a run, `report` the page of it, `scenario` the files, and `questions` what takes many runs.
"""
