"""Five runs on Ray are like their simulations (W16), and the page says so. The recordings are in the repository."""

import importlib.util
from pathlib import Path

import pytest

from executors.engine.reading import JournalError
from executors.engine.request_reading import beside
from executors.simulator.from_journal.calibration import read_recorded
from executors.simulator.from_journal.fidelity import compare_with_recorded, compare_with_simulated

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "fidelity"
MOST_BYTES = 200_000


def maker():
    spec = importlib.util.spec_from_file_location("make_fidelity", ROOT / "docs" / "make_fidelity.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = maker()


def world(name):
    try:
        return read_recorded(DATA / f"{name}.jsonl.gz")
    except JournalError as error:
        pytest.fail(f"{error}: `make fidelity` records these runs anew, where the core decides otherwise by now")


@pytest.mark.parametrize("name", MAKER.RUNS)
def test_a_simulation_is_as_near_to_a_run_on_ray_as_was_promised(name):  # W16
    recorded = world(name)
    assert len(recorded.calls) > 200
    assert recorded.dropped == 0
    assert all("older release" in each for each in recorded.warnings), "they were made before runs had ids"
    found = compare_with_simulated(recorded, MAKER.SEEDS)
    assert found.history.difference is None
    noise = compare_with_recorded(recorded, world(f"{name}-again")).figures
    for each, again in zip(found.figures, noise, strict=True):
        most = max(0.05 if each.share == "p50" else 0.1, again.error or 0.0)
        assert each.error is not None
        assert each.error <= most, (name, each, "nor is it as near as a second recording")


def test_the_recordings_are_small_and_whole():
    files = sorted(DATA.glob("*.gz"))
    assert len(files) == 4 * len(MAKER.RUNS)
    assert sum(file.stat().st_size for file in files) < MOST_BYTES
    for name in MAKER.RUNS:
        assert [file.name for file in beside(DATA / f"{name}.jsonl.gz")] == [f"{name}.requests.jsonl.gz"]


def test_the_page_of_fidelity_is_current():
    assert MAKER.PAGE.read_text(encoding="utf-8") == MAKER.page(), "run `make docs`"
