"""How many replicas: a number, or a share of the target such as "25%"."""

import re
from typing import TypeAlias

Amount: TypeAlias = int | str

_SHARE = re.compile(r"(?:0|[1-9][0-9]?|100)%", re.ASCII)


def is_share(value: object) -> bool:
    """Whether it is a whole number of percent, "0%" to "100%"."""
    return type(value) is str and _SHARE.fullmatch(value) is not None


def rounded_down(amount: Amount, target: int) -> int:
    """So many of a target, and no more than the share says."""
    return amount if isinstance(amount, int) else target * int(amount[:-1]) // 100


def rounded_up(amount: Amount, target: int) -> int:
    """So many of a target, and no fewer than the share says."""
    return amount if isinstance(amount, int) else -(-target * int(amount[:-1]) // 100)
