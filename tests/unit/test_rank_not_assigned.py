"""What user code hears that asks for its rank before it has one; `executors/ray_gpu/context.py`."""

import pickle

import attrs
import pytest

from executors.ray_gpu.context import ReplicaContext
from executors.ray_gpu.messages import NO_RANKS
from rankcore.errors import RankNotAssignedError
from rankcore.values import ReplicaRank

pytestmark = pytest.mark.traced


def test_who_asks_for_a_rank_before_there_is_one_is_told_about_the_hand_over() -> None:
    context = ReplicaContext("app", "llm", "app/llm#1.0", NO_RANKS, 4, "n0", "ns")
    assert context.rank_or_none is None
    with pytest.raises(RankNotAssignedError, match=r"app/llm#1\.0 has no rank yet: with hand_over='prepared'") as raised:
        _ = context.rank
    assert pickle.loads(pickle.dumps(raised.value)).replica_id == "app/llm#1.0"
    context = attrs.evolve(context, ranks=(3, 1, 0))
    assert context.rank_or_none == context.rank == ReplicaRank(3, 1, 0)
