"""What Ray needs of a deployment beside what the core knows: it travels in `EntrySpec.extras`, and so in the record."""

import attrs

from executors.ray_gpu.scaling_policy import PolicySource
from rankcore.cluster.spec import EntrySpec
from rankcore.codec import from_plain, to_plain
from rankcore.codec_plans import since
from rankcore.frozen import FrozenJson, freeze_json, thaw_json


@attrs.frozen(kw_only=True)
class RayExtras:
    """The extras of one deployment.

    Attributes:
        class_name: Module and qualified name of what was deployed.
        spares: How many started processes stand by.
        policy: What of the user's decides how many replicas a load calls for; None: the usual policy does.
        id_on_ray: What it is called in Ray's names and in the store, where that is older than `application/deployment`; None:
            by its id.
        origin: Of an application's last deployment: where its code is, as a file says it (`import_path`, `args`,
            `runtime_env`); None: nobody has said.
        capacity: Of which number of replicas this is a share, and which (`capacity`); None: all that was asked for is in force.
        rejected_with: The status of HTTP of a call that is one too many.
    """

    class_name: str
    spares: int = 0
    policy: PolicySource | None = None
    id_on_ray: str | None = None
    origin: FrozenJson = attrs.field(default=None, metadata=since(5, 3))
    capacity: FrozenJson = attrs.field(default=None, metadata=since(5, 4))
    rejected_with: int = attrs.field(default=503, metadata=since(5, 4))

    def to_extras(self) -> FrozenJson:
        """As JSON-like data, for an `EntrySpec`."""
        return freeze_json(to_plain(self))


def extras_of(spec: EntrySpec) -> RayExtras:
    """Those of a deployment.

    Raises:
        CodecError: They cannot be read.
    """
    return from_plain(thaw_json(spec.extras), RayExtras)
