"""Systems that are measured in turns, each in a process of its own with a fresh cluster.

What comes is shown as it comes, and kept when the whole is broken off.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from tempfile import TemporaryFile

from bench.measure import print_table

CHILD_S = 900.0
"""So long a round of one system may take."""
ENDING_S = 30.0
"""So long it may take to end once it is told to."""
MARK = "RESULT "

Found = dict[str, list[dict[str, float]]]
"""Of each system, and each of its rounds: figures by name."""


def tell(figures: Mapping[str, float]) -> None:
    """In a child: hand these to whoever has begun it."""
    print(MARK + json.dumps(figures), flush=True)


def take_turns(
    module: str, systems: Sequence[str], rounds: int, titles: Mapping[str, str], arguments: Sequence[str] = ()
) -> tuple[Found, bool]:
    """Run `python -m module --child SYSTEM` for each system in turn, in every other round the other way round.

    Args:
        titles: What each figure is called, by which it is shown when it has come; the same as `show` takes.
        arguments: More of the children's.

    Returns:
        What was measured, and whether it was broken off with Ctrl-C: then it is what there was by then.

    Raises:
        RuntimeError: A child has failed; what was measured before is shown first.
    """
    found: Found = {name: [] for name in systems}
    names = {key: title for title, key in titles.items()}
    try:
        for turn in range(rounds):
            for name in systems if turn % 2 == 0 else reversed(systems):
                print(f"round {turn + 1} of {rounds}: {name} ...", file=sys.stderr, flush=True)
                found[name].append({})
                _run(module, name, arguments, found[name][-1], names)
    except KeyboardInterrupt:
        print("broken off; until then there was:", file=sys.stderr, flush=True)
        return found, True
    except RuntimeError:
        show(found, titles)
        raise
    return found, False


def _run(module: str, name: str, arguments: Sequence[str], into: dict[str, float], names: Mapping[str, str]) -> None:
    """One round of one system. Ctrl-C reaches the child by us alone: it has to end its cluster first."""
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": str(int("throughput" in name))}
    command = [sys.executable, "-m", module, "--child", name, *arguments]
    with TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        assert child.stdout is not None, "it is a pipe"
        said: list[str] = []
        reader = threading.Thread(target=_read, args=(child.stdout, into, names, said), daemon=True)
        reader.start()
        try:
            child.wait(CHILD_S)
        except subprocess.TimeoutExpired:
            said.append(f"it was ended after {CHILD_S:.0f} s")
        finally:
            _end(child)
            reader.join(ENDING_S)  # what it has said last
        if child.returncode:
            errors.seek(0)
            raise RuntimeError(f"{name} failed:\n{''.join(said)[-2000:]}\n{errors.read()[-4000:]}")


def _read(lines: Iterable[str], into: dict[str, float], names: Mapping[str, str], said: list[str]) -> None:
    for line in lines:
        if not line.startswith(MARK):
            said.append(line)
            continue
        figures = json.loads(line.removeprefix(MARK))
        into |= figures
        for key, value in figures.items():
            print(f"  {names.get(key, key)}: {number(value)}", file=sys.stderr, flush=True)


def _end(child: "subprocess.Popen[str]") -> None:
    """With its cluster, where it listens; Ray's processes end with it otherwise."""
    try:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
            child.wait(ENDING_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()


def show(found: Found, titles: Mapping[str, str]) -> None:
    """Medians over the rounds, with the range. Rows of which nothing was measured are left out."""
    rows = [[title, *(cell(values_of(rounds, key)) for rounds in found.values())] for title, key in titles.items()]
    print_table(["", *found], [row for row in rows if any(row[1:])])


def values_of(rounds: Iterable[Mapping[str, float]], key: str) -> list[float]:
    """A figure in those rounds that have it."""
    return [each[key] for each in rounds if key in each]


def cell(values: Sequence[float]) -> str:
    """The median, and the range where there were several rounds."""
    if not values:
        return ""
    middle = number(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))}-{number(max(values))})"


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
