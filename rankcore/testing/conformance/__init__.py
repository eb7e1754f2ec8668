"""Does an executor, with its controller and its replicas, keep the promises? Asked of the replicas, not of the book.

An author of an executor writes a `System`, a dozen methods that begin and break things, and runs every case against it:

    @pytest.mark.parametrize("case", conformance.CASES, ids=str)
    def test_my_executor_conforms(case):
        with MySystem() as system:
            conformance.run(case, system)

Each case deploys something, disturbs it, once more with a crash of the controller in the middle, and waits until it is
healthy again. All the while the replicas are asked what they believe, and have believed since they were last asked: no two of
them may have believed the same rank at the same time (R3). At the end ranks are 0..N-1 at all three levels (R1), and everybody
knows the world size (R9), the version and the user_config.
"""

from rankcore.testing.conformance.cases import CASES
from rankcore.testing.conformance.running import Case, NonconformityError, run
from rankcore.testing.conformance.system import Belief, SelfReport, System
from rankcore.testing.conformance.witness import Witness

__all__ = ["CASES", "Belief", "Case", "NonconformityError", "SelfReport", "System", "Witness", "run"]
