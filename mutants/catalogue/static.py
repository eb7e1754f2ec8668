"""Static placement on a placement group that somebody else owns: S1 to S8."""

from mutants.mutant import Mutant

STATIC_RULES = "rankcore/rules/static.py"
PLACEMENT = "rankcore/placement.py"
BUNDLES = "rankcore/book/bundles.py"

STATIC = (
    Mutant(
        "a-bundle-beyond-the-group",
        "S1",
        "a bundle index that equals the number of bundles is accepted",
        PLACEMENT,
        "elif not 0 <= bundle < placement.bundle_count:",
        "elif not 0 <= bundle <= placement.bundle_count:",
    ),
    Mutant(
        "only-the-group-is-compared",
        "S2",
        "a replica on other bundles of the right group counts as being in its place",
        BUNDLES,
        "return holder.place == draft.spec.place_of(rank)",
        "return holder.place[0] == draft.spec.place_of(rank)[0]",
    ),
    Mutant(
        "restarted-on-one-bundle-only",
        "S3",
        "a replica is started on the first bundle of its list only",
        "rankcore/rules/fill.py",
        "if draft.spec.static_placement is not None else ANYWHERE\n",
        "if draft.spec.static_placement is not None else ANYWHERE\n    bundles = bundles[:1]\n",
    ),
    Mutant(
        "who-leaves-is-not-waited-for",
        "S4",
        "a replica is started on a bundle that a draining one still has",
        BUNDLES,
        "if user.slot != rank:",
        "if user.slot != rank and user.state is not DRAINING:",
    ),
    Mutant(
        "started-on-a-lost-bundle",
        "S5",
        "the slot of a replica whose bundle is lost is filled again at once",
        "rankcore/rules/endings.py",
        "if rank is not None and held and rank in draft.bundles.stranded:",
        "if rank is not None and held and rank in draft.bundles.stranded and node_lost:",
    ),
    Mutant(
        "bound-ranks-are-compacted",
        "S6",
        "compaction runs with a static placement",
        "rankcore/rules/compact.py",
        "    if draft.spec.static_placement is not None:\n        return  # ranks are bound",
        "    if draft.spec.static_placement is not None and draft.recovery.losers:\n        return  # ranks are bound",
    ),
    Mutant(
        "a-ring-of-moves-waits-for-ever",
        "S7",
        "where replicas have to exchange bundles, nobody begins",
        STATIC_RULES,
        "    held_up = _held_up(draft)\n    return next(",
        "    held_up = set(draft.bundles.misfits)\n    return next(",
    ),
    Mutant(
        "a-ring-goes-on-while-nothing-comes-up",
        "V1",
        "one after another makes way in a ring of bundles, though whoever is started in it fails: nobody is left",
        STATIC_RULES,
        "    if any(slots.is_resting(draft, rank) and bundles.obstacle(draft, rank) is None for rank in draft.vacant):\n",
        "    if False:\n",
    ),
    Mutant(
        "a-duplicates-loser-is-moved",
        "S8",
        "the loser of a duplicate stays on the bundles of its rank",
        STATIC_RULES,
        "in draft.those(draft.recovery.losers):\n        because",
        "in draft.those(draft.recovery.misplaced):\n        because",
    ),
)
