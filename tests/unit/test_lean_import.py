"""A process that wants a small part of the core loads no more than that."""

import subprocess
import sys

import pytest

import rankcore

LOADED = "import sys; print(*sorted(name for name in sys.modules if name.partition('.')[0] in {roots!r}))"


def loaded(statement, *roots):
    code = f"{statement}\n{LOADED.format(roots=roots)}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_ranks_of_a_replica_come_without_the_machine():
    assert loaded("from rankcore import ReplicaRank", "rankcore", "msgspec", "immutables") == ["rankcore", "rankcore.values"]


@pytest.mark.parametrize("name", rankcore.__all__)
def test_every_public_name_can_be_had_first(name):
    assert "rankcore" in loaded(f"from rankcore import {name}", "rankcore")


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'rankcore' has no attribute 'nothing'"):
        _ = rankcore.nothing
