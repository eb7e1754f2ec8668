"""`rankcore engine fit`: finds what measurements were made with, says how far off it is, and what is wrong with a file."""

import importlib.util
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app
from executors.simulator.engines.batching import EngineBatch
from executors.simulator.engines.closed_loop import Factors, closed_loop
from executors.simulator.engines.decoders import EngineSequence
from executors.simulator.engines.fit import BenchmarkPoint, StepPoint, fit_benchmark, fit_steps
from executors.simulator.engines.points import points_of
from executors.simulator.engines.spec import Curve, Engine, StepTime
from executors.simulator.scenario.loading import parse_scenario

ROOT = Path(__file__).parents[2]
MS = 10**9
STEP_TIME = StepTime(Curve(((0, 5 * MS), (10, 7 * MS))), Curve(((0, 0), (100, 4 * MS))), 3_000)
"""5 ms + 0.2 ms a sequence, 40 us a prompt token, 3 ns a token of context."""
SMALL = Engine(STEP_TIME, 1_600, 8, 64, kv_policy="reserve")


def seen(engine: Engine, users: int, prompt: int, output: int) -> BenchmarkPoint:
    """What users of an engine see on average, by its own clock: `closed_loop` looks at no time."""
    batch, sent, counted = EngineBatch(engine), list[int](), max(2 * users, 8)
    done: dict[int, EngineSequence] = {}
    for key in range(users):
        batch.add(EngineSequence(key, prompt, output))
        sent.append(0)
    while not all(key in done for key in range(users, users + counted)):
        batch.begin(batch.now_ps)
        for one in batch.end():
            done[one.key] = one
            batch.add(EngineSequence(len(sent), prompt, output))
            sent.append(batch.now_ps)
    ttft = e2e = 0
    for key in range(users, users + counted):
        first_ps = done[key].first_ps
        assert first_ps is not None
        ttft += first_ps - sent[key]
        e2e += done[key].last_ps - sent[key]
    itl_ms = (e2e - ttft) / counted / (output - 1) / MS
    return BenchmarkPoint(prompt, output, users, ttft / counted / MS, itl_ms, users * output / (e2e / counted / MS / 1000))


def test_who_is_in_which_iteration_does_not_depend_on_how_long_it_takes() -> None:
    for users in (1, 3, 12):
        point, factors = seen(SMALL, users, 150, 20), closed_loop(SMALL, users, 150, 20)

        def time_of(each: Factors) -> float:
            return 5 * each.iterations + 0.2 * each.decoding + 3e-6 * each.context + 0.04 * each.prompt

        assert time_of(factors.ttft) == pytest.approx(point.ttft_ms)
        assert time_of(factors.itl) == pytest.approx(point.itl_ms)
        assert users * 20 / time_of(factors.e2e) * 1000 == pytest.approx(point.tokens_per_s)


def test_a_fit_of_benchmarks_finds_the_engine_that_they_were_made_with() -> None:
    points = [seen(SMALL, users, prompt, 20) for users, prompt in ((1, 150), (3, 150), (5, 400), (8, 150), (12, 150))]
    fit = fit_benchmark(points, Engine(STEP_TIME, 16_000, 8, 64, kv_policy="reserve"), searches=True)
    assert max(fit.mape.values()) < 1e-6
    assert max(fit.left_out_mape.values()) < 1e-6
    assert fit.kv_ns == pytest.approx(3, rel=1e-3)
    assert [*fit.base_ms[0], *fit.base_ms[1]] == pytest.approx([0, 5, 12, 7.4], rel=1e-4)
    assert list(fit.prompt_ms[1]) == pytest.approx([64, 64 * 0.04], rel=1e-4)
    wrong = fit_benchmark(points, Engine(STEP_TIME, 16_000, 8, 64, kv_policy="reserve"), searches=False)
    assert wrong.mape["ttft_ms"] > 0.05  # a KV cache that never lacks


def test_a_fit_of_steps_is_a_line_or_has_a_point_for_each_batch() -> None:
    line = [
        StepPoint(b, k, p, 5 + 0.2 * b + 3e-6 * k + 0.04 * p) for b, k, p in ((1, 99, 0), (4, 9_000, 7), (9, 1, 50), (2, 5, 9))
    ]
    fit = fit_steps([*line, StepPoint(0, 0, 80, 5 + 0.04 * 80)])
    assert [*fit.base_ms[0], *fit.base_ms[1]] == pytest.approx([0, 5, 9, 6.8])
    assert [fit.kv_ns, *fit.prompt_ms[1]] == pytest.approx([3, 80, 3.2])
    stairs = [StepPoint(b, k, 0, ms + 3e-6 * k) for b, ms in ((1, 5.0), (8, 5.5), (9, 9.0)) for k in (1_000, 90_000)]
    fit = fit_steps(stairs)
    assert [each for point in fit.base_ms for each in point] == pytest.approx([1, 5, 8, 5.5, 9, 9])
    assert max(fit.left_out_mape.values()) < 1e-6
    with pytest.raises(ValueError, match="expected at least 5 rows, found 2"):
        fit_steps(line[:2])


