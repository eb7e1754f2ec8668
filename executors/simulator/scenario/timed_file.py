"""Which rows of a file count: the same keys for requests, rates and faults."""

from collections.abc import Mapping
from typing import Any

import attrs

from executors.simulator.fields import TrueOr, integer
from executors.simulator.load.table import REFUSE
from executors.simulator.load.where import check_where

SKIPPED_MAX = 1_000_000


@attrs.frozen(kw_only=True)
class TimedFile:
    """A file with a time in each row.

    Attributes:
        sort: Rows may come in any order, and are sorted; "refuse": one that comes late ends it.
        where: Which rows count: `{column: x}`, `[x, y]`, `{min: 1, max: 9}` or `{not: x}`.
        skip_bad: So many rows with something wrong in them are left out, and told; the next one ends it.
    """

    sort: bool | str = attrs.field(default=True, validator=TrueOr(REFUSE))
    where: Mapping[str, Any] = attrs.Factory(dict)
    skip_bad: int = attrs.field(default=0, validator=integer(0, SKIPPED_MAX))

    def __attrs_post_init__(self) -> None:
        check_where(self.where)
