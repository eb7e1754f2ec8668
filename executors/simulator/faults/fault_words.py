"""Faults and changes in words: `node n2 lost for 60s`, `rank 3 of llm crashes`, `llm scaled to 4`."""

import json
from collections.abc import Callable
from typing import Any

import attrs

from executors.deployment_ids import meant_by
from executors.simulator.faults.words import (
    CHANGES,
    CONTROLLER_CRASHES,
    LASTS,
    NODE_LOST,
    FaultWordsError,
    Forms,
    Happens,
    Words,
    check_known,
    lasts,
    read_words,
    whole,
)
from executors.simulator.fields import FieldProblem
from executors.simulator.run import Run
from executors.simulator.scenario.faults import (
    BundleLoss,
    ConfigFails,
    CrashAfterReady,
    NodeCordon,
    NodeDrain,
    NodePartition,
    NodePreemption,
    ReplicaCrash,
    ReplicaHang,
    ReplicaSlow,
    ReplicaUnready,
    SlowStart,
    StartFailure,
)
from executors.simulator.scenario.model import Change
from executors.simulator.scenario.moments import Moment
from executors.simulator.times import moment, parse_seconds
from rankcore.errors import InvalidSpecError


def _deployment_of(replica_id: str) -> str:
    name, sign, _ = replica_id.rpartition("#")
    if not sign:
        raise ValueError(f"expected a replica id such as llm#1.3, found {replica_id!r}")
    return name


def _replica(cls: Any) -> Callable[[Moment, Words], Happens]:
    def make(at: Moment, words: Words) -> Happens:
        so_long = {"for_s": lasts(words)} if cls is not ReplicaCrash else {}
        if "factor" in words:
            so_long["factor"] = float(words["factor"])
        if words.get("replica"):
            replica_id = words["replica"]
            made: Happens = cls(at=at, deployment=_deployment_of(replica_id), replica_id=replica_id, **so_long)
        else:
            rank = int(words["rank"]) if words.get("rank") else None
            made = cls(at=at, deployment=words["of"], rank=rank, **so_long)
        return made

    return make


def _user_config(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"expected a user_config in JSON, found {text}") from None


_WHO = r"(?:replica (?P<replica>\S+)|rank (?P<rank>[0-9]{1,9}) of (?P<of>\S+)|an? replica of (?P<of_any>\S+))"
_STARTS = r"(?:starts (?:of (?P<of>\S+)|on node (?P<node>\S+)))"

