"""The examples of requests run by themselves and print what they promise."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("composition", ["rank -> Rang: a number from 0 to N-1", "epoch -> epoch: nobody knows"]),
        ("data_parallel_broadcast", ["4 ranks: 124500 + 124750 + 125000 + 125250 = 499500", "rank 1 alone: 250000"]),
        ("streaming_llm", ["hello|", "pieces"]),
        pytest.param(
            "cold_models_on_ray", ["tiny-d: 7.8894 (expected 7.8894)", "PROVISIONING behind tiny-"], marks=pytest.mark.night
        ),
        pytest.param("llama_hot_warm_cold", ["WARM\nHOT: [", ", as from_pretrained\nCOLD\nHOT: ["], marks=pytest.mark.night),
    ],
)
def test_an_example_runs_by_itself(name, says):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
    if name.startswith("llama"):
        pytest.importorskip("transformers", reason="transformers is not installed: pip install transformers")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in says:
        assert text in done.stdout
