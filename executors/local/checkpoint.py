"""What outlives a local controller: its deployment's record, as a file in the deployment's folder.

`rankcore.cluster.outbox` says when it is written, and why then.
"""

from pathlib import Path

from executors.engine.deployments import Recovered
from executors.local.places import DamagedFileError
from rankcore.cluster import EntrySpec
from rankcore.cluster.names import DeploymentId
from rankcore.cluster.records import Record
from rankcore.codec import from_json
from rankcore.errors import CodecError, RankcoreError
from rankcore.upgrade import upgraded

RECORD = "record.json"


def read_record(folder: Path, deployment: DeploymentId) -> Record | None:
    """What an earlier controller has left; None: nothing. Only behind the fence nobody writes another one meanwhile.

    Raises:
        DamagedFileError: It cannot be read, or is about another deployment.
    """
    path = folder / RECORD
    try:
        kept = from_json(upgraded(path.read_text(encoding="utf-8")), Record | Recovered)
        if kept.spec.name != deployment:
            raise CodecError(f"it is about {kept.spec.name!r}, in the folder of {deployment!r}")
        return record_of(kept) if isinstance(kept, Recovered) else kept
    except FileNotFoundError:
        return None
    except (RankcoreError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            path,
            f"must hold what an earlier controller wanted, and cannot be read: {error}; "
            "end the replicas whose sockets are in that folder (<epoch>.<serial>@<node>.<pid>), then remove the file",
        ) from None


def record_of(kept: Recovered) -> Record:
    """What controllers stored that ran the ranks of one deployment: what the user applied last was what was in force.

    Raises:
        InvalidSpecError: The deployment's name is not `application/deployment`.
    """
    return Record(
        deployment=kept.spec.name,
        number=0,
        applied=EntrySpec(ranks=kept.spec),
        spec=kept.spec,
        previous=kept.previous,
        deleting=kept.deleting,
        failed=kept.failed,
    )