FORMS: Forms = (
    *NODE_LOST,
    (
        "node N partitioned [for TIME]",
        rf"node (?P<node>\S+) (?:is )?partitioned{LASTS}",
        lambda at, words: NodePartition(at=at, node=words["node"], for_s=lasts(words)),
    ),
    (
        "bundle 3 of GROUP lost [for TIME]",
        rf"bundles? (?P<bundles>[0-9]{{1,6}}(?:, ?[0-9]{{1,6}})*) of (?P<group>\S+) (?:(?:is|are) )?lost{LASTS}",
        lambda at, words: BundleLoss(
            at=at,
            group=words["group"],
            bundles=tuple(int(bundle) for bundle in words["bundles"].split(",")),
            back_after_s=lasts(words),
        ),
    ),
    (
        "placement group GROUP removed",
        r"placement group (?P<group>\S+) (?:is )?removed",
        lambda at, words: BundleLoss(at=at, group=words["group"]),
    ),
    ("replica ID crashes", rf"{_WHO} crashes", _replica(ReplicaCrash)),
    ("rank K of NAME hangs [for TIME]", rf"{_WHO} hangs{LASTS}", _replica(ReplicaHang)),
    (
        "rank K of NAME 3 times slower [for TIME]",
        rf"{_WHO} (?:is )?(?P<factor>[0-9]+(?:\.[0-9]+)?) times slower{LASTS}",
        _replica(ReplicaSlow),
    ),
    ("rank K of NAME is unready [for TIME]", rf"{_WHO} (?:is )?unready{LASTS}", _replica(ReplicaUnready)),
    (
        "starts of NAME fail for TIME",
        r"starts of (?P<of>\S+) fail for (?P<for>\S+)",
        lambda at, words: StartFailure(at=at, deployment=words["of"], for_s=lasts(words)),
    ),
    (
        "next 2 starts of NAME fail",
        r"next (?:(?P<count>[0-9]{1,6}) )?starts? of (?P<of>\S+) fails?",
        lambda at, words: StartFailure(at=at, deployment=words["of"], count=int(words.get("count") or 1)),
    ),
    (
        "starts of NAME 5 times slower [for TIME]",
        rf"{_STARTS} (?P<factor>[0-9]+(?:\.[0-9]+)?) times slower{LASTS}",
        lambda at, words: SlowStart(
            at=at, deployment=words.get("of"), node=words.get("node"), factor=float(words["factor"]), for_s=lasts(words)
        ),
    ),
    (
        "node N cordoned [for TIME]",
        rf"node (?P<node>\S+) (?:is )?cordoned{LASTS}",
        lambda at, words: NodeCordon(at=at, node=words["node"], for_s=lasts(words)),
    ),
    (
        "node N drained [within TIME] [for TIME]",
        rf"node (?P<node>\S+) (?:is )?drained(?: within (?P<within>\S+))?{LASTS}",
        lambda at, words: NodeDrain(
            at=at,
            node=words["node"],
            deadline_s=parse_seconds(words["within"]) if "within" in words else None,
            for_s=lasts(words),
        ),
    ),
    (
        "node N preempted in TIME [for TIME]",
        rf"node (?P<node>\S+) (?:is )?preempted in (?P<notice>\S+?){LASTS}",
        lambda at, words: NodePreemption(
            at=at, node=words["node"], notice_s=parse_seconds(words["notice"]), back_after_s=lasts(words)
        ),
    ),
    (
        "replicas of NAME [of version V] die TIME after ready [for TIME]",
        rf"replicas of (?P<of>\S+)(?: of version (?P<version>\S+))? die (?P<after>\S+) after ready{LASTS}",
        lambda at, words: CrashAfterReady(
            at=at,
            deployment=words["of"],
            version=words.get("version"),
            after_s=parse_seconds(words["after"]),
            for_s=lasts(words),
        ),
    ),
    (
        "NAME refuses user_config JSON [for TIME]",
        rf"(?P<of>\S+) refuses user_config (?P<json>.+?){LASTS}",
        lambda at, words: ConfigFails(
            at=at, deployment=words["of"], user_config=_user_config(words["json"]), for_s=lasts(words)
        ),
    ),
    *CONTROLLER_CRASHES,
    *CHANGES,
    (
        "NAME updated to VERSION from rank K on",
        r"(?P<of>\S+) (?:is )?updated to (?P<to>\S+) from rank (?P<from>[0-9]{1,9}) on",
        lambda at, words: Change(
            at=at, deployment=words["of"], fields={"version": words["to"], "partition": int(words["from"])}
        ),
    ),
    (
        "NAME given user_config JSON",
        r"(?P<of>\S+) (?:is )?given user_config (?P<json>.+)",
        lambda at, words: Change(at=at, deployment=words["of"], fields={"user_config": _user_config(words["json"])}),
    ),
    (
        "NAME restarted",
        r"(?P<of>\S+) (?:is )?restarted",
        lambda at, words: Change(
            at=at, deployment=words["of"], fields={"restart_token": f"restarted at {moment(at.offset_s, None)}"}
        ),
    ),
)
"""What can be said, how it is read, and what is made of it."""


def parse_fault(text: str, at: float) -> Happens:
    """Read a fault or change; `at` is when it comes, unless its words end in `at TIME`, which is later.

    Raises:
        FaultWordsError: The words say none.
    """
    return read_words(FORMS, text, at)


def inject(run: Run, text: str, at: float) -> None:
    """Let what these words say happen in a run that has come to this time.

    Raises:
        FaultWordsError: The words say nothing, or the run has no such node, deployment, rank or replica.
    """
    what = parse_fault(text, at)
    node, name = getattr(what, "node", None), getattr(what, "deployment", None)
    scenario = run.world.scenario
    if node is not None:
        node = whole(node, scenario.node_gpus)
        check_known(text, "node", node, scenario.node_gpus)
        what = attrs.evolve(what, node=node)  # type: ignore[arg-type]
    if name is not None:
        found = meant_by(name, run.world.deployments)
        if len(found) > 1:
            raise FaultWordsError(f"{text!r}: expected one of {', '.join(found)}, found {name}")
        check_known(text, "deployment", found[0] if found else name, run.world.deployments)
        what = attrs.evolve(what, deployment=found[0])  # type: ignore[arg-type]
    if isinstance(what, BundleLoss):
        check_known(text, "placement group", what.group, scenario.bundle_counts)
    if isinstance(what, (ReplicaCrash, ReplicaHang, ReplicaSlow, ReplicaUnready)) and what.at.offset_s == at:
        port = run.world.deployments[what.deployment]
        if what.replica_id is not None:
            check_known(text, "live replica", what.replica_id, port.processes)
        elif what.rank is not None and port.beliefs.believer_of(what.rank) is None:
            raise FaultWordsError(f"{text!r}: expected a rank that a replica has at {moment(at, None)}, found {what.rank}")
    try:
        run.inject(what)
    except (FieldProblem, InvalidSpecError) as error:
        raise FaultWordsError(f"{text!r}: {error}") from None


__all__ = ["FORMS", "FaultWordsError", "Happens", "inject", "parse_fault"]
