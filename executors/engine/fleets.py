"""The machine of a fleet of models, in the table, until a model is a deployment. It begins with a state."""

from typing import TypeAlias

from executors.engine.kinds import JournalLine, MachineKind
from rankcore.dispatching import FleetImage, FleetState, FleetStep, fleet_of, fleet_step, image_of
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.dispatching.state import Note

FINGERPRINT_EVERY = 1_000
"""Steps from one fingerprint to the next, which costs as much as the fleet is big."""

FleetEntry: TypeAlias = JournalLine[FleetImage | Event, Command, Note]


def _begin(image: FleetImage) -> FleetStep:
    return FleetStep(fleet_of(image), (), ())


def _never(_: FleetState) -> bool:
    return False


def _fingerprint_every(_: FleetState) -> int:
    return FINGERPRINT_EVERY


KIND = FLEET = MachineKind(
    name="fleet",
    describe="a fleet, which has models",
    beginning=FleetImage,
    event=Event,
    command=Command,
    note=Note,
    begin=_begin,
    step=fleet_step,
    resume=image_of,
    image=image_of,
    whose=None,
    is_over=_never,
    fingerprint_every=_fingerprint_every,
)
