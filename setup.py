"""What pyproject.toml cannot say: the rules can be compiled by mypyc, and decide the same faster.

`pip install mypy setuptools`, then `RANKCORE_COMPILE=3 pip install --no-build-isolation .` The number is how much the C
compiler optimises: 0 is built in half the time, and is no faster than Python.
"""

import os
from glob import glob
from typing import Any

from setuptools import setup

COMPILED = ("rankcore/rules/*.py", "rankcore/book/*.py", "rankcore/invariants/*.py", "rankcore/testing/schedules/*.py")
"""Functions that work on states. What users hand in is checked elsewhere: an error has our words, and not a compiler's."""
LEFT_OUT = ("__init__.py", "actor.py", "promises.py", "schedule.py")
"""Nothing but classes, of kinds that mypyc does not compile."""


def extensions() -> list[Any]:
    """What is compiled, if that is asked for."""
    level = os.environ.get("RANKCORE_COMPILE", "")
    if not level:
        return []
    if level not in ("0", "1", "2", "3"):
        raise SystemExit(f"RANKCORE_COMPILE must be 0, 1, 2 or 3, how much the C compiler optimises; got {level!r}")
    try:
        from mypyc.build import mypycify
    except ImportError:
        raise SystemExit("RANKCORE_COMPILE needs mypy: pip install mypy setuptools, and --no-build-isolation") from None
    files = sorted(file for pattern in COMPILED for file in glob(pattern) if os.path.basename(file) not in LEFT_OUT)
    found: list[Any] = mypycify(files, opt_level=level, debug_level="0", target_dir="build/mypyc")
    return found


setup(ext_modules=extensions())
