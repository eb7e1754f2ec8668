"""Faults and changes of a run with residency in words: `node n2 lost for 60s`, `chat scaled to 2`."""

import attrs

from executors.simulator.faults.words import (
    CHANGES,
    CONTROLLER_CRASHES,
    NODE_LOST,
    FaultWordsError,
    Forms,
    Happens,
    check_known,
    read_words,
    whole,
)
from executors.simulator.fields import FieldProblem
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.scenario.entries import id_of, shown
from executors.simulator.scenario.faults import LoadFailure, MemoryShrinks, NodeLoss, ReplicaCrash
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.weights import COLD
from executors.simulator.times import moment

FORMS: Forms = (
    *NODE_LOST,
    (
        "a replica of NAME crashes",
        r"an? replica of (?P<of>\S+) crashes",
        lambda at, words: ReplicaCrash(at=at, deployment=words["of"]),
    ),
    (
        "next 2 loads of NAME fail",
        r"next (?:(?P<count>[0-9]{1,6}) )?loads? of (?P<of>\S+) fails?",
        lambda at, words: LoadFailure(at=at, deployment=words["of"], count=int(words.get("count") or 1)),
    ),
    (
        "GPUs of N shrink to 60 GB",
        r"gpus of (?P<node>\S+) shrink to (?P<gb>[0-9]+(?:\.[0-9]+)?) ?gb",
        lambda at, words: MemoryShrinks(at=at, node=words["node"], gpu_gb=float(words["gb"])),
    ),
    *CONTROLLER_CRASHES,
    *CHANGES,
    (
        "NAME evicted [to WARM]",
        r"(?P<of>\S+) (?:is )?evicted(?: to (?P<to>warm|cold))?",
        lambda at, words: Change(at=at, deployment=words["of"], evict=(words.get("to") or COLD).upper()),
    ),
)
"""What can be said, how it is read, and what is made of it."""


def parse_residency_fault(text: str, at: float) -> Happens:
    """Read a fault or change; `at` is when it comes, unless its words end in `at TIME`, which is later.

    Raises:
        FaultWordsError: The words say none.
    """
    return read_words(FORMS, text, at)


def inject_with_residency(run: ResidencyRun, text: str, at: float) -> None:
    """Let what these words say happen in a run that has come to this time.

    Raises:
        FaultWordsError: The words say nothing, or the run has no such node or deployment, or nothing that could crash.
    """
    what = parse_residency_fault(text, at)
    scenario = run.world.scenario
    if isinstance(what, NodeLoss | MemoryShrinks):
        nodes = tuple(run.world.nodes)
        what = attrs.evolve(what, node=whole(what.node, nodes))
        check_known(text, "node", what.node, nodes)
    elif isinstance(what, ReplicaCrash | LoadFailure | Change):
        names = tuple(each.spec.name for each in scenario.deployments)
        what = attrs.evolve(what, deployment=shown(what.deployment or ""))
        check_known(text, "deployment", what.deployment, names)
    if isinstance(what, ReplicaCrash) and what.at.offset_s == at and run.world.workers.oldest(id_of(what.deployment)) is None:
        raise FaultWordsError(
            f"{text!r}: expected a deployment of which a replica is on GPUs at {moment(at, None)}, found {what.deployment}"
        )
    try:
        run.inject(what)
    except FieldProblem as error:
        raise FaultWordsError(f"{text!r}: {error}") from None
