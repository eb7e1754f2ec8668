"""Remembers what replicas said of themselves, and finds two that believed the same at the same time."""

from collections.abc import Callable, Hashable, Iterable, Iterator

import attrs

from rankcore.testing.conformance.system import SelfReport
from rankcore.values import ReplicaId, ReplicaRank

KeyOf = Callable[[str, ReplicaRank], Hashable]


@attrs.frozen(order=True)
class _Span:
    since: float
    until: float
    replica_id: ReplicaId
    node_id: str


class Witness:
    """Collects self-reports of one deployment.

    A replica that was last heard at some time counts as alive until then, and no longer: what is found is certain.

    Attributes:
        last: The last report of every replica that was ever heard, by id.
    """

    def __init__(self) -> None:
        self.last: dict[ReplicaId, SelfReport] = {}

    def hear(self, reports: Iterable[SelfReport]) -> None:
        """Take down what replicas say."""
        for report in reports:
            before = self.last.get(report.replica_id)
            if before is None or before.at <= report.at:
                self.last[report.replica_id] = report

    def conflicts(self) -> list[str]:
        """Every number that two replicas believed to have at the same time (R3), in words."""
        return [
            *self._overlaps("rank", lambda _, rank: rank.rank),
            *self._overlaps("local rank", lambda node_id, rank: (node_id, rank.local_rank)),
            *self._overlaps("node rank", lambda _, rank: rank.node_rank, among_nodes=True),
        ]

    def _overlaps(self, level: str, key_of: KeyOf, *, among_nodes: bool = False) -> Iterator[str]:
        spans: dict[Hashable, list[_Span]] = {}
        for replica_id in sorted(self.last):
            report = self.last[replica_id]
            ends = [*(belief.since for belief in report.beliefs[1:]), report.at]
            for belief, until in zip(report.beliefs, ends, strict=False):
                if until > belief.since:  # what is over at the instant at which it began came before or after another's
                    span = _Span(belief.since, until, replica_id, report.node_id)
                    spans.setdefault(key_of(report.node_id, belief.rank), []).append(span)
        for key, of_key in spans.items():
            for one, other in _overlapping(sorted(of_key)):
                same = one.node_id == other.node_id if among_nodes else one.replica_id == other.replica_id
                if not same:
                    yield (
                        f"{level} {key}: {one.replica_id} on {one.node_id} believed it from {one.since:.6f} "
                        f"to {one.until:.6f}, {other.replica_id} on {other.node_id} from {other.since:.6f}"
                    )


def _overlapping(spans: list[_Span]) -> Iterator[tuple[_Span, _Span]]:
    """Pairs of spans, sorted by their begin, of which the later begins before the earlier is over."""
    open_: list[_Span] = []
    for span in spans:
        open_ = [each for each in open_ if each.until > span.since]
        yield from ((each, span) for each in open_)
        open_.append(span)
