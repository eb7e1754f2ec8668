"""What happens in a residency scenario: what goes wrong, and what users ask for."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from executors.simulator.fields import FieldProblem, choice, integer, name, number, optional
from executors.simulator.scenario.faults import NodeLoss
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.residency.hardware import GPU_GB_MAX
from executors.simulator.scenario.residency.models import REPLICAS_MAX
from rankcore.checks import COUNT_MAX

WARM, COLD = "WARM", "COLD"


@attrs.frozen(kw_only=True)
class ModelCrash:
    """The process of a replica dies: the oldest one of the model that is HOT or loading; without one, nothing happens."""

    kind: ClassVar[str] = "replica_crash"
    at: Moment
    model: str = attrs.field(validator=name)


@attrs.frozen(kw_only=True)
class LoadFailure:
    """The next loads of a model fail, each somewhere on its way.

    Attributes:
        count: How many.
    """

    kind: ClassVar[str] = "load_failure"
    at: Moment
    model: str = attrs.field(validator=name)
    count: int = attrs.field(default=1, validator=integer(1, COUNT_MAX))


@attrs.frozen(kw_only=True)
class MemoryShrinks:
    """Somebody else takes memory of a node's GPUs: from now on no more than `gpu_gb` of each is there, as is measured at once.

    Attributes:
        gpu_gb: What is left of each GPU.
    """

    kind: ClassVar[str] = "memory_shrinks"
    at: Moment
    node: str = attrs.field(validator=name)
    gpu_gb: float = attrs.field(validator=number(above=0.0, most=GPU_GB_MAX))


ModelFault: TypeAlias = NodeLoss | ModelCrash | LoadFailure | MemoryShrinks
MODEL_FAULTS: dict[str, type[NodeLoss] | type[ModelCrash] | type[LoadFailure] | type[MemoryShrinks]] = {
    cls.kind: cls for cls in (NodeLoss, ModelCrash, LoadFailure, MemoryShrinks)
}
"""By the word that stands as `kind`."""


@attrs.frozen(kw_only=True)
class ModelChange:
    """Somebody wants another number of replicas of a model, or wants it off the GPUs.

    Attributes:
        model: Which model.
        replicas: How many are to be HOT, 0 included.
        evict: Or: it leaves all GPUs, and is kept in CPU memory if there is room (WARM), or not at all (COLD).
    """

    at: Moment
    model: str = attrs.field(validator=name)
    replicas: int | None = attrs.field(default=None, validator=optional(integer(0, REPLICAS_MAX)))
    evict: str | None = attrs.field(default=None, validator=optional(choice(WARM, COLD)))

    def __attrs_post_init__(self) -> None:
        if (self.replicas is None) == (self.evict is None):
            found = {key: value for key, value in self._asked.items() if value is not None}
            raise FieldProblem((), found, "one of replicas and evict")

    @property
    def _asked(self) -> Mapping[str, Any]:
        return {"replicas": self.replicas, "evict": self.evict}
