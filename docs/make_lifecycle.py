"""Write docs/lifecycle.md from the tables in rankcore/lifecycle.py, drawn by `transitions`.

python docs/make_lifecycle.py           write the page
python docs/make_lifecycle.py --check   say whether it is current (exit status 1 if not)
"""

import sys
from enum import StrEnum
from pathlib import Path

from transitions.extensions import GraphMachine

from rankcore.lifecycle import DEPLOYMENT_ROWS, REPLICA_ROWS, trigger_name

PAGE = Path(__file__).with_name("lifecycle.md")

TEXT = """\
# Life cycles

Written from the tables in `rankcore/lifecycle.py` by `make docs`; a test checks that this page is current. News that has no
arrow here is late or repeated: it moves nothing, and leaves a note.

## A replica

Every live state also has the arrows *StopReplica* and *KillReplica* to DRAINING, and *ReplicaDied*, *ReplicaStopped*,
*ReplicaStartFailed*, *ReplicaMissing* and *NodeLost* to STOPPED; they are left out of the picture. In a static placement each
of those ends leads to FAILED instead while a bundle of the rank is lost (*EndedWithoutBundle*).

```mermaid
{replica}
```

## A deployment

Every state but DELETING and DELETED also has the arrow *DeleteRequested* to DELETING, and every serving one the arrows
*VersionChanged* to UPDATING and *StartsExhausted* to DEPLOY_FAILED; they are left out of the picture. So are those of a static
placement, from every such state: *PlacementChanged* to UPDATING, and *BundleMissed* to UNHEALTHY.

```mermaid
{deployment}
```
"""

EVERYWHERE = {
    "StopReplica",
    "KillReplica",
    "ReplicaDied",
    "ReplicaStopped",
    "ReplicaStartFailed",
    "ReplicaMissing",
    "NodeLost",
    "DeleteRequested",
    "StartsExhausted",
    "EndedWithoutBundle",
    "PlacementChanged",
    "BundleMissed",
}


class Drawing:
    """`transitions` draws a machine only for some model of it."""


def draw(rows: tuple[tuple[StrEnum, object, StrEnum], ...]) -> str:
    """A Mermaid state diagram of these rows, without the arrows that nearly every state has."""
    shown = [(s.value, trigger_name(t), d.value) for s, t, d in rows if trigger_name(t) not in EVERYWHERE]
    states = list(dict.fromkeys(state for source, _, dest in shown for state in (source, dest)))
    ends = [(s.value, trigger_name(t), d.value) for s, t, d in rows if d.value in ("STOPPED", "DELETED")]
    last = [("DRAINING", "ReplicaStopped", "STOPPED")] if any(s == "DRAINING" for s, _, _ in ends) else []
    last += [("DRAINING", "EndedWithoutBundle", "FAILED")] if last else []
    deleting = [("HEALTHY", "DeleteRequested", "DELETING")] if any(d == "DELETED" for _, _, d in ends) else []
    drawing = Drawing()
    GraphMachine(
        model=drawing,
        states=[*states, *(state for _, _, state in (*last, *deleting) if state not in states)],
        initial=states[0],
        auto_transitions=False,
        graph_engine="mermaid",
        transitions=[{"trigger": t, "source": s, "dest": d} for s, t, d in (*shown, *last, *deleting)],
    )
    lines = drawing.get_graph().source.splitlines()
    # Its title block is none that Mermaid reads, and its colours fix a light background: arrows are all that is needed.
    return "\n".join(line for line in lines if line.startswith(("stateDiagram", "  direction")) or "-->" in line)


def page() -> str:
    """The whole page."""
    return TEXT.format(replica=draw(REPLICA_ROWS), deployment=draw(DEPLOYMENT_ROWS))


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text() == page()
        print(f"{PAGE.name} is {'current' if current else 'out of date: run make docs'}")
        return 0 if current else 1
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
