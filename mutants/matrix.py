"""Every mutant against every layer that is asked: some at a time, each in a copy of the tree."""

import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from mutants.answers import Answers
from mutants.asking import Answer, Asked, Outcome, load_what_layers_share
from mutants.layers import Layer
from mutants.mutant import Mutant, MutantError
from mutants.trees import Tree

POLL_S = 0.05
Told = Callable[[Mutant | None, Layer, Answer], None]


def ask_all(
    checkout: Path,
    mutants: Iterable[Mutant],
    layers: Iterable[Layer],
    answers: Answers,
    jobs: int,
    told: Told,
    idle: Callable[[], None],
) -> None:
    """Ask whatever has not been asked yet, and keep each answer as it comes.

    Args:
        checkout: Only read.
        mutants: Whom about.
        layers: Which, the cheapest first.
        answers: Where answers are kept.
        jobs: How many processes run at a time.
        told: Is called with each new answer; the mutant is None for a layer's answer about the honest core.
        idle: Is called many times a second.

    Raises:
        MutantError: A mutant does not fit the source, or a layer fails without any bug, or cannot be run.
    """
    mutants, layers = list(mutants), list(layers)
    honest: list[tuple[Mutant | None, Layer]] = [(None, layer) for layer in layers if answers.get(None, layer) is None]
    planted: list[tuple[Mutant | None, Layer]] = [
        (mutant, layer) for mutant in mutants for layer in layers if answers.get(mutant, layer) is None
    ]
    if not planted:
        return
    load_what_layers_share()
    with tempfile.TemporaryDirectory(prefix="rankcore-mutants-") as folder:
        trees = []
        for number in range(jobs):
            trees.append(Path(folder, str(number)))
            trees[-1].mkdir()
        copies = [Tree(checkout, each) for each in trees]
        for cells in (honest, planted):
            _ask(cells, copies, answers, told, idle)


def _ask(
    cells: list[tuple[Mutant | None, Layer]], copies: list[Tree], answers: Answers, told: Told, idle: Callable[[], None]
) -> None:
    """Who caught a mutant the last time is asked first, alone: mostly it does so again, in a second."""
    waiting = deque((mutant, layer, answers.last_caught_by(mutant, layer)) for mutant, layer in cells)
    free = list(copies)
    busy: list[tuple[Asked, Tree, Mutant | None, Layer]] = []
    try:
        while waiting or busy:
            while waiting and free:
                mutant, layer, only = waiting.popleft()
                tree = free.pop()
                tree.plant(mutant)
                busy.append((Asked(layer, tree.folder, honest=mutant is None, only=only), tree, mutant, layer))
            for entry in list(busy):
                asked, tree, mutant, layer = entry
                answer = asked.answer()
                if answer is not None:
                    busy.remove(entry)
                    free.append(tree)
                    if asked.only and answer.outcome is not Outcome.CAUGHT:
                        waiting.appendleft((mutant, layer, ""))
                        continue
                    _refuse_what_says_nothing(mutant, layer, answer)
                    answers.put(mutant, layer, answer)
                    told(mutant, layer, answer)
            idle()
            time.sleep(POLL_S)
    finally:
        for asked, _, _, _ in busy:
            asked.stop()


def _refuse_what_says_nothing(mutant: Mutant | None, layer: Layer, answer: Answer) -> None:
    whom = mutant.name if mutant is not None else "no mutant at all"
    last = next((line for line in reversed(answer.output.splitlines()) if line.strip()), "")
    if answer.outcome is Outcome.NOT_RUN:
        raise MutantError(f"layer {layer.name!r} could not be run with {whom}: {last}")
    if mutant is None and answer.outcome is Outcome.CAUGHT:
        raise MutantError(f"layer {layer.name!r} fails without any mutant ({answer.by or last}): mend that first")
