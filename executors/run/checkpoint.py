"""What outlives a local controller: its deployment's record, as a file in the deployment's folder.

`rankcore.cluster.outbox` says when it is written, and why then.
"""

from pathlib import Path

import attrs

from executors.deployment_ids import own_name
from executors.engine.deployments import Recovered
from executors.run.files import DamagedFileError
from rankcore.cluster import EntrySpec
from rankcore.cluster.names import DeploymentId, application_of
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
    try:
        text = (folder / RECORD).read_bytes()
    except FileNotFoundError:
        return None
    return record_in(text, deployment, folder / RECORD)


def record_in(text: bytes, deployment: DeploymentId, where: Path | str) -> Record:
    """What a text says that an earlier controller has left there.

    Raises:
        DamagedFileError: As `read_record`.
    """
    try:
        kept = from_json(upgraded(text.decode()), Record | Recovered)
        record = record_of(kept, deployment) if isinstance(kept, Recovered) else kept
        if record.deployment != deployment:
            raise CodecError(f"it is about {record.deployment!r}, in the folder of {deployment!r}")
        return record
    except (RankcoreError, UnicodeDecodeError) as error:
        raise DamagedFileError(
            where,
            f"must hold what an earlier controller wanted, and cannot be read: {error}; "
            "end the replicas whose sockets are in that folder (<epoch>.<serial>@<node>.<pid>), then remove the file",
        ) from None


def record_of(kept: Recovered, deployment: DeploymentId) -> Record:
    """What controllers stored that ran the ranks of one deployment: what the user applied last was what was in force.

    Args:
        deployment: Whose folder it was in: before applications had names of their own, a record had the last part of this.

    Raises:
        InvalidSpecError: The name in it is neither.
    """
    name = deployment if kept.spec.name == own_name(application_of(deployment), deployment) else kept.spec.name
    spec = attrs.evolve(kept.spec, name=name)
    return Record(
        deployment=name,
        number=0,
        applied=EntrySpec(ranks=spec),
        spec=spec,
        previous=attrs.evolve(kept.previous, name=name) if kept.previous is not None else None,
        deleting=kept.deleting,
        failed=kept.failed,
    )
