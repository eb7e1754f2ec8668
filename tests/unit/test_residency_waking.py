"""A round in which those that wait are tried again: who does not fit now, and others of its size, are not looked at again."""

from types import SimpleNamespace

from rankcore.residency import waking


def test_a_size_that_did_not_fit_is_not_tried_again_in_a_round(monkeypatch):
    entries = {1: [(1, 10), (1, 12)], 2: [(2, 11), (2, 13)]}
    lack = SimpleNamespace(kind=None, asked=0, sizes=SimpleNamespace(since=lambda key: entries[key[0]]))
    names = {f"m#{serial}": serial for serial in range(10, 14)}
    ledger = SimpleNamespace(queue=SimpleNamespace(lacks={"m": lack}), replicas=names)
    reach = SimpleNamespace(holds=lambda kind, asked, size: size == 2)
    tried = []
    monkeypatch.setattr(waking, "place", lambda ledger, serial, among: tried.append(serial) or serial == 11)
    sizes = {1, 2}
    assert waking._try_those_of(ledger, "m", sizes, reach, [])
    assert tried == [11, 13], "10 has no room, so 12 is not looked at; 11 has got a place, and 13 has not"
    assert sizes == set()
