"""What users have said of nodes and replicas, and no record holds: a file, written before the machine is told of it.

A line for each node that is cordoned or drained, and for each replica that is to be replaced by name. The next controller tells
all of it again. It ends with the deployment.
"""

import logging
from collections.abc import Container
from pathlib import Path
from typing import TypeAlias

from executors.engine.store import Upheld
from executors.whole_files import write_whole
from rankcore.codec import from_json, to_json
from rankcore.errors import RankcoreError
from rankcore.events import NodeCordoned, NodeDrainRequested, ReplaceRequested
from rankcore.values import NodeId, ReplicaId

LOG = logging.getLogger(__name__)

Cordon: TypeAlias = NodeCordoned | NodeDrainRequested
Saying: TypeAlias = NodeCordoned | NodeDrainRequested | ReplaceRequested


class Said:
    """What was said last of each, of what an earlier controller has left and of what this one keeps.

    Args:
        path: Of the file.
        upheld: Of the fence; see `executors.engine.store`.

    Attributes:
        cordons: By node; one that is not here is open.
        replacements: By replica.
    """

    def __init__(self, path: Path, upheld: Upheld) -> None:
        self._path, self._upheld = path, upheld
        self.cordons: dict[NodeId, Cordon] = {}
        self.replacements: dict[ReplicaId, ReplaceRequested] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                said: Saying = from_json(line.decode(), Saying)
                if isinstance(said, ReplaceRequested):
                    if len(said.replica_ids) != 1:
                        raise ValueError(f"ReplaceRequested.replica_ids must be of one replica, got {list(said.replica_ids)}")
                    self.replacements[said.replica_ids[0]] = said
                else:
                    self.cordons[said.node_id] = said
            except (RankcoreError, ValueError) as error:  # no text, no event, or not of one replica
                LOG.error("%s: a line is left out, so cordon, drain or replace that again: %s", path, error)

    def keep(
        self, cordons: dict[NodeId, Cordon] | None = None, replacements: dict[ReplicaId, ReplaceRequested] | None = None
    ) -> None:
        """All that counts from now on of one kind or the other; of a kind that is left out what counts is as it was.

        Raises:
            OSError: It cannot be written. Nothing has changed.
            RankcoreError: This process may not act any more. Likewise.
        """
        cordons = self.cordons if cordons is None else cordons
        replacements = self.replacements if replacements is None else replacements
        if (cordons, replacements) == (self.cordons, self.replacements):
            return
        lines = [to_json(each) + "\n" for each in (*cordons.values(), *replacements.values())]
        write_whole(self._path, "".join(lines), self._upheld())
        self.cordons, self.replacements = dict(cordons), dict(replacements)

    def keep_of(self, nodes: Container[NodeId], replicas: Container[ReplicaId]) -> None:
        """Nodes and replicas that there are no more are forgotten.

        Raises:
            OSError, RankcoreError: As `keep`.
        """
        self.keep(
            {node_id: said for node_id, said in self.cordons.items() if node_id in nodes},
            {replica_id: said for replica_id, said in self.replacements.items() if replica_id in replicas},
        )
