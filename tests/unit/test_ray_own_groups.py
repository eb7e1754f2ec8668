"""Placement groups that replicas have for themselves: what they are called, and which of a cluster's are removed."""

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import own_groups


@pytest.fixture
def there(monkeypatch):
    """The groups of a cluster: what they are called, by id; removing one takes it out."""
    found = {}

    def table():
        return {group_id: {"name": name, "state": "CREATED"} for group_id, name in found.items()}

    monkeypatch.setattr(own_groups, "placement_group_table", table)
    monkeypatch.setattr(own_groups, "group_of", lambda group_id: group_id)
    monkeypatch.setattr(own_groups, "remove_placement_group", found.pop)
    return found


def test_the_name_of_a_group_reads_back_to_its_replica():
    for namespace in ("rankcore", "rankcore/dev", "a b:c#d%2F"):
        for replica in (("chat/llm", "chat/llm#1.0"), ("a:b/c", "a:b/c#2.11")):
            assert own_groups.replica_of(own_groups.name_of(namespace, *replica)) == (namespace, *replica)


def test_only_groups_of_replicas_of_this_very_namespace_that_are_gone_are_removed(there):
    there |= {
        "kept": own_groups.name_of("rankcore", "chat/llm", "chat/llm#1.0"),
        "gone": own_groups.name_of("rankcore", "chat/llm", "chat/llm#1.1"),
        "of-dev": own_groups.name_of("rankcore/dev", "chat/llm", "chat/llm#1.1"),
        "users": "rankcore/gpus",
        "like-an-actor": "rankcore/chat/llm:chat/llm#1.1",
        "unescaped": "rankcore-replica:rank%63ore/chat/llm:chat/llm#1.1",
        "no-replica": "rankcore-replica:rankcore/chat",
        "unnamed": "",
    }
    before = dict(there)
    kept = own_groups.sweep("rankcore", {"chat/llm": ["chat/llm#1.0", "chat/llm#1.7"]})
    assert kept == {before["kept"]: "kept"}
    assert before.keys() - there.keys() == {"gone"}


def test_a_group_that_was_removed_already_is_none(there, monkeypatch):
    name = own_groups.name_of("rankcore", "chat/llm", "chat/llm#1.0")
    monkeypatch.setattr(own_groups, "placement_group_table", lambda: {"x": {"name": name, "state": "REMOVED"}})
    assert own_groups.sweep("rankcore", {}) == {}
    assert own_groups.groups_of("rankcore") == {}
