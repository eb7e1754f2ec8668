"""Write docs/fidelity.md: how far simulated runs are from recorded ones, and these from each other.

python docs/make_fidelity.py           write the page
python docs/make_fidelity.py --check   say whether it is current (exit status 1 if not)
"""

import sys
from pathlib import Path

from executors.simulator.from_journal.calibration import read_recorded
from executors.simulator.from_journal.fidelity import (
    Fidelity,
    FigureError,
    compare_with_recorded,
    compare_with_simulated,
)

PAGE = Path(__file__).with_name("fidelity.md")
DATA = Path(__file__).parents[1] / "data" / "fidelity"
RUNS = {
    "steady": "three replicas, 20 calls a second",
    "burst": "three replicas, 10 calls a second, and 60 for four seconds",
    "crash-under-load": "three replicas, 20 calls a second; the process of rank 1 is killed",
    "downscale-with-compaction": "four replicas, 12 calls a second; scaled to two, of which rank 0 is stopped first",
    "rolling-update": "three replicas, 15 calls a second; all are replaced, one after the other",
}
SEEDS = 1
"""All durations are recorded: nothing is drawn, and another seed gives the same."""
DRAWN = 5
"""So many runs draw them."""

HEAD = """\
# How far a simulated run is from a real one

A scenario says what would happen. Whether that is what happens can be tried: record a run on Ray, have it simulated with the
same calls, faults and changes at the same times, and lay both beside each other.

```bash
rankcore record my_package.models:app --requests trace.csv --set 'columns={time: at, service: service}' -o run.jsonl
rankcore calibrate run.jsonl -o scenario.yaml
rankcore fidelity run.jsonl --runs 20 --against second.jsonl
```

`record` writes the controller's journal and, beside it, a request file with what became of each call of its process: when it
came, when it was sent to which replica, when it was answered. The file is chained as a journal is, so that a line that is
missing, moved, repeated or changed is found, and no call ever waits for it: what cannot be written in time is dropped and
counted. Both files have the id of their run: calls of another one are refused. Older releases wrote none; then it is looked
whether the journal has started the replicas that the calls went to. Where an answer says how many tokens the call had
(`prompt_tokens` and `output_tokens`, or OpenAI's `usage`), so does the request file.

`calibrate` makes a scenario of both; of fewer than five samples of a duration it takes the mean, and says so, and what was not
measured stands under `# not measured`. Tokens stand beside the calls, for an engine in the place of times that were recorded
(`columns: {time: at, prompt: prompt, output: output}`). `fidelity` simulates that with each replica taking as long for each
thing as it took then. It exits with 1 where the history of ranks differs, or a percentile is further off than `--tolerance`.

## Five runs on Ray

Made by `make fidelity` on a local Ray cluster, kept in [data/fidelity](../data/fidelity); this table is written of them by
`make docs`, and a test checks that it is current. Each was recorded twice: "again" is how far the second recording is from the
first, the noise that no simulation can be below. "Drawn": the mean of five simulations in which a replica takes any of the
times that were measured, or their mean where they are few, as in the scenario that `calibrate` writes.

They are older than ids of runs, of which the commands warn, and than two fields that states of a cluster have since:
`rankcore replay` finds another fingerprint in their second line, and that commands and notes agree in all of them.
"""

RANKS = "| run | rank changes | history simulated | apart, ms | history again | apart, ms |\n|---|---:|---|---:|---|---:|"
FIGURES = "| run | figure | recorded, ms | simulated | error | drawn | error | again | error |\n|---|---|" + "---:|" * 7

TAIL = """\
History: the sequence of (rank, n-th replica, state), as the core knew it; changes that lie nearer than two messages' ways and
the clocks' error may swap. Apart: the largest difference between the times of the same change. Wait: until the call is sent to
the replica that answers it. Errors are relative to the recording; below 10 ms in both there is none to speak of, and it is 0.
Percentiles are of all calls: one that was lost with its replica takes for ever.

No two recordings have one history: which replica's process comes up first, and so gets which rank, is decided by nobody. The
simulation is told how long each start took, and comes to the same ranks. For the same reason "again" is what to expect at best
where a scenario is to say what *another* run will be like.

## What this says, and what it does not

Taken from the recording are durations of starts, initialisations, reconfigurations and ends, by replica, and how long a
replica had each call. What is simulated, and so is tried here, is everything that follows from these: the core's decisions and
their order, which replica gets which call, how long calls wait, what is lost in a crash, when compaction and an update take
their steps.

Not modelled, and so not to be read from a scenario:

- **That replicas slow each other down.** A call takes a replica as long as it was recorded or drawn, however many share its
  processor, its GPU or its network. [Engines](simulating.md#engines-under-load) model batching within one replica.
- **Other load, another size.** A recording says how long things took under the load that there was. Scaled up, starts compete
  for image registries, disks and weights, of which nothing here knows.
- **What a call costs on its way.** The way of a call is part of the time that its replica has it; serialisation of large
  arguments, Ray's object store and HTTP proxies have no times of their own.
- **How routers learn.** Each calling process has a router with a part of what replicas grant; a simulated deployment has one
  router that knows it all. With many callers and few places, waits are less even than in the simulation.
- **When a failure is noticed.** A crash is put where the controller heard of it: how long Ray took to tell is not simulated.
- **Calls of other processes.** `record` writes down the calls of its own process: those of HTTP proxies and of replicas that
  call each other are not in its file.
- **Autoscaling in a recording.** Targets that an autoscaler chose are repeated as changes at their times, and not decided anew.
- **Weights that may be COLD.** A recording with them is refused: a journal does not say how long weights move.
"""


def page() -> str:
    """The whole page."""
    ranks, figures = [RANKS], [FIGURES]
    for name, about in RUNS.items():
        world, other = (read_recorded(DATA / f"{name}{suffix}.jsonl.gz") for suffix in ("", "-again"))
        found, noise = compare_with_simulated(world, SEEDS), compare_with_recorded(world, other)
        ranks.append(f"| {name}: {about} | {found.history.changes} | {_history(found)} | {_history(noise)} |")
        drawn = compare_with_simulated(world, DRAWN, drawn=True)
        figures += [_row(name, *each) for each in zip(found.figures, drawn.figures, noise.figures, strict=True)]
    return "\n".join([HEAD, *ranks, "", *figures, "", TAIL])


def _history(found: Fidelity) -> str:
    history = found.history
    if history.differs_at is not None:
        return f"differs from {history.differs_at:.1f} s on | -"
    swapped = f", {history.swapped} swapped" if history.swapped else ""
    return f"equal{swapped} | {max(history.apart_s) * 1000:,.1f}"


def _row(name: str, found: FigureError, *others: FigureError) -> str:
    beside = [cell for each in (found, *others) for cell in (_ms(each.found.mean), _share(each.error))]
    cells = [_ms(found.recorded), *beside]
    return f"| {name} | {found.share} {found.figure.removesuffix('_s')} | {' | '.join(cells)} |"


def _ms(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds * 1000:,.1f}"


def _share(error: float | None) -> str:
    return "-" if error is None else f"{error:.1%}"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
