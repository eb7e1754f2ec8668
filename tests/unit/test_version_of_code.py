"""The version that a deployment has without one being said: that of its code and arguments, whichever process asks."""

import os
import pickle
import subprocess
import sys
from fractions import Fraction

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors import ray_gpu as serve
from executors.ray_gpu.packing import pack

PARTS = """
import os
from executors import ray_gpu as serve

def seen():
    return [os.environ.get("GREETING"), {number}] if "a" in {{"a", "b", "c", "d", "e"}} else []

@serve.deployment
class Part:
    def __init__(self, number):
        self.own = os.environ.get("OWN")

    def __call__(self):
        return seen()
"""
PROGRAM = """
import parts
from executors.ray_gpu.packing import pack
print(pack(parts.Part.bind(1), (1,), {}, "shop").code.version)
"""


@pytest.fixture
def version(tmp_path):
    """Of the code with this number in it, as a program finds it that runs with other hashes than the one before."""
    (tmp_path / "program.py").write_text(PROGRAM)
    seeds = iter(range(1, 10))

    def found(number):
        (tmp_path / "parts.py").write_text(PARTS.format(number=number))
        variables = {each: value for each, value in os.environ.items() if each != "PYTHONDONTWRITEBYTECODE"}
        variables |= {"PYTHONHASHSEED": str(next(seeds)), "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "program.py"]
        return subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    return found


def test_a_program_that_runs_again_has_the_version_it_had_whether_its_modules_are_compiled_or_read(version, tmp_path):
    compiled = version(number=1)
    assert list((tmp_path / "__pycache__").glob("parts.*.pyc")), "the second program reads what the first has compiled"
    assert version(number=1) == compiled
    assert version(number=222) != compiled


def test_code_with_a_constant_that_no_source_has_is_packed_as_ever():
    def half():
        return None

    half.__code__ = half.__code__.replace(co_consts=(Fraction(1, 2),))
    target, _, _ = pickle.loads(pack(serve.deployment(half).bind(), (), {}, "shop").code.blob)
    assert target() == Fraction(1, 2)
