"""What `plan` says of a running deployment is what the simulator then does."""

from collections import Counter

import pytest

from executors.simulator.load.arrivals import Arrivals
from executors.simulator.run import Run
from executors.simulator.scenario import parse_scenario
from rankcore import Plan, Replica, plan
from rankcore.commands import Command, InitializeReplica, ReconfigureReplica, StartReplica
from rankcore.values import DeploymentStatus

CHANGE_AT = 100.0

SCENARIO = f"""
name: change
nodes:
  - {{name: n, count: 3, gpus: 4}}
network: {{latency_s: {{uniform: {{low: 0.001, high: 0.5}}}}}}
deployments:
  - name: llm
    target_replicas: 6
    user_config: {{temperature: 1}}
    max_surge: SURGE
    victims: VICTIMS
    init_s: {{uniform: {{low: 1, high: 9}}}}
    reconfigure_s: {{uniform: {{low: 0.1, high: 3}}}}
    drain_s: {{uniform: {{low: 0, high: 5}}}}
changes:
  - {{at: {CHANGE_AT:g}, deployment: llm, CHANGE}}
"""


def change_in_simulator(change: str, surge: int, victims: str) -> tuple[Plan, Run, list[Command], dict[str, Replica]]:
    """A plan made just before the change, and the run after it with the commands that were given."""
    text = SCENARIO.replace("CHANGE", change).replace("SURGE", str(surge)).replace("VICTIMS", victims)
    scenario = parse_scenario(text, "test")
    run = Run(scenario, {"llm": Arrivals()})
    commands: list[Command] = []
    port = run.world.deployments["llm"]
    execute = port.execute

    def recording(command: Command) -> None:
        commands.append(command)
        execute(command)

    port.execute = recording  # type: ignore[method-assign]
    plans: list[Plan] = []
    before: dict[str, Replica] = {}

    def just_before() -> None:
        state = run.controller.drivers["llm"].state
        assert state.status is DeploymentStatus.HEALTHY
        (wanted,) = scenario.changes
        plans.append(plan(state, wanted.apply(state.spec), stop_first=wanted.stop_first))
        before.update(state.replicas)
        commands.clear()

    run.world.loop.after(CHANGE_AT - 0.5, just_before)
    result = run.go()
    assert result.failure is None
    return plans[0], run, commands, before


@pytest.mark.parametrize("victims", ["any", "highest_rank", "newest"])
@pytest.mark.parametrize("surge", [0, 2])
@pytest.mark.parametrize(
    ("change", "starts", "stops", "reconfigured"),
    [
        ("target_replicas: 3", 0, 3, 0),
        ("target_replicas: 9", 3, 0, 0),
        ('version: "2"', 6, 6, 0),
        ("user_config: {temperature: 2}", 0, 0, 6),
        ('version: "2", target_replicas: 4', 4, 6, 0),
        ("target_replicas: 3, stop_first: [llm#1.0, llm#1.2]", 0, 3, 0),
    ],
)
def test_a_plan_is_what_the_simulator_then_does(
    change: str, starts: int, stops: int, reconfigured: int, surge: int, victims: str
) -> None:
    planned, run, commands, before = change_in_simulator(change, surge, victims)
    assert (len(planned.starts), len(planned.stops), len(planned.reconfigured)) == (starts, stops, reconfigured)
    state = run.controller.drivers["llm"].state
    assert planned.status is state.status
    started = {each.replica_id: (each.rank, each.version) for each in commands if isinstance(each, StartReplica)}
    given = {each.replica_id: each.rank.rank for each in reversed(commands) if isinstance(each, InitializeReplica)}
    came_up = Counter((given.get(replica_id, rank), version) for replica_id, (rank, version) in started.items())
    assert Counter((each.rank, each.version) for each in planned.starts) == came_up
    assert {each.replica_id for each in planned.stops} == set(before) - set(state.replicas)
    # Which of several ranks is free first depends on who drains first: who moves is certain, and where to for all together.
    stayed = {who: replica for who, replica in state.replicas.items() if who in before}
    moved = {who: replica.slot for who, replica in stayed.items() if replica.slot != before[who].slot}
    assert {each.replica_id: each.before for each in planned.moves} == {who: before[who].slot for who in moved}
    assert sorted(each.after for each in planned.moves) == sorted(rank for rank in moved.values() if rank is not None)
    sent = [each for each in commands if isinstance(each, ReconfigureReplica) and each.replica_id in before]
    assert set(planned.reconfigured) == {c.replica_id for c in sent if c.config_id != before[c.replica_id].config_id}
