"""The cheapest sufficient set of victims on one node, over all choices of its GPUs: branch and bound, exact.

**What.** A set suffices for a choice of GPUs when on each of them what is free and what the victims hold there come to what
the newcomer needs. Costs are positive, so no member of a cheapest set can be spared. It is the covering problem of knapsacks,
one for each GPU, that share items: hard in general, small in fact (eight GPUs, a dozen victims).

**How.** Three cuts make it small:

1. Where no victim spans two of the GPUs, each GPU is a problem of its own, and the cheapest GPUs together are the cheapest
   choice.
2. Where some do, the choices of GPUs are weighed one by one, fewest missing bytes first; for one choice, GPUs that share no
   victim fall into groups, each a problem of its own.
3. In a group, depth first (`_Search`): take the GPU that lacks most, and try its victims in the order of cost per byte that
   helps. Each set is looked at once, since a victim that was tried is out for the rest of its branch; of victims with equal
   cost and holdings one is tried. A branch is left when even fractions of the best victims (`_least_cost`, the relaxed
   problem) cost more than what was found.

**Why it ends, and what it costs.** The number of undecided victims falls with every level. `STEPS_MAX` and `CHOICES_MAX` bound
the work where the problem is larger than it should be; a search cut short still returns a sufficient set, with members that
can be spared removed, and says that it is not exact.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from typing import NamedTuple

from rankcore.values import ReplicaId

STEPS_MAX = 4096
"""Sets that are looked at for one group of GPUs that share victims: exact for 12 victims there, whatever they weigh."""
CHOICES_MAX = 1000
"""Choices of GPUs that are looked at where victims span several: exact for all of a node of 12 GPUs."""


class Victim(NamedTuple):
    """Who might leave.

    Attributes:
        cost: What it weighs, above 0.
        held: What it holds on each GPU, by number.
    """

    replica_id: ReplicaId
    cost: int
    held: Mapping[int, int]


class Cover(NamedTuple):
    """A sufficient set; in the order in which sets are preferred."""

    cost: int
    size: int
    gpus: tuple[int, ...]
    victims: tuple[ReplicaId, ...]
    exact: bool


class _Set(NamedTuple):
    """Victims for a given choice of GPUs; in the order in which sets are preferred."""

    cost: int
    size: int
    victims: tuple[ReplicaId, ...]


def cheapest_cover(victims: Sequence[Victim], short: Mapping[int, int], degree: int, limit: int | None = None) -> Cover | None:
    """Find whom to displace on a node.

    Args:
        victims: Those who may be.
        short: The GPUs that a newcomer could be on, by number: what each lacks, 0 where it has enough free.
        degree: How many of them it needs.
        limit: Sets that cost more are of no interest.

    Returns:
        The cheapest set; of equals the smallest, then by the numbers of the GPUs, then by ids. None: none suffices.
    """
    reach: dict[int, list[Victim]] = {gpu: [] for gpu, lack in short.items() if lack}
    for victim in victims:
        for gpu in victim.held:
            if gpu in reach:
                reach[gpu].append(victim)
    usable = [gpu for gpu, lack in short.items() if not lack or sum([each.held[gpu] for each in reach[gpu]]) >= lack]
    if len(usable) < degree:
        return None
    spans = any(len(reach.keys() & victim.held.keys()) > 1 for victim in victims)
    return _over_choices(reach, short, usable, degree, limit) if spans else _gpu_by_gpu(reach, short, usable, degree, limit)


def _gpu_by_gpu(
    reach: Mapping[int, list[Victim]], short: Mapping[int, int], usable: list[int], degree: int, limit: int | None
) -> Cover | None:
    """Nobody is on two of the GPUs: the cheapest GPUs together are the cheapest choice."""
    each, exact = [], True
    for gpu in usable:
        search = _Search({gpu: short[gpu]} if short[gpu] else {}, reach.get(gpu, []), limit)
        exact = exact and search.exact
        if search.best is not None:
            each.append((search.best.cost, search.best.size, gpu, search.best.victims))
    if len(each) < degree:
        return None
    chosen = sorted(each)[:degree]
    cost = sum([row[0] for row in chosen])
    if limit is not None and cost > limit:
        return None
    ids = tuple(sorted([replica_id for row in chosen for replica_id in row[3]]))
    return Cover(cost, len(ids), tuple(sorted([row[2] for row in chosen])), ids, exact)


def _over_choices(
    reach: Mapping[int, list[Victim]], short: Mapping[int, int], usable: list[int], degree: int, limit: int | None
) -> Cover | None:
    """Some are on several: a victim for one GPU comes free for another, so choices are weighed one by one."""
    best: Cover | None = None
    usable = sorted(usable, key=lambda gpu: (short[gpu], gpu))
    choices = combinations(usable, degree)
    exact = True
    for choice in islice(choices, CHOICES_MAX):
        lacks = {gpu: short[gpu] for gpu in choice if short[gpu]}
        if limit is not None and sum(lacks.values()) > limit:
            continue
        there = {victim.replica_id: victim for gpu in lacks for victim in reach[gpu]}
        found, found_exact = _cover(lacks, list(there.values()), limit)
        exact = exact and found_exact
        if found is not None:
            cover = Cover(found.cost, found.size, tuple(sorted(choice)), found.victims, True)
            if best is None or cover < best:
                best, limit = cover, cover.cost
    if next(choices, None) is not None:
        exact = False
    return best._replace(exact=exact) if best is not None else None


def _cover(lacks: dict[int, int], victims: list[Victim], limit: int | None) -> tuple[_Set | None, bool]:
    """The cheapest set for given GPUs: groups that share no victims are searched one by one."""
    cost, ids, exact = 0, list[ReplicaId](), True
    for gpus in _groups(lacks, victims):
        among = [victim for victim in victims if not gpus.isdisjoint(victim.held)]
        search = _Search({gpu: lacks[gpu] for gpu in sorted(gpus)}, among, None if limit is None else limit - cost)
        exact = exact and search.exact
        if search.best is None:
            return None, exact
        cost += search.best.cost
        ids += search.best.victims
    return _Set(cost, len(ids), tuple(sorted(ids))), exact


def _groups(lacks: Mapping[int, int], victims: Sequence[Victim]) -> list[set[int]]:
    groups: list[set[int]] = [{gpu} for gpu in lacks]
    for victim in victims:
        touched = [group for group in groups if not group.isdisjoint(victim.held)]
        if len(touched) > 1:
            groups = [group for group in groups if group.isdisjoint(victim.held)] + [set().union(*touched)]
    return groups


class _Search:
    """Depth first over sets of victims, each looked at once, the promising ones first.

    Attributes:
        best: What was found; None: nothing suffices, or nothing that costs no more than the limit.
        exact: Whether all sets were looked at, or need not be.
    """

    def __init__(self, lacks: Mapping[int, int], victims: Sequence[Victim], limit: int | None) -> None:
        self.best: _Set | None = None
        self.limit = limit
        self.steps = 0
        self.exact = True
        self._go(dict(lacks), sorted(victims, key=lambda each: (each.cost, each.replica_id)), [], 0)
        self._spare(lacks, victims)

    def _go(self, lacks: dict[int, int], left: list[Victim], chosen: list[ReplicaId], cost: int) -> None:
        """`left`: victims that may still be added; the others are in, or out for good."""
        if not lacks:
            found = _Set(cost, len(chosen), tuple(sorted(chosen)))
            if (self.limit is None or cost <= self.limit) and (self.best is None or found < self.best):
                self.best, self.limit = found, cost
            return
        if self._cannot_win(lacks, left, len(chosen), cost):
            return
        if self.steps == STEPS_MAX:
            self.exact = False
            return
        self.steps += 1
        gpu = max(lacks, key=lambda each: (lacks[each], -each))
        out: set[ReplicaId] = set()
        twins: set[tuple[int, tuple[tuple[int, int], ...]]] = set()
        there = sum([victim.held.get(gpu, 0) for victim in left])
        for victim in sorted([each for each in left if gpu in each.held], key=lambda each: _rate(each, lacks)):
            if there < lacks[gpu]:
                return
            twin = (victim.cost, tuple(sorted(victim.held.items())))
            out.add(victim.replica_id)
            if twin not in twins:
                twins.add(twin)
                remaining = {each: lack - victim.held.get(each, 0) for each, lack in lacks.items()}
                self._go(
                    {each: lack for each, lack in remaining.items() if lack > 0},
                    [each for each in left if each.replica_id not in out],
                    [*chosen, victim.replica_id],
                    cost + victim.cost,
                )
            there -= victim.held[gpu]

    def _spare(self, lacks: Mapping[int, int], victims: Sequence[Victim]) -> None:
        """A search that was cut short may have found a set with members to spare."""
        if self.best is not None and not self.exact:
            self.best = _without_spare(self.best, lacks, victims)

    def _cannot_win(self, lacks: Mapping[int, int], left: Sequence[Victim], count: int, cost: int) -> bool:
        if self.limit is None:
            return False
        least = cost + _least_cost(lacks, left)
        return least > self.limit or (self.best is not None and least == self.limit and count >= self.best.size)


def _rate(victim: Victim, lacks: Mapping[int, int]) -> tuple[float, ReplicaId]:
    """Cost per byte that it would bring."""
    return victim.cost / _useful(victim, lacks), victim.replica_id


def _useful(victim: Victim, lacks: Mapping[int, int]) -> int:
    return sum([min(held, lacks.get(gpu, 0)) for gpu, held in victim.held.items()])


def _least_cost(lacks: Mapping[int, int], left: Sequence[Victim]) -> int:
    """No set costs less: as if each GPU could be served with parts of the victims that bring most for their cost."""
    least = dict.fromkeys(lacks, -1)
    for victim in left:
        useful = 0
        for gpu, held in victim.held.items():
            if gpu in lacks:
                useful += min(held, lacks[gpu])
        for gpu in victim.held:
            if gpu in lacks:
                bound = lacks[gpu] * victim.cost // useful
                if least[gpu] < 0 or bound < least[gpu]:
                    least[gpu] = bound
    return sum(least.values()) if least else 0


def _without_spare(found: _Set, lacks: Mapping[int, int], victims: Sequence[Victim]) -> _Set:
    """A search that was cut short may have found a set with members to spare: the dearest of them stay."""
    chosen = {victim.replica_id: victim for victim in victims if victim.replica_id in found.victims}
    for victim in sorted(chosen.values(), key=lambda each: (-each.cost, each.replica_id)):
        others = [each for each in chosen.values() if each is not victim]
        if all(sum([each.held.get(gpu, 0) for each in others]) >= lack for gpu, lack in lacks.items()):
            del chosen[victim.replica_id]
    return _Set(sum([each.cost for each in chosen.values()]), len(chosen), tuple(sorted(chosen)))
