"""Does an executor, with its controller and its replicas, keep the promises? Asked of the replicas, not of the book.

The author of an executor writes a `Bench`, a dozen methods that begin and break things, and one class:

    class TestMyExecutor(conformance.ConformanceTests):
        @pytest.fixture
        def bench(self, tmp_path):
            with MyBench(tmp_path) as bench:
                yield bench

which tries every line of the contract (section 2.4 of the design), and runs every case against it, plain and wrapped in a
`FaultyExecutor`. docs/executors.md walks through it.

An executor that is a plugin (`executors.plugin`) and brings a bench needs no test file: `rankcore conform NAME` runs all of it.

An executor with a controller of its own, whose place nobody else can take, is a `System`; the suite for those is
`run(case, system)` for each of `CASES`.

Each case deploys something, disturbs it, once more with a crash of the controller in the middle, and waits until it is
healthy again. All the while the replicas are asked what they believe, and have believed since they were last asked: no two of
them may have believed the same rank at the same time (R3). At the end ranks are 0..N-1 at all three levels (R1), and everybody
knows the world size (R9), the version and the user_config.
"""

from rankcore.testing.conformance.bench import Bench
from rankcore.testing.conformance.cases import CASES
from rankcore.testing.conformance.contract import BrokenLineError, ContractCase, Line, check
from rankcore.testing.conformance.controlled import ControlledBench
from rankcore.testing.conformance.faulty import Faults, FaultyExecutor, with_faults
from rankcore.testing.conformance.kit import Try, tries
from rankcore.testing.conformance.running import Case, NonconformityError, run
from rankcore.testing.conformance.suite import CONTRACT, ConformanceTests
from rankcore.testing.conformance.system import Belief, SelfReport, System
from rankcore.testing.conformance.witness import Witness

__all__ = [
    "CASES",
    "CONTRACT",
    "Belief",
    "Bench",
    "BrokenLineError",
    "Case",
    "ConformanceTests",
    "ContractCase",
    "ControlledBench",
    "Faults",
    "FaultyExecutor",
    "Line",
    "NonconformityError",
    "SelfReport",
    "System",
    "Try",
    "Witness",
    "check",
    "run",
    "tries",
    "with_faults",
]
