"""The promises about ranks, one example each, on the rank table alone."""

import doctest
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankcore import ranks
from rankcore.errors import DuplicateRankError, RankError, UnknownReplicaError
from rankcore.ranks import RankTable
from rankcore.ranks_seats import Move
from rankcore.values import ReplicaRank


def table_of(*places: tuple[str, str]) -> RankTable:
    table = RankTable()
    for replica_id, node_id in places:
        table, _ = table.assign(replica_id, node_id)
    return table


FOUR = table_of(("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2"))


def test_ranks_count_from_zero_at_three_levels():
    assert dict(FOUR.ranks) == {
        "a": ReplicaRank(0, 0, 0),
        "b": ReplicaRank(0 + 1, 0, 1),
        "c": ReplicaRank(2, 1, 0),
        "d": ReplicaRank(3, 1, 1),
    }


def test_r4_a_newcomer_gets_the_lowest_available_rank_at_each_level():
    table = FOUR.release("b").release("a")
    table, rank = table.assign("e", "n3")
    assert rank == ReplicaRank(0, 0, 0)
    table, rank = table.assign("f", "n2")
    assert rank == ReplicaRank(1, 1, 2)


def test_r5_the_death_of_another_replica_changes_nobody():
    table = FOUR.release("a")
    assert [table.rank_of(each) for each in "bcd"] == [FOUR.rank_of(each) for each in "bcd"]


def test_r6_a_replacement_gets_the_rank_of_the_one_it_replaces_wherever_it_is_placed():
    table, rank = FOUR.replace("b", "b2", "n1")
    assert rank == FOUR.rank_of("b")
    table, rank = table.replace("c", "c2", "n1")
    assert rank == ReplicaRank(2, 0, 2)
    assert table.node_of("c2") == "n1"


def test_r6_two_replacements_in_either_order_get_their_own_ranks():
    table, _ = FOUR.replace("d", "d2", "n3")
    table, _ = table.replace("b", "b2", "n3")
    assert (table.holder_of(1), table.holder_of(3)) == ("b2", "d2")


def test_a_replacement_alone_on_its_node_takes_the_lowest_node_rank():
    table = FOUR.release("a").release("b").release("d")
    _, rank = table.replace("c", "c2", "n2")
    assert rank == ReplicaRank(2, 0, 0)


def test_a_node_is_forgotten_with_its_last_replica():
    table = FOUR.release("a").release("b")
    _, rank = table.assign("e", "n1")
    assert (rank.node_rank, rank.local_rank) == (0, 0)


def test_r8_only_what_is_too_high_moves_and_it_takes_the_lowest_gaps():
    table, moves = FOUR.release("b").compact()
    assert moves == (Move.of("d", ReplicaRank(3, 1, 1), ReplicaRank(1, 1, 1)),)
    assert dict(table.ranks)["d"] == moves[0].after
    assert moves[0].before == ReplicaRank(3, 1, 1)


def test_r8_a_node_that_moves_takes_all_its_replicas_along():
    table, moves = FOUR.release("a").release("b").compact()
    assert [(move.replica_id, move.after) for move in moves] == [
        ("c", ReplicaRank(0, 0, 0)),
        ("d", ReplicaRank(1, 0, 1)),
    ]
    assert table.is_compact()


def test_r8_a_table_without_gaps_stays_the_very_same():
    assert FOUR.compact() == (FOUR, ())
    assert FOUR.compact()[0] is FOUR


def test_a_compaction_to_a_greater_size_leaves_gaps_below_it():
    table = table_of(*((each, "n1") for each in "abcdef")).release("a").release("b")
    compacted, moves = table.compact(5)
    assert [move.replica_id for move in moves] == ["f", "e"]
    assert [compacted.holder_of(rank) for rank in range(6)] == ["f", None, "c", "d", "e", None]


def test_a_compaction_below_the_number_of_replicas_is_refused():
    with pytest.raises(RankError, match=r"compact\(size=3\) takes at most 3 replicas, and the table holds 4"):
        FOUR.compact(3)


def test_r10_gaps_below_the_highest_recovered_rank_are_available():
    table = RankTable().recover_rank("e", "n1", ReplicaRank(5, 0, 0))
    given = []
    for replica_id in ("f", "g", "h", "i", "j", "k"):
        table, rank = table.assign(replica_id, "n1")
        given.append(rank.rank)
    assert given == [0, 1, 2, 3, 4, 6]


def test_r10_of_two_that_report_one_rank_the_older_keeps_it():
    table, moves = RankTable.recover(
        [
            ("old", "n1", ReplicaRank(0, 0, 0)),
            ("young", "n1", ReplicaRank(0, 0, 1)),
            ("other", "n1", ReplicaRank(1, 0, 2)),
        ]
    )
    assert moves == (Move.of("young", ReplicaRank(0, 0, 1), ReplicaRank(2, 0, 1)),)
    assert [table.holder_of(rank) for rank in range(3)] == ["old", "other", "young"]


def test_r10_the_oldest_replica_on_a_node_speaks_for_its_node_rank():
    table, moves = RankTable.recover(
        [
            ("a", "n1", ReplicaRank(0, 1, 0)),
            ("b", "n2", ReplicaRank(1, 0, 0)),
            ("c", "n1", ReplicaRank(2, 0, 1)),
        ]
    )
    assert [(move.replica_id, move.after.node_rank) for move in moves] == [("c", 1)]
    assert table.rank_of("b").node_rank == 0


