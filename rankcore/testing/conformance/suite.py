"""The whole kit as one class of tests: what a third party subclasses."""

from collections.abc import Sequence
from typing import Any, ClassVar

from rankcore.testing.conformance.bench import Bench
from rankcore.testing.conformance.cases import CASES
from rankcore.testing.conformance.contract import ContractCase, check
from rankcore.testing.conformance.controlled import ControlledBench
from rankcore.testing.conformance.executor_lines import EXECUTOR_CASES
from rankcore.testing.conformance.faulty import Faults, with_faults
from rankcore.testing.conformance.replica_lines import REPLICA_CASES
from rankcore.testing.conformance.running import Case, run

CONTRACT: tuple[ContractCase, ...] = (*EXECUTOR_CASES, *REPLICA_CASES)
"""All cases that try one line of the contract."""


class ConformanceTests:
    """Every test that an executor has to pass. Subclass it, and add a pytest fixture `bench` that makes a fresh `Bench`.

    The lines of the contract, one by one; whole deployments that are disturbed, without and with a crash of the controller; and
    both once more, with an executor that is wrapped in a `FaultyExecutor`.

    Attributes:
        contract, deployments: The cases.
        faulty_contract, faulty_deployments: Those that are run with faults too.
        seeds: With which seeds of faults.
        faults: How often what goes wrong.
    """

    contract: ClassVar[Sequence[ContractCase]] = CONTRACT
    deployments: ClassVar[Sequence[Case]] = CASES
    faulty_contract: ClassVar[Sequence[ContractCase]] = CONTRACT
    faulty_deployments: ClassVar[Sequence[Case]] = CASES
    seeds: ClassVar[Sequence[int]] = (1,)
    faults: ClassVar[Faults] = Faults()

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Give each test its cases: the argument names the attribute."""
        for name in ("contract", "deployments", "faulty_contract", "faulty_deployments"):
            argument = name.removesuffix("s")
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, getattr(self, name), ids=str)
        if "seed" in metafunc.fixturenames:
            metafunc.parametrize("seed", self.seeds)

    def test_keeps_the_contract(self, bench: Bench, contract: ContractCase) -> None:
        """One line of section 2.4; a failure names it, with what was expected and what was seen."""
        check(contract, bench)

    def test_keeps_the_contract_under_faults(self, bench: Bench, faulty_contract: ContractCase, seed: int) -> None:
        """The same with late, lost, repeated and reordered news, lost starts, and zombies after a stop."""
        check(faulty_contract, with_faults(bench, seed=seed, faults=self.faults))

    def test_a_deployment_keeps_its_promises(self, bench: Bench, deployment: Case) -> None:
        """R1 to R12, as the replicas see them."""
        run(deployment, ControlledBench(bench))

    def test_a_deployment_keeps_its_promises_under_faults(self, bench: Bench, faulty_deployment: Case, seed: int) -> None:
        """The same with all those faults."""
        run(faulty_deployment, ControlledBench(with_faults(bench, seed=seed, faults=self.faults)))
