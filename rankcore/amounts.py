"""How many replicas: a number, or a share of the target such as "25%" or "12.5%".

A share is rounded once it has been multiplied. What a fraction such as a third has lost in being written down is less than a
billionth of a replica, and counts for nothing: "33.333333333333%" of six is two, rounded down or up.
"""

import re
from typing import TypeAlias

Amount: TypeAlias = int | str

_SHARE = re.compile(r"(?:(?:0|[1-9][0-9]?)(?:\.[0-9]{0,19}[1-9])?|100)%", re.ASCII)
_SLACK = 10**9


def is_share(value: object) -> bool:
    """Whether it is a number of percent, "0%" to "100%"."""
    return type(value) is str and _SHARE.fullmatch(value) is not None


def rounded_down(amount: Amount, target: int) -> int:
    """So many of a target, and no more than the share says."""
    if isinstance(amount, int):
        return amount
    part, of = _fraction(amount)
    return (target * part * _SLACK + of) // (of * _SLACK)


def rounded_up(amount: Amount, target: int) -> int:
    """So many of a target, and no fewer than the share says."""
    if isinstance(amount, int):
        return amount
    part, of = _fraction(amount)
    return -((of - target * part * _SLACK) // (of * _SLACK))


def _fraction(share: str) -> tuple[int, int]:
    """Numerator and denominator of a share."""
    whole, _, decimals = share[:-1].partition(".")
    return int(whole + decimals), 100 * 10 ** len(decimals)
