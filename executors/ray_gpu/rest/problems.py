"""What a request is answered where it cannot be had: a status, and one line that names the field."""

import json

import attrs

from executors.loading import LoadError
from executors.ray_gpu import errors
from executors.simulator.scenario.errors import ScenarioError
from rankcore.errors import RankcoreError


@attrs.frozen
class Problem(Exception):
    """Why a request is refused.

    Attributes:
        status: Of HTTP.
        text: One line.
        field: Of the body, the query or the headers, that is wrong; None: none of them is.
        headers: Of the answer.
    """

    status: int
    text: str
    field: str | None = None
    headers: dict[str, str] = attrs.Factory(dict)

    def body(self) -> bytes:
        """As JSON; Ray Serve's clients look for `error`."""
        found = {"error": " ".join(self.text.split())}
        return json.dumps(found if self.field is None else {**found, "field": self.field}).encode()


STATUSES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UnknownNameError, 404),
    (errors.NameInUseError, 409),
    (errors.NotRunningError, 503),
    (RankcoreError, 422),
    (LoadError, 422),
    (ScenarioError, 422),
    (TimeoutError, 504),
)
"""The first that fits."""


def problem_of(error: BaseException) -> Problem | None:
    """What to answer where something was raised; None: that was not on purpose."""
    if isinstance(error, Problem):
        return error
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), None)
    if status is None:
        return None
    headers = {"retry-after": "1"} if status == 503 else {}
    return Problem(status, str(error), getattr(error, "path", None), headers)
