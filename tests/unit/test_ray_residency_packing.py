"""A model on its way to its processes: the same one is known again, another one is not, and its modules are found."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.packing import opened, pack_model

DEPLOYER = """
import sys
from pathlib import Path
from executors.ray_gpu.residency.declaration import Model
from executors.ray_gpu.residency.packing import pack_model
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "module":
    from code_of_a_model import Code
else:
    class Code:
        pass
Path(sys.argv[3]).write_bytes(pack_model(Model(name="m", code=Code, weights="w", working_bytes=int(sys.argv[4]))))
"""
READER = """
import sys
from pathlib import Path
from executors.ray_gpu.residency.packing import unpack_model
print(unpack_model(Path(sys.argv[1]).read_bytes()).code.__name__)
"""


def version_of(packed):
    return opened(packed).version


def python(program, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    found = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], env=environment, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.mark.parametrize("where", ["module", "main"])
def test_the_same_model_from_another_process_is_the_same_and_other_options_are_not(tmp_path, where):
    (tmp_path / "code_of_a_model.py").write_text("class Code:\n    pass\n")
    for name, working_bytes in (("one", 0), ("two", 0), ("other", 1)):
        python(DEPLOYER, tmp_path, where, tmp_path / name, working_bytes)
    one, two, other = ((tmp_path / name).read_bytes() for name in ("one", "two", "other"))
    assert version_of(one) == version_of(two)
    assert version_of(one) != version_of(other)


def test_changed_code_of_a_module_is_another_model_and_a_process_finds_the_module(tmp_path):
    code = tmp_path / "code_of_a_model.py"
    code.write_text("class Code:\n    pass\n")
    python(DEPLOYER, tmp_path, "module", tmp_path / "before", 0)
    code.write_text("class Code:\n    changed = True\n")
    python(DEPLOYER, tmp_path, "module", tmp_path / "after", 0)
    assert version_of((tmp_path / "before").read_bytes()) != version_of((tmp_path / "after").read_bytes())
    assert python(READER, tmp_path / "after") == "Code"


def test_other_weights_are_another_model_and_the_contents_travel_with_it():
    declared = Model(name="m", code=object, weights="w")
    contents = f"16-{'0' * 24}"
    one, again, later, other, none = (
        pack_model(declared, weights)
        for weights in (
            *[f"weights:{contents}@00000001"] * 2,
            f"weights:{contents}@00000002",
            f"weights:16-{'1' * 24}@00000001",
            "",
        )
    )
    assert version_of(one) == version_of(again)
    assert len({version_of(each) for each in (one, later, other, none)}) == 4
    assert [opened(each).expected for each in (one, later, none)] == [contents, contents, None]
