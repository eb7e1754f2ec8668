"""The whole kit as one class of tests: what a third party subclasses."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rankcore.testing.conformance.bench import Bench, Executor
from rankcore.testing.conformance.cases import CASES
from rankcore.testing.conformance.contract import ContractCase, check
from rankcore.testing.conformance.controlled import ControlledBench
from rankcore.testing.conformance.executor_lines import EXECUTOR_CASES
from rankcore.testing.conformance.faulty import Faults, FaultyExecutor
from rankcore.testing.conformance.replica_lines import REPLICA_CASES
from rankcore.testing.conformance.running import Case, run

CONTRACT: tuple[ContractCase, ...] = (*EXECUTOR_CASES, *REPLICA_CASES)
"""All cases that try one line of the contract."""


class ConformanceTests:
    """Every test that an executor has to pass. Subclass it, and add a pytest fixture `bench` that makes a fresh `Bench`.

    Three tests, each with many cases: the lines of the contract, one by one; whole deployments that are disturbed, without and
    with a crash of the controller; and the same deployments once more, with an executor that is wrapped in a `FaultyExecutor`.

    Attributes:
        contract: Cases of the first.
        deployments: Cases of the second.
        faulty_deployments: Cases of the third.
        seeds: With which seeds of faults each of them is run.
        faults: How often what goes wrong there.
    """

    contract: ClassVar[Sequence[ContractCase]] = CONTRACT
    deployments: ClassVar[Sequence[Case]] = CASES
    faulty_deployments: ClassVar[Sequence[Case]] = CASES
    seeds: ClassVar[Sequence[int]] = (1,)
    faults: ClassVar[Faults] = Faults()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Give each test its cases."""
        cases = {"line": self.contract, "deployment": self.deployments, "faulty_deployment": self.faulty_deployments}
        for name, values in cases.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values, ids=str)
        if "seed" in metafunc.fixturenames:
            metafunc.parametrize("seed", self.seeds)

    def test_keeps_the_contract(self, bench: Bench, line: ContractCase) -> None:
        """One line of section 2.4; a failure names it, with what was expected and what was seen."""
        check(line, bench)

    def test_a_deployment_keeps_its_promises(self, bench: Bench, deployment: Case) -> None:
        """R1 to R12, as the replicas see them."""
        run(deployment, ControlledBench(bench))

    def test_a_deployment_keeps_its_promises_under_faults(self, bench: Bench, faulty_deployment: Case, seed: int) -> None:
        """The same with late, lost, repeated and reordered news, lost starts, and zombies after a stop."""

        def wrap(executor: Executor) -> FaultyExecutor:
            return FaultyExecutor(executor, seed=seed, now=bench.now, faults=self.faults)

        run(faulty_deployment, ControlledBench(bench, wrap))