def test_w4_eight_published_rows_are_met_by_five_numbers() -> None:
    _, points = points_of(ROOT / "data" / "published_serving.csv", {"model": "Llama-3.3-70B FP8"})
    assert len(points) == 8
    fit = fit_benchmark(points, Engine(STEP_TIME, 473_808, 512, 8_192, kv_policy="reserve"), searches=False)
    assert fit.mape["ttft_ms"] <= 0.10
    assert fit.mape["itl_ms"] <= 0.05
    assert fit.mape["tokens_per_s"] <= 0.05
    assert fit.left_out_mape["itl_ms"] <= 0.10


def test_the_page_of_published_measurements_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_published_serving", ROOT / "docs" / "make_published_serving.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.PAGE.read_text() == made.page(), "run make docs"


HEADER = "who,isl,osl,concurrency,ttft_ms,itl_ms,tokens_per_s\n"
ROWS = "".join(
    f"me,150,20,{point.concurrency},{point.ttft_ms},{point.itl_ms},{point.tokens_per_s}\n"
    for point in (seen(SMALL, users, 150, 20) for users in (1, 3, 8, 12))
)


def fit_command(folder: Path, text: str, *more: str) -> tuple[int, str]:
    (folder / "p.csv").write_text(text)
    arguments = [
        "engine",
        "fit",
        str(folder / "p.csv"),
        "--gpu",
        "H100",
        "--max-num-batched-tokens",
        "64",
        "--max-num-seqs",
        "8",
    ]
    result = CliRunner().invoke(app, [*arguments, *more])
    return result.exit_code, result.output


def test_what_it_writes_is_an_engine_of_a_scenario(tmp_path: Path) -> None:
    text = HEADER + ROWS + "you,150,20,1,9999,9999,1\n"
    more = ("--where", "who=me", "--kv-policy", "reserve", "--kv-cache-tokens", "1600", "--tp", "2")
    status, said = fit_command(tmp_path, text, *more, "-o", str(tmp_path / "e.yaml"))
    assert status == 0, said
    assert "MAPE: ttft_ms 0.0%, itl_ms 0.0%, tokens_per_s 0.0%" in said
    assert "MAPE of a row left out: ttft_ms 0.0%" in said
    assert "warning" not in said
    deployment = "deployments: [{name: llm, target_replicas: 1, gpus_per_replica: 2, engine: fitted}]"
    engines = (tmp_path / "e.yaml").read_text()
    scenario = parse_scenario(f"nodes: [{{name: n, gpus: 2, gpu_type: H100}}]\n{engines}{deployment}\n", "s.yaml")
    (engine,) = scenario.engines_of(scenario.deployments[0]).values()
    assert (engine.kv_cache_tokens, engine.max_num_seqs, engine.kv_policy) == (1_600, 8, "reserve")
    assert engine.step_time.of(4, 0, 0, 0) == pytest.approx(5.8 * MS, rel=1e-4)
    status, said = fit_command(tmp_path, text, *more[2:])
    assert status == 0
    assert "warning: ttft_ms of a row that the fit did not see is off by" in said
    assert "engines:\n- name: fitted" in said


STEPS = "batch,context_tokens,prompt_tokens,step_ms\n1,10,0,5\n2,10,0,6\n3,100,0,7\n4,10,50,9\n5,10,0,9\n"


def test_steps_leave_the_kv_cache_to_be_added(tmp_path: Path) -> None:
    status, said = fit_command(tmp_path, STEPS)
    assert status == 0, said
    assert "# kv_cache_tokens is to be added: iterations do not tell it." in said


@pytest.mark.parametrize(
    ("text", "more", "problem"),
    [
        ("", (), "expected a CSV file with a header line, found an empty file"),
        (HEADER, (), "p.csv: expected at least one row, found none"),
        (HEADER + "me,150,20,0,1,1,1\n", (), "p.csv:2: concurrency: expected a number from 1 to 65536"),
        (HEADER + "me,150,20,1.5,1,1,1\n", (), "p.csv:2: concurrency: expected a whole number, found 1.5"),
        (HEADER + "me,150,20,1,0,1,1\n", (), "p.csv:2: ttft_ms: expected a number from 1e-09"),
        (HEADER + ROWS, ("--where", "who"), "--where: expected COLUMN=TEXT, found 'who'"),
        (HEADER + ROWS, ("--where", "what=me"), 'expected a column "what", found no such column'),
        (HEADER + ROWS, ("--kv-cache-tokens", "100"), "p.csv: 150 + 20 tokens are more than the 96 that a request may have"),
        (HEADER + ROWS, ("--kv-policy", "swap"), "--kv-policy: expected one of preempt, reserve"),
        (HEADER + ROWS.splitlines()[0], (), "p.csv: expected at least 3 rows, found 1"),
        (STEPS.replace("step_ms", "ms"), (), 'expected a column "isl", found no such column'),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, more: tuple[str, ...], problem: str) -> None:
    status, said = fit_command(tmp_path, text, *more)
    assert status == 2
    assert problem in said
    assert said.count("\n") == 1
