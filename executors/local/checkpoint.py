"""What outlives a local controller: its record, as a file in the deployment's folder. Never ranks: the replicas know them.

`executors.engine.loop` says when it is written, and why then.
"""

from contextlib import suppress
from pathlib import Path

from executors.engine.deployments import Recovered
from executors.local.places import DamagedFileError
from rankcore.codec import from_json
from rankcore.errors import CodecError

RECORD = "record.json"


def read_checkpoint(folder: Path) -> Recovered | None:
    """What an earlier controller has left; None: nothing. Only behind the fence nobody writes another one meanwhile.

    Raises:
        DamagedFileError: It cannot be read.
    """
    path = folder / RECORD
    with suppress(FileNotFoundError):
        try:
            return from_json(path.read_text(encoding="utf-8"), Recovered)
        except (CodecError, UnicodeDecodeError) as error:
            raise DamagedFileError(
                path,
                f"must hold what an earlier controller wanted, and cannot be read: {error}; "
                "end the replicas whose sockets are in that folder (<epoch>.<serial>@<node>.<pid>), then remove the file",
            ) from None
    return None
