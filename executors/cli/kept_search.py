"""What an exploration has come to, kept in a folder: four files that only grow, and a small one that says how far they count.

Only what is new is written, and the small file last, by renaming it into place: an exploration that is stopped at any moment
goes on from the time when it was last kept.
"""

import json
import os
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from executors.cli.problems import Refusal
from executors.planted import unplanted
from rankcore.testing.explore import Search

FORMAT = 1
FILES = {"parents": "I", "moves": "H", "fair": "I", "fingerprints": "Q"}


class KeptSearch:
    """An exploration and its folder.

    Attributes:
        took_s: How long the exploration had taken when it was last kept.
    """

    def __init__(self, folder: Path, search: Search[Any, Any, Any], *, fresh: bool) -> None:
        """Go on from what the folder has, if anything.

        Raises:
            Refusal: It has something else, or what another core has explored.
        """
        self._folder, self._search = folder, search
        self.took_s = 0.0
        self._written = dict.fromkeys(FILES, 0)
        folder.mkdir(parents=True, exist_ok=True)
        head = folder / "search.json"
        if fresh or not head.exists():
            head.unlink(missing_ok=True)
            for name in FILES:
                open(self._path(name), "wb", opener=unplanted).close()
            self.save(0.0)
        else:
            self._load(self._read(head))

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.bin"

    def _read(self, head: Path) -> dict[str, Any]:
        try:
            found = json.loads(head.read_text(encoding="utf-8"))
            known = {name: int(found[name]) for name in FILES} and found["format"] == FORMAT
        except (ValueError, KeyError, TypeError):
            known, found = False, {}
        if not known:
            raise Refusal(f"{head}: expected what an exploration has kept, found something else; --fresh begins again")
        bounds = self._search.system.bounds
        if found["bounds"] != _plain(bounds):
            raise Refusal(f"{head}: expected the bounds {bounds}, found others; use another --keep, or --fresh")
        return dict(found)

    def _load(self, found: dict[str, Any]) -> None:
        arrays = {}
        for name, code in FILES.items():
            arrays[name] = array(code)
            path, count = self._path(name), found[name]
            wanted = count * arrays[name].itemsize
            if not path.exists() or path.stat().st_size < wanted:
                raise Refusal(f"{path}: expected {count} entries, found fewer; --fresh begins again")
            with open(path, "r+b", opener=unplanted) as file:
                file.truncate(wanted)  # what was written after it was last kept
                arrays[name].fromfile(file, count)
            self._written[name] = count
        try:
            self._search.resume(**arrays)
        except ValueError as error:
            raise Refusal(f"{self._folder}: {error}; --fresh begins again") from None
        self._search.edges = found["edges"]
        self._search.exercised = Counter(found["coverage"])
        self.took_s = found["took_s"]

    def save(self, took_s: float) -> None:
        """Keep what is new."""
        search = self._search
        whole = {"parents": search.parents, "moves": search.moves, "fingerprints": search.fingerprints.all}
        # One that was interrupted may have begun to enter a world: what all have of it counts.
        count = min(map(len, whole.values()))
        counts = {**dict.fromkeys(whole, count), "fair": len(search.fair)}
        for name, values in {**whole, "fair": search.fair}.items():
            with open(self._path(name), "r+b", opener=unplanted) as file:
                file.seek(self._written[name] * values.itemsize)
                values[self._written[name] : counts[name]].tofile(file)
                file.flush()
                os.fsync(file.fileno())
            self._written[name] = counts[name]
        head = {
            "format": FORMAT,
            "bounds": _plain(search.system.bounds),
            **self._written,
            "edges": search.edges,
            "coverage": dict(search.exercised),
            "took_s": took_s,
        }
        pending = self._folder / ".search.json.part"
        with open(pending, "w", encoding="utf-8", opener=unplanted) as file:
            file.write(json.dumps(head))
        pending.replace(self._folder / "search.json")


def _plain(bounds: object) -> Any:
    """As they are read back: in JSON there are no tuples."""
    return json.loads(msgspec.json.encode(bounds))
