"""The promises T1 to T10 as checks: of a state, of a step, of every index.

They look at everything: for tests and audits, not for a hot path.
"""

from rankcore.kernel import Violation
from rankcore.residency.invariants.states import check
from rankcore.residency.invariants.steps import check_step

__all__ = ["Violation", "check", "check_step"]
