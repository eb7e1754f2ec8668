"""The promises D1 to D12 as checks: of a state and of a step, with those of the routers, of the planner and of the ranks in it.

They look at everything: for tests and audits, not for a hot path.
"""

from rankcore.dispatching.invariants.states import check
from rankcore.dispatching.invariants.steps import check_step
from rankcore.kernel import Violation

__all__ = ["Violation", "check", "check_step"]
