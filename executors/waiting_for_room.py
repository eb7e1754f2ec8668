"""How often an executor says that a replica waits for room (`ReplicaPending`)."""


def is_said(asked_again: int) -> bool:
    """Whether to say so when the core asks for it once more, for the first, second, fourth, eighth, ... time.

    The core asks every `repeat_period_s`, of everybody who waits: a cluster that is full for long would talk of little else.
    """
    return asked_again & (asked_again - 1) == 0
