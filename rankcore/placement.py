"""Static placement: which bundles of a placement group, owned by somebody else, each rank stands on (S1..S8)."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import attrs

from rankcore.checks import COUNT_MAX, NAME_LENGTH_MAX
from rankcore.errors import PlacementError, shown
from rankcore.frozen import EMPTY, PMap

Bundles: TypeAlias = tuple[int, ...]
"""Indices in a placement group; the first is where the replica itself runs."""
Place: TypeAlias = tuple[str | None, Bundles]
"""Where a replica stands: the identity of a placement group, and bundles in it."""

ANYWHERE: Place = (None, ())
"""The executor chooses."""


def _given(bundles: Mapping[int, Sequence[int]] | Sequence[Sequence[int]]) -> tuple[Bundles, ...]:
    """What the constructor takes; it is checked and frozen once all fields are there, since errors name the group."""
    return cast(tuple[Bundles, ...], bundles)


@attrs.frozen
class StaticPlacement:
    """Maps each rank to bundles of a placement group that somebody else owns. Frozen, hashable, plain data.

    >>> StaticPlacement(bundles={0: [0, 1], 1: [2, 3]}, bundle_count=4).bundles[1]
    (2, 3)

    Attributes:
        bundles: By rank. Given as a mapping of ranks 0..N-1 to lists of bundle indices (or as a list of such lists).
        bundle_count: How many bundles the group has.
        group: What the group is called, for messages; None: nothing.
        group_id: Tells the group from others of that name; None: its name does. A spec that names another group moves
            every replica; one that names the same keeps those whose bundles stay.
        identity: Derived: what tells the group from another.

    Raises:
        PlacementError: In one line: ranks are not contiguous from 0, a rank has no bundles, a bundle is used twice or is not in
            the group. It names rank, bundle and group.
    """

    bundles: tuple[Bundles, ...] = attrs.field(converter=_given)
    bundle_count: int
    group: str | None = attrs.field(default=None, kw_only=True)
    group_id: str | None = attrs.field(default=None, kw_only=True)
    identity: str | None = attrs.field(init=False, eq=False, repr=False, default=None)
    _owners: PMap[int, int] = attrs.field(init=False, eq=False, repr=False, default=EMPTY)

    def __attrs_post_init__(self) -> None:
        _check_group(self)
        bundles = _by_rank(self)
        object.__setattr__(self, "bundles", bundles)
        object.__setattr__(self, "identity", self.group_id if self.group_id is not None else self.group)
        object.__setattr__(self, "_owners", PMap(_owners_of(self, bundles)))

    def __len__(self) -> int:
        """How many ranks there are: the number of replicas (S1)."""
        return len(self.bundles)

    @property
    def group_shown(self) -> str:
        """The group, for a message."""
        return _group_shown(self.group)

    def owner_of(self, bundle: int) -> int | None:
        """The rank that this bundle belongs to; None: no rank's."""
        return self._owners.get(bundle)

    def place_of(self, rank: int) -> Place:
        """Where this rank's replica belongs; no bundles for a rank that the placement does not have."""
        return self.identity, self.bundles[rank] if rank < len(self.bundles) else ()


def _group_shown(group: object) -> str:
    return "the placement group" if group is None else f"placement group {group!r}"


def _check_group(placement: StaticPlacement) -> None:
    for field, name in (("group", placement.group), ("group_id", placement.group_id)):
        if name is None or (type(name) is str and 0 < len(name) <= NAME_LENGTH_MAX and name.isprintable()):
            continue
        raise PlacementError(f"{field} must be None or 1 to {NAME_LENGTH_MAX} printable characters, got {shown(name)}")
    count = placement.bundle_count
    if type(count) is not int or not 1 <= count <= COUNT_MAX:
        text = f"bundle_count of {_group_shown(placement.group)} must be an integer from 1 to {COUNT_MAX}, got {shown(count)}"
        raise PlacementError(text, group=placement.group)


def _by_rank(placement: StaticPlacement) -> tuple[Bundles, ...]:
    given: Any = placement.bundles
    group, its_name = placement.group, _group_shown(placement.group)
    if isinstance(given, (list, tuple)):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        text = f"bundles of {its_name} must be a mapping of ranks to lists of bundle indices, got {shown(given)}"
        raise PlacementError(text, group=group)
    for rank in given:
        if type(rank) is not int or rank < 0:
            text = f"rank {shown(rank)} on {its_name} must be an integer from 0"
            raise PlacementError(text, rank=rank, group=group)
    if not given:
        raise PlacementError(
            f"rank 0 has no bundles in {its_name}: a static placement has at least one rank", rank=0, group=group
        )
    for rank in range(len(given)):
        if rank not in given:
            text = f"rank {rank} has no bundles in {its_name}: ranks must be contiguous from 0, got {shown(sorted(given))}"
            raise PlacementError(text, rank=rank, group=group)
    return tuple(_of_rank(rank, given[rank], group) for rank in range(len(given)))


def _of_rank(rank: int, bundles: object, group: str | None) -> Bundles:
    if not isinstance(bundles, (list, tuple)):
        text = f"rank {rank} on {_group_shown(group)} must have a list of bundle indices, got {shown(bundles)}"
        raise PlacementError(text, rank=rank, group=group)
    if not bundles:
        text = f"rank {rank} has an empty list of bundles in {_group_shown(group)}: its replica runs on the first of them"
        raise PlacementError(text, rank=rank, group=group)
    return tuple(bundles)


def _owners_of(placement: StaticPlacement, bundles: tuple[Bundles, ...]) -> dict[int, int]:
    owners: dict[int, int] = {}
    its_name = placement.group_shown
    for rank, indices in enumerate(bundles):
        for bundle in indices:
            if type(bundle) is not int:
                text = f"bundle {shown(bundle)} of rank {rank} on {its_name} must be an integer"
            elif not 0 <= bundle < placement.bundle_count:
                text = (
                    f"bundle {bundle} of rank {rank} is outside {its_name}, which has bundles 0..{placement.bundle_count - 1}"
                )
            elif owners.get(bundle) == rank:
                text = f"bundle {bundle} of rank {rank} is listed twice on {its_name}"
            elif bundle in owners:
                text = (
                    f"bundle {bundle} of rank {rank} is rank {owners[bundle]}'s already on {its_name}: a bundle serves one rank"
                )
            else:
                owners[bundle] = rank
                continue
            raise PlacementError(text, rank=rank, bundle=bundle, group=placement.group)
    return owners
