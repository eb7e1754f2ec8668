"""What a scenario states with `> expect`: it has to hold also when what came was accepted without being read."""

from typing import Any

from tests.scripted import Deployment


class Watch:
    """What has been so since a scenario began, or since `> from here`."""

    def __init__(self, world: Deployment) -> None:
        self._world = world
        self._since = len(world.commands)
        self._serving_min, self._live_max = len(_serving(world)), len(world.processes)

    def look(self) -> None:
        """After each step."""
        self._serving_min = min(self._serving_min, len(_serving(self._world)))
        self._live_max = max(self._live_max, len(self._world.processes))

    def expect(self, positional: list[str], named: dict[str, Any]) -> None:
        """One line of a scenario; what does not hold is an AssertionError."""
        what, *about = positional or [""]
        match what:
            case "rank":
                self._equal(about, {who: str(rank) for who, rank in self._world.ranks.items()})
            case "ranks":
                held = self._world.state.ranks.items()
                self._equal(about, {who: f"{each.rank}/{each.node_rank}/{each.local_rank}" for who, each in held})
            case "version":
                self._equal(about, {who: replica.version for who, replica in self._world.state.replicas.items()})
            case "never":
                found = self._commands(about)
                assert not found, f"expected never, and came: {found}"
            case "once":
                found = self._commands(about)
                assert len(found) == 1, f"expected once, and came {len(found)} times: {found}"
            case _:
                assert not positional, f"expect what? {positional}"
        for key, expected in named.items():
            found = self._figure(key)
            reached = {"serving_at_least": found >= expected, "live_at_most": found <= expected}.get(key, found == expected)
            assert reached, f"expected {key}={expected}, found {found}"

    def _equal(self, about: list[str], found: dict[str, str]) -> None:
        for word in about:
            who, _, expected = word.rpartition("=")
            for each in found if who == "*" else [who]:
                assert found.get(each) == expected, f"expected {word}, found {found}"

    def _commands(self, about: list[str]) -> list[Any]:
        whom = {word for word in about if "#" in word}
        kinds = set(about) - whom
        assert kinds, "expect never, or once, which command?"
        commands = self._world.commands[self._since :]
        of_kind = [command for command in commands if type(command).__name__ in kinds]
        return [command for command in of_kind if not whom or getattr(command, "replica_id", None) in whom]

    def _figure(self, key: str) -> Any:
        match key:
            case "status":
                return str(self._world.status)
            case "routes":
                return tuple(sorted(self._world.routes))
            case "serving_at_least":
                return self._serving_min
            case "live_at_most":
                return self._live_max
            case _:
                raise AssertionError(f"no such expectation: {key}")


def _serving(world: Deployment) -> list[str]:
    """Who can take requests, as it is out there and whatever the book says."""
    return [who for who, process in world.processes.items() if process.ready and not process.draining]
