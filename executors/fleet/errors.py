"""What a caller is told when there is no answer.

    RequestError                  it cannot be had: the reason is the text
    ├── RequestRejectedError      too many wait; come back after `retry_after_s`
    ├── RequestExpiredError       its deadline has passed
    └── FleetClosedError          the fleet was closed meanwhile

What a model itself raises is handed over as it is.
"""


class RequestError(Exception):
    """There is no answer; the text says why."""


class RequestRejectedError(RequestError):
    """Too many requests wait.

    Attributes:
        retry_after_s: When it is worth trying again.
    """

    def __init__(self, reason: str, retry_after_s: float) -> None:
        super().__init__(reason, retry_after_s)
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.reason}; try again in {self.retry_after_s:g} s"


class RequestExpiredError(RequestError):
    """The deadline of the request has passed."""


class FleetClosedError(RequestError):
    """The fleet was closed before there was an answer."""
