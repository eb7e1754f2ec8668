"""Everything rankcore raises on purpose.

    RankcoreError
    ├── InvalidSpecError          a DeploymentSpec field is not what it may be
    ├── PlacementError            a StaticPlacement does not fit its placement group, or itself
    ├── InvalidEventError         an event, or an argument of deploy/recover, is malformed
    │   └── UnknownDeploymentError    it speaks of another deployment
    ├── RankError                 a rank table was asked for something that cannot be
    │   ├── DuplicateRankError        two replicas claim one rank
    │   └── UnknownReplicaError       a replica that the table does not know
    ├── RankNotAssignedError      user code asks for its rank while it is prepared without one
    ├── PolicyError               an autoscaling policy raised, or returned no number of replicas
    ├── ClusterDivergedError      the parts of a machine handed events to each other without end
    └── CodecError                a text is not a value that this version wrote

A caller's mistake raises one of these and leaves every state as it was. Late or repeated news from the world is never an
error: `step` answers it with a note. Any other exception that leaves `rankcore` is a bug of ours.
"""


class RankcoreError(Exception):
    """Base class: the text says which field, what was found and what is allowed."""


class FieldError(RankcoreError):
    """A value that its field does not allow.

    Attributes:
        field: Dotted name of the field, such as `SpecChanged.spec.target_replicas`.
        found: The offending value itself.
        allowed: What the field takes, in words.
    """

    def __init__(self, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field} must be {allowed}, got {shown(found)}")
        self.field = field
        self.found = found
        self.allowed = allowed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.field, self.found, self.allowed)


class InvalidSpecError(FieldError):
    """A `DeploymentSpec` field is not what it may be."""


class PlacementError(RankcoreError):
    """A `StaticPlacement` does not fit its placement group, or itself.

    Attributes:
        rank: Whose bundles they are; None: it is about the group as a whole.
        bundle: The offending bundle; None: it is about the rank as a whole.
        group: The name of the placement group; None: it was given none.
    """

    def __init__(self, text: str, *, rank: object = None, bundle: object = None, group: str | None = None) -> None:
        super().__init__(text)
        self.rank = rank
        self.bundle = bundle
        self.group = group

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, {"rank": self.rank, "bundle": self.bundle, "group": self.group}


class InvalidEventError(FieldError):
    """An event, or an argument of `deploy` or `recover`, is malformed."""


class UnknownDeploymentError(InvalidEventError):
    """An event speaks of a deployment that this state is not about."""


class RankError(RankcoreError):
    """A rank table was asked for something that cannot be."""


class DuplicateRankError(RankError):
    """Two replicas claim one rank. Nothing was changed."""


class UnknownReplicaError(RankError):
    """The table does not know this replica. Nothing was changed."""


class RankNotAssignedError(RankcoreError):
    """User code asked for its rank before it has one: with `hand_over` it starts while its predecessor still has it."""

    def __init__(self, replica_id: str) -> None:
        super().__init__(
            f"{replica_id} has no rank yet: with hand_over='prepared' or 'overlap' user code starts while its predecessor has "
            "it. Ask in reconfigure(self, user_config, rank) or in a call, use rank_or_none, or leave hand_over at 'none'"
        )
        self.replica_id = replica_id

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.replica_id,)


class PolicyError(RankcoreError):
    """A user's autoscaling policy raised, or returned something else than a number of replicas.

    Attributes:
        policy: Its name.
    """

    def __init__(self, policy: str, problem: str) -> None:
        super().__init__(f"the autoscaling policy {policy} {problem if len(problem) <= 200 else problem[:197] + '...'}")
        self.policy = policy
        self._problem = problem

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.policy, self._problem)


class ClusterDivergedError(RankcoreError):
    """The parts of a machine handed each other more events than a step may have. The state is as it was.

    Attributes:
        part: The one that got most of them.
        events: How many were handed on.
    """

    def __init__(self, part: object, events: int) -> None:
        super().__init__(f"a step handed on {events} events without an end, most of them to {shown(part)}")
        self.part = part
        self.events = events

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.part, self.events)


class PlannerFailedError(RankcoreError):
    """The planner of weights has raised: a bug. The step is discarded; the controller is to end, and its successor learns the
    books anew (`rankcore.cluster.planner`).
    """


class CodecError(RankcoreError):
    """A text is not a value that this version of rankcore wrote."""


def shown(found: object) -> str:
    """A value for the text of an error, cut to 80 characters; one that has no text, such as 10**5000, by its kind."""
    kind = type(found)
    try:
        text = repr(found)
    except Exception:  # an object's own __repr__ may raise anything
        return f"a value of type {kind.__name__} that cannot be shown"
    if isinstance(found, (str, int, float)) and kind not in (str, int, float, bool):
        text = f"{text} of type {kind.__module__}.{kind.__qualname__}"
    return text if len(text) <= 80 else text[:77] + "..."
