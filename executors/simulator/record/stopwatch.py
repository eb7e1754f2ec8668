"""How long something has been so, in all."""

import attrs


@attrs.define
class Stopwatch:
    """How long something has been so, in all.

    Attributes:
        total_s: Of the times that are over.
    """

    total_s: float = 0.0
    _since: float | None = None

    def show(self, now: float, is_so: bool) -> None:
        """It is so, or not, from now on."""
        if not is_so and self._since is not None:
            self.total_s += now - self._since
            self._since = None
        elif is_so and self._since is None:
            self._since = now
