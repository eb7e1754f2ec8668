"""The promises Q1 to Q11 and C1 to C4 as checks: of a state, of a step, of what a replica has granted.

Like those of the ranks, they look at everything: for tests and audits, not for a hot path.
"""

from rankcore.kernel import Violation
from rankcore.routing.invariants.credits import check_credits
from rankcore.routing.invariants.indexes import check_indexes
from rankcore.routing.invariants.states import check
from rankcore.routing.invariants.steps import check_step

__all__ = ["Violation", "check", "check_credits", "check_indexes", "check_step"]
