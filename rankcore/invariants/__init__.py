"""The promises, checked on states and on steps.

Used after every event by the property tests and the simulator, and by whoever embeds the core. Both functions look at every
replica, so they cost O(N): they are for tests and audits, not for a hot path.
"""

from rankcore.invariants.states import check
from rankcore.invariants.steps import check_step
from rankcore.kernel import Violation

__all__ = ["Violation", "check", "check_step"]
