"""Journals that a test has changed: with numbers and hashes that fit again, or as layouts without a chain had them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from executors.engine.chain import KEYS, Chain


def unsealed(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal, without numbers and hashes."""
    lines = map(json.loads, path.read_bytes().splitlines())
    return [{key: value for key, value in line.items() if key not in KEYS} for line in lines]


def sealed(lines: Iterable[dict[str, Any]]) -> bytes:
    """A journal of these lines."""
    chain, texts = Chain(), []
    for line in lines:
        text, chain = chain.seal(line)
        texts.append(text)
    return b"".join(texts)


def without_chain(path: Path, header: dict[str, Any]) -> str:
    """A journal with another first line, of a layout that had no chain and no end marker."""
    lines = [line for line in unsealed(path)[1:] if "end" not in line]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in (header, *lines))


def changed(path: Path, old: str, new: str) -> Path:
    """A journal with another text wherever one stood."""
    texts = [json.dumps(line, separators=(",", ":")).replace(old, new) for line in unsealed(path)]
    path.write_bytes(sealed(map(json.loads, texts)))
    return path
