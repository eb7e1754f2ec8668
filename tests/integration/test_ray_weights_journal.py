"""The journal that a controller on Ray writes of weights that may be COLD: it replays, tells why, and is planned from."""

import shutil

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.cli.app import app
from executors.engine.replay import replay
from executors.explain.stories import Question, explain
from tests.fleet_models import WEIGHT_BYTES, write_weights
from tests.ray_local import ANSWER_S, clean_up, eventually, ray_cluster  # noqa: F401 (a fixture)

pytestmark = pytest.mark.ray


@pytest.fixture
def journal(ray_cluster, tmp_path):  # noqa: F811
    """Two deployments have taken turns on the one GPU that there is."""
    from executors import ray_gpu as serve
    from tests.tenures import Tenured

    memory = {"device": "cpu", "stand_in_gpu_bytes": (WEIGHT_BYTES * 3 // 2,), "cache_bytes": 4 * WEIGHT_BYTES}
    serve.start(journal=str(tmp_path / "run.jsonl"), memory=memory, proxy_location="Disabled")
    for seed, name in enumerate(("a", "b")):
        path, answer = write_weights(tmp_path, name, seed)
        residency = serve.Residency(weights=path, min_hot_s=0.0, wait_target_s=0.1)  # turns are as short as may be
        bound = Tenured.options(name=name, residency=residency, user_config="v1").bind(str(tmp_path))
        handle = serve.run(bound, name=f"app-{name}", route_prefix=None)
        assert handle.total.remote().result(ANSWER_S) == pytest.approx(answer)
    eventually(lambda: serve.status().deployments["a"].status == "HEALTHY", "the first has left")
    shutil.copy(tmp_path / "run.jsonl", tmp_path / "copy.jsonl")
    yield tmp_path / "copy.jsonl"
    clean_up(serve)


def test_it_replays_and_says_who_took_whose_place_and_who_would(journal):
    result = replay(journal)
    assert (result.kind.name, result.difference) == ("cluster", None)
    texts = [fact.text for fact in explain(journal, Question(deployment="app-a/a")).facts]
    assert any("1 call waits for it, and it has no replica" in text for text in texts), texts
    displaced = [text for text in texts if "displaced by app-b/b@" in text]
    assert displaced, texts
    assert any(text.endswith("leaves for good, and the world size falls from 1 to 0") for text in texts), texts
    planned = CliRunner().invoke(app, ["plan", "--from", str(journal), "--deployment", "app-a/a", "--target", "1"])
    assert planned.exit_code == 0, planned.stderr
    assert "app-b/b@" in planned.stdout.splitlines()[-1], planned.stdout
    assert "would be displaced from" in planned.stdout
