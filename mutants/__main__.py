"""`python -m mutants`: plant bugs in copies of the core, one at a time, and see which layers of tests notice."""

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mutants.answers import Answers
from mutants.asking import Answer, Outcome
from mutants.groups import GROUPS, RANKS
from mutants.layers import Layer, layers
from mutants.matrix import ask_all
from mutants.mutant import Mutant, MutantError
from mutants.table import PAGE, publish, table

CHECKOUT = Path(__file__).parents[1]
KEPT = Path("build/mutants/results.json")
SURVIVORS, BAD_INPUT, INTERRUPTED = 1, 2, 130

T = TypeVar("T")

EPILOG = f"""\
examples:
  python -m mutants --list                        the bugs, and what each breaks
  python -m mutants                               ask the layers of the published table about all of them: half an hour
  python -m mutants --only the-clock-goes-back    one bug, and which test of each layer caught it
  python -m mutants --layer unit --jobs 2         one layer, two processes
  python -m mutants --models --publish            those of the planner, in a table of their own; --plane: of clusters
  python -m mutants --publish                     the same as the second, then rewrite the table in {PAGE}

Each layer stops at its first failure, in a process of its own, in a copy of the tree: the checkout is only read. Answers are
kept in {KEPT}; the same command goes on after Ctrl-C, and asks again only where the mutated file or the
layer have changed, or, for what it did not catch, the layer's tests; the test that caught it then is asked first, alone.
--fresh asks all anew.

exit status: 0 every mutant asked about is caught, 1 one survives all layers that were asked, 2 nothing could be asked,
130 interrupted. To add a mutant, add it to mutants/catalogue/, run it, and publish; one that survives is a missing test.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    asked = _parser().parse_args(arguments)
    # Ended from outside, it leaves no process and no copy behind either.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _run(asked)
    except MutantError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"error: {error.filename or 'a file'} cannot be used: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mutants",
        description="Plant bugs in copies of the core, one at a time, and see which layers of tests notice.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--list", action="store_true", help="show the mutants and the layers, and ask nobody")
    others = parser.add_mutually_exclusive_group()
    for name, group in GROUPS.items():
        if group.option:
            about = f"instead: the mutants of {group.about}, and their layers"
            others.add_argument(group.option, dest="group", action="store_const", const=name, help=about)
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutant; may be given several times")
    parser.add_argument(
        "--layer",
        metavar="NAME",
        action="append",
        help=f"this layer; else {', '.join(RANKS.layers)}, or their like of another group",
    )
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="so many processes at a time (1)")
    parser.add_argument("--fresh", action="store_true", help="ask again what has been asked before")
    parser.add_argument("--publish", action="store_true", help=f"rewrite the table in {PAGE}; needs all mutants and layers")
    return parser


def _run(asked: argparse.Namespace) -> int:
    known = layers(CHECKOUT)
    group = GROUPS[asked.group] if asked.group else RANKS
    mutants = _chosen(group.mutants, asked.only, "mutant", list(group.mutants))
    chosen = _chosen(known, asked.layer, "layer", list(group.layers))
    if asked.jobs < 1:
        raise MutantError(f"--jobs is {asked.jobs}, expected at least 1")
    if asked.publish and (asked.only or asked.layer):
        raise MutantError("--publish needs every mutant and every published layer: leave out --only and --layer")
    if asked.list:
        _list(mutants, list(known.values()))
        return 0
    answers = Answers(CHECKOUT, CHECKOUT / KEPT)
    if asked.fresh:
        answers.forget(mutants, chosen)
    _ask(mutants, chosen, answers, asked.jobs)
    _print(mutants, chosen, answers)
    survivors = [m.name for m in mutants if not any(_outcome(answers, m, layer) is Outcome.CAUGHT for layer in chosen)]
    if asked.publish:
        publish(CHECKOUT, table(mutants, chosen, answers), *group.markers)
        print(f"\nwritten to {PAGE}")
    if survivors:
        print(f"\n{len(survivors)} survive, each a missing test: {', '.join(survivors)}")
        return SURVIVORS
    return 0


def _chosen(known: Mapping[str, T], names: list[str] | None, what: str, otherwise: list[str]) -> list[T]:
    for name in names or ():
        if name not in known:
            raise MutantError(f"there is no {what} {name!r}; --list shows all, among them {', '.join(list(known)[:3])}")
    return [known[name] for name in dict.fromkeys(names or otherwise)]


def _list(mutants: Sequence[Mutant], known: Sequence[Layer]) -> None:
    for mutant in mutants:
        print(f"{mutant.rule:4} {mutant.name}: {mutant.bug} ({mutant.path})")
    print(f"\n{len(mutants)} mutants; layers:")
    for layer in known:
        print(f"  {layer.name:12} {layer.about}; at most {layer.budget_s:g} s of CPU time a mutant")


def _ask(mutants: Sequence[Mutant], chosen: Sequence[Layer], answers: Answers, jobs: int) -> None:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Forked processes must not inherit a thread that draws: the bar is drawn between two looks at them.
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal)
    left = sum(answers.get(mutant, layer) is None for mutant in mutants for layer in chosen)
    with progress:
        task = progress.add_task("asking", total=left)

        def told(mutant: Mutant | None, layer: Layer, answer: Answer) -> None:
            name = mutant.name if mutant is not None else "no mutant"
            if mutant is not None:
                progress.update(task, advance=1, description=name)
            if not console.is_terminal:
                by = f" by {answer.by}" if answer.by else ""
                print(f"{layer.name}: {name}: {answer.outcome}{by} ({answer.cpu_s:.1f} s)", file=sys.stderr, flush=True)

        ask_all(CHECKOUT, mutants, chosen, answers, jobs, told, progress.refresh)


def _print(mutants: Sequence[Mutant], chosen: Sequence[Layer], answers: Answers) -> None:
    for mutant in mutants:
        print(f"{mutant.rule:4} {mutant.name}: {mutant.bug}")
        for layer in chosen:
            answer = answers.get(mutant, layer)
            assert answer is not None, f"{layer.name} was not asked about {mutant.name}"
            print(f"       {layer.name:12} {answer.outcome}{f' by {answer.by}' if answer.by else ''}")


def _outcome(answers: Answers, mutant: Mutant, layer: Layer) -> Outcome | None:
    answer = answers.get(mutant, layer)
    return answer.outcome if answer is not None else None


if __name__ == "__main__":
    sys.exit(main())
