"""How often a simulated run looks at the promises. The figures are the same whatever it does: looking changes nothing."""

from enum import StrEnum


class Checking(StrEnum):
    """When promises are checked.

    Attributes:
        EACH: After every event, or every so-manyth where a check looks at many replicas.
        END: When a deployment's status changes, and at the end: which event broke one is not known.
        OFF: Never.
    """

    EACH = "each"
    END = "end"
    OFF = "off"
