"""The kinds of worlds that `rankcore check` explores: one table, with a row for each option that chooses among them."""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from rankcore.testing import model, model_cluster, model_gang, model_residency, model_routing
from rankcore.testing.explorable import Explorable
from rankcore.testing.model.coverage import NOTE_NAMES, REPLICA_ROW_NAMES, STATUS_NAMES
from rankcore.testing.model.systems import DEEP, SMALL


@attrs.frozen(kw_only=True)
class Worlds:
    """One kind of worlds.

    Attributes:
        system: What is explored, made of some bounds.
        series: The bounds of the small systems, by name.
        deep: Those of the larger ones.
        holds: What to say of it beside that all promises hold; empty: nothing.
        exercised: What its steps can exercise, by kind.
    """

    system: Callable[[Any], Explorable[Any, Any, Any]]
    series: Mapping[str, Any]
    deep: Mapping[str, Any] = {}
    holds: str = ""
    exercised: Mapping[str, tuple[str, ...]] = {}


WORLDS: dict[str, Worlds] = {
    "ranks": Worlds(
        system=model.RankSystem,
        series=SMALL,
        deep=DEEP,
        exercised={
            "moves of a replica": REPLICA_ROW_NAMES,
            "moves of the deployment": STATUS_NAMES,
            "kinds of notes": NOTE_NAMES,
        },
    ),
    "router": Worlds(
        system=model_routing.RouterSystem,
        series=model_routing.SYSTEMS,
        holds="Q1 to Q11 and C1 to C4 hold in every state, and every request gets its answer.",
    ),
    "residency": Worlds(
        system=model_residency.ResidencySystem,
        series=model_residency.SYSTEMS,
        holds="T1 to T10, T12 and T13 hold in every state, no memory is ever over its capacity, and everything comes to rest.",
    ),
    "cluster": Worlds(
        system=model_cluster.ClusterSystem,
        series=model_cluster.SYSTEMS,
        holds="P2 and P6 hold in every state: no crash loses what was decided, and everything comes to rest.",
    ),
    "gang": Worlds(
        system=model_gang.GangSystem,
        series=model_gang.SYSTEMS,
        holds="TR1 to TR8 hold in every state: no rank is two agents', and everything comes to rest.",
    ),
}
"""By the option that chooses them; those of ranks are explored where none does."""
