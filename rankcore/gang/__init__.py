"""A gang of agents that meet in rounds and keep their ranks: `step(gang, event)` on a `RankTable`, with no clock or socket."""

from rankcore.gang.state import Believed, Gang, RefusalReason
from rankcore.gang.step import step
from rankcore.gang.words import (
    Admit,
    ClockAdvanced,
    CloseRequested,
    Command,
    Event,
    Joined,
    LeaseLapsed,
    Left,
    Park,
    Refuse,
    Restart,
)

__all__ = [
    "Admit",
    "Believed",
    "ClockAdvanced",
    "CloseRequested",
    "Command",
    "Event",
    "Gang",
    "Joined",
    "LeaseLapsed",
    "Left",
    "Park",
    "RefusalReason",
    "Refuse",
    "Restart",
    "step",
]
