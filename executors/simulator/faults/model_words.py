"""Faults and changes of a run of models in words: `node n2 lost for 60s`, `a replica of chat crashes`, `chat scaled to 2`."""

from typing import TypeAlias

import attrs

from executors.simulator.faults.words import LASTS, FaultWordsError, Forms, check_known, lasts, read_words, whole
from executors.simulator.fields import FieldProblem
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.scenario.faults import NodeLoss
from executors.simulator.scenario.residency.happens import (
    COLD,
    LoadFailure,
    MemoryShrinks,
    ModelChange,
    ModelCrash,
    ModelFault,
)
from executors.simulator.times import moment

Happens: TypeAlias = ModelFault | ModelChange

FORMS: Forms[Happens] = (
    (
        "node N lost [for TIME]",
        rf"node (?P<node>\S+) (?:is )?lost{LASTS}",
        lambda at, words: NodeLoss(at=at, node=words["node"], back_after_s=lasts(words)),
    ),
    (
        "a replica of MODEL crashes",
        r"an? replica of (?P<of>\S+) crashes",
        lambda at, words: ModelCrash(at=at, model=words["of"]),
    ),
    (
        "next 2 loads of MODEL fail",
        r"next (?:(?P<count>[0-9]{1,6}) )?loads? of (?P<of>\S+) fails?",
        lambda at, words: LoadFailure(at=at, model=words["of"], count=int(words.get("count") or 1)),
    ),
    (
        "GPUs of N shrink to 60 GB",
        r"gpus of (?P<node>\S+) shrink to (?P<gb>[0-9]+(?:\.[0-9]+)?) ?gb",
        lambda at, words: MemoryShrinks(at=at, node=words["node"], gpu_gb=float(words["gb"])),
    ),
    (
        "MODEL scaled to 2",
        r"(?P<of>\S+) (?:is )?scaled to (?P<to>[0-9]{1,9})",
        lambda at, words: ModelChange(at=at, model=words["of"], replicas=int(words["to"])),
    ),
    (
        "MODEL evicted [to WARM]",
        r"(?P<of>\S+) (?:is )?evicted(?: to (?P<to>warm|cold))?",
        lambda at, words: ModelChange(at=at, model=words["of"], evict=(words.get("to") or COLD).upper()),
    ),
)
"""What can be said, how it is read, and what is made of it."""


def parse_model_fault(text: str, at: float) -> Happens:
    """Read a fault or change; `at` is when it comes, unless its words end in `at TIME`, which is later.

    Raises:
        FaultWordsError: The words say none.
    """
    return read_words(FORMS, text, at)


def inject_in_models(run: ResidencyRun, text: str, at: float) -> None:
    """Let what these words say happen in a run that has come to this time.

    Raises:
        FaultWordsError: The words say nothing, or the run has no such node or model, or nothing that could crash.
    """
    what = parse_model_fault(text, at)
    scenario = run.world.scenario
    if isinstance(what, NodeLoss | MemoryShrinks):
        what = attrs.evolve(what, node=whole(what.node, scenario.node_ids))
        check_known(text, "node", what.node, scenario.node_ids)
    else:
        check_known(text, "model", what.model, scenario.model_names)
    if isinstance(what, ModelCrash) and what.at.offset_s == at and run.world.oldest(what.model) is None:
        raise FaultWordsError(
            f"{text!r}: expected a model of which a replica is on GPUs at {moment(at, None)}, found {what.model}"
        )
    try:
        run.inject(what)
    except FieldProblem as error:
        raise FaultWordsError(f"{text!r}: {error}") from None
