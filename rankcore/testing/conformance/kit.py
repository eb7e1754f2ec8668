"""All of the kit as a list: each line, each deployment, and both once more for every seed of faults."""

from collections.abc import Callable, Sequence

import attrs

from rankcore.testing.conformance.bench import Bench
from rankcore.testing.conformance.cases import CASES
from rankcore.testing.conformance.contract import ContractCase, check
from rankcore.testing.conformance.controlled import ControlledBench
from rankcore.testing.conformance.faulty import with_faults
from rankcore.testing.conformance.running import Case, run
from rankcore.testing.conformance.suite import CONTRACT


@attrs.frozen
class Try:
    """One case, as it is tried.

    Attributes:
        name: What is tried, and with which faults.
        play: On a fresh bench. Raises `NonconformityError` where it does not come out as promised, `NotTriedError` where the
            bench cannot do what it needs.
    """

    name: str
    play: Callable[[Bench], None]


def tries(seeds: Sequence[int], contract: Sequence[ContractCase] = CONTRACT, cases: Sequence[Case] = CASES) -> tuple[Try, ...]:
    """Everything that there is to try: without faults, then with those of each seed."""
    return (
        *(_line(each) for each in contract),
        *(_deployment(each) for each in cases),
        *(_with_faults(_line(each), seed) for seed in seeds for each in contract),
        *(_with_faults(_deployment(each), seed) for seed in seeds for each in cases),
    )


def _line(case: ContractCase) -> Try:
    return Try(f"contract: {case}", lambda bench: check(case, bench))


def _deployment(case: Case) -> Try:
    return Try(f"deployment: {case}", lambda bench: run(case, ControlledBench(bench)))


def _with_faults(one: Try, seed: int) -> Try:
    return Try(f"{one.name}, faults of seed {seed}", lambda bench: one.play(with_faults(bench, seed=seed)))