def test_r10_of_two_nodes_with_one_rank_the_one_with_the_older_replica_keeps_it():
    reports = [
        ("a", "n1", ReplicaRank(0, 0, 0)),
        ("b", "n2", ReplicaRank(1, 0, 0)),
        ("c", "n1", ReplicaRank(2, 0, 1)),
        ("d", "n2", ReplicaRank(3, 1, 1)),
    ]
    _, moves = RankTable.recover(reports)
    # 1 is believed by d, so n2 cannot have it.
    assert [(move.replica_id, move.after.node_rank) for move in moves] == [("b", 2), ("d", 2)]


def test_a_recovery_of_nobody_is_an_empty_table():
    assert RankTable.recover([]) == (RankTable(), ())


def test_old_tables_stay_valid():
    before = dict(FOUR.ranks)
    FOUR.release("a").compact()
    FOUR.assign("e", "n9")
    assert dict(FOUR.ranks) == before


def test_the_ranks_are_a_mapping_in_the_order_of_rank():
    ranks = FOUR.release("b").ranks
    assert list(ranks) == ["a", "c", "d"]
    assert len(ranks) == 3
    assert "b" not in ranks
    assert ranks.get("b") is None
    assert repr(ranks) == repr(dict(ranks))


class TestErrors:
    """The text says who, what was found and what holds instead; and nothing has changed."""

    def test_an_unknown_replica(self):
        table = FOUR
        calls = (table.rank_of, table.node_of, table.release, lambda each: table.replace(each, "e", "n1"))
        for call in calls:
            with pytest.raises(UnknownReplicaError, match=r"^replica 'z' holds no rank in this table$"):
                call("z")
        assert "z" not in table
        assert "a" in table

    def test_a_replica_that_has_a_rank(self):
        table = FOUR
        held = r"^replica 'b' has a rank already: ReplicaRank\(rank=1, node_rank=0, local_rank=1\)$"
        with pytest.raises(DuplicateRankError, match=held):
            table.assign("b", "n1")
        with pytest.raises(DuplicateRankError, match=held):
            table.replace("a", "b", "n1")
        with pytest.raises(DuplicateRankError, match=held):
            table.recover_rank("b", "n1", ReplicaRank(9, 0, 9))
        assert table.rank_of("a") == ReplicaRank(0, 0, 0)

    @pytest.mark.parametrize(
        ("node", "rank", "text"),
        [
            ("n1", ReplicaRank(3, 0, 5), "rank 3 of 'e' is held by 'd'"),
            ("n2", ReplicaRank(9, 1, 1), "local rank 1 of 'e' is held by 'd'"),
            ("n3", ReplicaRank(9, 1, 0), "node rank 1 of 'n3' is held by 'n2'"),
        ],
    )
    def test_a_rank_that_another_holds(self, node, rank, text):
        table = FOUR
        with pytest.raises(DuplicateRankError, match=f"^{text}$"):
            table.recover_rank("e", node, rank)
        assert "e" not in table
        assert len(table) == 4
        with pytest.raises(DuplicateRankError):
            table.recover_rank("e", node, rank)

    @pytest.mark.parametrize("rank", [-1, 10_000_001, True, 1.0, "1", None])
    def test_what_cannot_be_a_rank(self, rank):
        text = "a reported rank must be an integer from 0 to 10000000, got "
        for wrong in (ReplicaRank(rank, 0, 0), ReplicaRank(0, rank, 0), ReplicaRank(0, 0, rank)):
            with pytest.raises(RankError, match=text):
                RankTable().recover_rank("a", "n1", wrong)
            with pytest.raises(RankError, match=text):
                RankTable.recover([("a", "n1", wrong)])

    def test_a_replica_reported_twice(self):
        reports = [(each, "n1", ReplicaRank(index, 0, index)) for index, each in enumerate("aba")]
        with pytest.raises(DuplicateRankError, match=r"^replica 'a' is reported twice, and a replica has one rank$"):
            RankTable.recover(reports)


def test_a_rank_far_out_costs_words_and_not_numbers():
    table = RankTable().recover_rank("a", "n1", ReplicaRank(10_000_000, 0, 0))
    table, rank = table.assign("b", "n1")
    assert rank.rank == 0
    assert len(table.holes.words) < 10_000


def test_a_gap_that_was_recovered_into_is_not_handed_out_again():
    table = FOUR.release("a").recover_rank("e", "n1", ReplicaRank(0, 0, 0))
    assert table.assign("f", "n1")[1] == ReplicaRank(4, 0, 2)


def test_the_examples_in_the_docstrings_hold():
    failed, attempted = doctest.testmod(ranks)
    assert (failed, attempted > 0) == (0, True)


SCRIPT = """
from rankcore.ranks import RankTable
from rankcore.values import ReplicaRank

table = RankTable()
for index in range(60):
    table, _ = table.assign(f"r{index}", f"n{index % 7}")
for index in list(range(0, 60, 7)) + [5, 8, 13, 40]:
    table = table.release(f"r{index}")
print(list(table.ranks.items()), table.compact()[1])
reports = [(f"r{index}", f"n{index % 5}", ReplicaRank(index % 9, index % 3, index % 4)) for index in range(40)]
print(RankTable.recover(reports)[1], list(RankTable.recover(reports)[0].ranks.items()))
"""


def test_what_comes_out_never_depends_on_the_hash_seed():
    root = Path(__file__).parents[2]
    outputs = set()
    for seed in ("0", "1", "2"):
        variables = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=variables, capture_output=True, text=True, check=True)
        outputs.add(done.stdout)
    assert len(outputs) == 1
