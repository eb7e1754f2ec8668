"""Seeds in batches, as pieces of work for processes and clusters, and what they come to, added up."""

import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import attrs

from executors.swarm.coverage import Witness, of_faults
from executors.swarm.runs import run_seed
from executors.swarm.twice import differs

BATCH = {"pure": 20, "simulator": 10}
"""Seeds of one batch: so many that handing it over costs nothing, so few that all processes end together."""
TWICE_EVERY = 100
ALL_WITNESSED = 200
WITNESSED_EVERY = 4
"""Coverage is counted in the first `ALL_WITNESSED` seeds, and in every so-manyth after them: it costs 5 us a step."""
COLLECT_EVERY = 50_000


@attrs.frozen
class Batch:
    """Some seeds of one part.

    Attributes:
        first: The first seed of the whole swarm: which seeds are run twice does not depend on how they are spread.
    """

    part: str
    seeds: tuple[int, ...]
    first: int


@attrs.frozen
class Failing:
    """A seed that fails.

    Attributes:
        rule: The promise that is broken, by its number; "determinism": a second run differs.
    """

    part: str
    seed: int
    rule: str
    text: str


@attrs.frozen
class Came:
    """What some seeds of one part have come to.

    Attributes:
        events: Told to cores, each of them checked.
        counts: By the names in `coverage.KINDS`, how often each was seen.
        failing: In the order of their seeds.
        twice: How many seeds were run a second time.
        busy_s: Processor time; second runs are not in it.
    """

    part: str
    seeds: int = 0
    events: int = 0
    counts: Counter[str] = attrs.Factory(Counter)
    failing: tuple[Failing, ...] = ()
    twice: int = 0
    busy_s: float = 0.0

    def __add__(self, other: "Came") -> "Came":
        """Both together."""
        return Came(
            self.part,
            self.seeds + other.seeds,
            self.events + other.events,
            self.counts + other.counts,
            tuple(sorted((*self.failing, *other.failing), key=lambda each: each.seed)),
            self.twice + other.twice,
            self.busy_s + other.busy_s,
        )

    @property
    def per_minute(self) -> float:
        """Checked events per minute of one core."""
        return self.events / self.busy_s * 60.0 if self.busy_s else 0.0


def batches_of(parts: Iterable[str], seeds: Sequence[int]) -> list[Batch]:
    """All the work, the parts in turns, so that an interrupted swarm has seen something of each."""
    found = [
        (begin, Batch(part, tuple(seeds[begin : begin + BATCH[part]]), seeds[0]))
        for part in parts
        for begin in range(0, len(seeds), BATCH[part])
    ]
    return [batch for _, batch in sorted(found, key=lambda each: each[0])]


def run_batch(batch: Batch) -> Came:
    """Run these seeds one after the other. It depends on nothing but the batch, whichever process does it."""
    witness, counts = Witness(), Counter[str]()
    events, failing, twice, busy_s = 0, [], 0, 0.0
    with _rare_collections():
        for seed in batch.seeds:
            place = seed - batch.first
            begun = time.process_time()
            watch = witness.tell if place < ALL_WITNESSED or place % WITNESSED_EVERY == 0 else None
            ran = run_seed(batch.part, seed, watch)
            busy_s += time.process_time() - begun
            events += ran.events
            counts += of_faults(batch.part, ran.faults)
            if ran.rule is not None:
                failing.append(Failing(batch.part, seed, ran.rule, ran.text))
            if place % TWICE_EVERY == 0:
                twice += 1
                difference = differs(batch.part, seed)
                if difference is not None:
                    failing.append(Failing(batch.part, seed, "determinism", difference))
    seen = counts + witness.counts
    return Came(batch.part, len(batch.seeds), events, seen, tuple(failing), twice, busy_s)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Values of the core hold no cycles: looking for some costs a quarter of the time, and finds none."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
