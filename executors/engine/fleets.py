"""The machine of a fleet of models, in the table, until a model is a deployment. It begins with a state."""

from typing import TypeAlias

from executors.engine.kinds import JournalLine, MachineKind
from rankcore.dispatching import FleetImage, FleetStep, fleet_of, fleet_step, image_of
from rankcore.dispatching.commands import Command
from rankcore.dispatching.events import Event
from rankcore.dispatching.state import Note

FINGERPRINT_EVERY = 1_000
"""Steps from one fingerprint to the next, which costs as much as the fleet is big."""

FleetEntry: TypeAlias = JournalLine[FleetImage | Event, Command, Note]


KIND = FLEET = MachineKind(
    name="fleet",
    describe="a fleet, which has models",
    beginning=FleetImage,
    event=Event,
    command=Command,
    note=Note,
    begin=lambda image: FleetStep(fleet_of(image), (), ()),
    step=fleet_step,
    resume=image_of,
    image=image_of,
    whose=None,
    is_over=lambda state: False,
    extent=lambda state: f"{len(state.models)} model(s)",
    fingerprint_every=lambda state: FINGERPRINT_EVERY,
)
