"""The same seed a second time, in another process with another hash seed, compared byte for byte.

python -m executors.swarm.twice PART SEED PIPE      prints everything that happens in a seed; ends when the pipe does
"""

import os
import signal
import subprocess
import sys

from executors.swarm.runs import run_seed
from executors.workers import WorkersLost, end_with

TIMEOUT_S = 600.0
HASH_SEEDS = ("1", "2")


def differs(part: str, seed: int) -> str | None:
    """Where the second run differs from the first, in words; None: nowhere.

    Raises:
        WorkersLost: The second process did not come to its end.
    """
    mine, other = run_seed(part, seed, record=True).record, _in_another_process(part, seed)
    if mine == other:
        return None
    lines = zip([*mine.split("\n"), "(the end)"], [*other.split("\n"), "(the end)"], strict=False)
    number, (first, second) = next((n, pair) for n, pair in enumerate(lines, 1) if pair[0] != pair[1])
    return f"line {number} of the two runs: {first!r}, {second!r}"


def _in_another_process(part: str, seed: int) -> str:
    other = next(each for each in HASH_SEEDS if each != os.environ.get("PYTHONHASHSEED"))
    around = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    theirs, mine = os.pipe()
    command = [sys.executable, "-m", "executors.swarm.twice", part, str(seed), str(theirs)]
    try:
        done = subprocess.run(
            command, env=around, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, pass_fds=(theirs,)
        )
    except subprocess.TimeoutExpired:
        raise WorkersLost(f"{part} seed {seed}: the second process has not ended after {TIMEOUT_S:g} s") from None
    finally:
        os.close(theirs)
        os.close(mine)
    if done.returncode != 0:
        last = done.stderr.strip().rpartition("\n")[2]
        raise WorkersLost(f"{part} seed {seed}: the second process ended with status {done.returncode}: {last}")
    return done.stdout


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    end_with(int(sys.argv[3]))
    sys.stdout.write(run_seed(sys.argv[1], int(sys.argv[2]), record=True).record)
