"""What an executor says of the room that a replica waits for (`ReplicaPending`), and how often."""

import attrs


@attrs.define
class NewsOfRoom:
    """What was said of one start so far.

    That it finds no room is said when it is found so, then when it was found so for the second, fourth, eighth, ... time: the
    core asks every `repeat_period_s`, of everybody who waits, and a cluster that is full for long would talk of little else.
    That there is room after all is said as often. Where there was room from the beginning nothing is said: the place is coming.

    Attributes:
        no_room: What was found last; None: nobody has looked yet.
        was_said: Whether it was ever said that there is none.
    """

    no_room: bool | None = None
    was_said: bool = False
    _times: int = 0

    def is_to_be_said(self, no_room: bool) -> bool:
        """Whether to say what was found now, as the core has asked for the start once more."""
        if no_room is not self.no_room:
            self.no_room, self._times = no_room, 0
        self._times += 1
        self.was_said = self.was_said or no_room
        return self.was_said and self._times & (self._times - 1) == 0
