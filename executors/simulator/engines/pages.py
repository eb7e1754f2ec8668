"""What engines did along a run, by stretches of time of equal width, of which there are `PAGES` at most.

What: whoever turns a replica's page adds what its counters grew by since it was turned last. So a stretch has the same sums as
the whole run, and means and percentiles of it are what those of the run are, of the flights that ended in it; nothing is
sampled. When a run outgrows its stretches, each two neighbours become one.
"""

import attrs

from executors.simulator.engines.batching import EngineWork
from executors.simulator.engines.gaps import TokenGaps

PAGES = 256


@attrs.define(eq=False)
class EnginePage:
    """What all replicas did in one stretch, as in `EngineWork`.

    Attributes:
        kv_share_ps: The share of a KV cache in use, summed over the time of iterations.
        longest_line: Most sequences that waited in one replica when a flight had ended.
    """

    iterations: int = 0
    decoded: int = 0
    busy_ps: int = 0
    kv_share_ps: float = 0.0
    longest_line: int = 0
    gaps: TokenGaps = attrs.Factory(TokenGaps)

    @classmethod
    def since(cls, before: EngineWork, work: EngineWork, blocks: int, longest_line: int) -> "EnginePage":
        """What a replica did since its counters were others; its gaps are the new ones alone."""
        return cls(
            iterations=work.iterations - before.iterations,
            decoded=work.decoded - before.decoded,
            busy_ps=work.busy_ps - before.busy_ps,
            kv_share_ps=(work.kv_ps - before.kv_ps) / blocks,
            longest_line=longest_line,
            gaps=work.gaps,
        )

    def merge(self, other: "EnginePage") -> None:
        """Count what another one has, too."""
        self.iterations += other.iterations
        self.decoded += other.decoded
        self.busy_ps += other.busy_ps
        self.kv_share_ps += other.kv_share_ps
        self.longest_line = max(self.longest_line, other.longest_line)
        self.gaps.merge(other.gaps)


@attrs.define(eq=False)
class EnginePages:
    """The pages of a run.

    Attributes:
        width_s: Of a stretch, a power of two.
        pages: By place in time, from 0 on; where nothing ran there is none.
    """

    width_s: float = 1.0
    pages: dict[int, EnginePage] = attrs.Factory(dict)

    def end_of(self, at_s: float) -> float:
        """When the stretch ends that a time is in."""
        return (int(at_s / self.width_s) + 1) * self.width_s

    def add(self, at_s: float, page: EnginePage) -> None:
        """What a replica did in the stretch that a time is in."""
        while at_s >= self.width_s * PAGES:
            self._widen()
        self.pages.setdefault(int(at_s / self.width_s), EnginePage()).merge(page)

    def _widen(self) -> None:
        before, self.pages = self.pages, {}
        self.width_s *= 2
        for number, page in before.items():
            self.pages.setdefault(number // 2, EnginePage()).merge(page)
