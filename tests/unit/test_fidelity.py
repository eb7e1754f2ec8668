"""A recording of a simulated run gives its durations and its calls back, and its simulation is that very run (W17)."""

import gzip
import json
from collections import Counter

import pytest
import yaml
from typer.testing import CliRunner

from executors.cli.app import app
from executors.engine.chain import Chain
from executors.engine.reading import JournalError, JournalReader
from executors.engine.request_reading import request_file_of
from executors.simulator.from_journal.calibration import read_recorded
from executors.simulator.from_journal.calibration_text import calls_text, scenario_text
from executors.simulator.from_journal.fidelity import (
    compare_with_recorded,
    compare_with_simulated,
    recorded_felt,
    scenario_of_recorded,
)
from executors.simulator.from_journal.rank_history import RankChange, compare_histories
from executors.simulator.replicas.life import Lives

SCENARIO = """
name: recorded
nodes: [{name: n, count: 4, gpus: 8}]
deployments:
- name: llm
  target_replicas: 6
  start_s: {uniform: {low: 1, high: 3}}
  init_s: {lognormal: {median: 5, p99: 20}}
  reconfigure_s: {uniform: {low: 0.1, high: 0.3}}
  drain_s: {exponential: {mean: 0.5}}
  max_ongoing_requests: 2
  requests: {poisson: {rate_per_s: 5, for_s: 200, service_s: {lognormal: {median: 0.8, p99: 3}}}}
faults:
- {kind: replica_crash, at: 50, deployment: llm, rank: 2}
- {kind: node_loss, at: 70, node: n-0, back_after_s: 20}
- {kind: controller_crash, at: 100, restart_after_s: 3}
changes:
- {at: 120, deployment: llm, target_replicas: 4}
- {at: 150, deployment: llm, version: v2}
"""
DURATIONS = ("start_s", "init_s", "reconfigure_s", "drain_s")


def recorded(folder, text=SCENARIO, name="run", *options):
    scenario, journal = folder / f"{name}.yaml", folder / f"{name}.jsonl"
    scenario.write_text(text)
    files = ["--journal", str(journal), "--requests", str(request_file_of(journal)), "--report", str(folder / "page.html")]
    done = CliRunner().invoke(app, ["simulate", str(scenario), *files, "-q", "--check", "end", *options])
    assert done.exit_code == 0, done.stderr
    return journal


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A journal, what its replicas drew, and what is read of it."""
    drawn = Counter()
    draw = Lives._draw

    def noted(self, what, process):
        took_s = draw(self, what, process)
        drawn[what, round(took_s, 6)] += 1
        return took_s

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lives, "_draw", noted)
        journal = recorded(tmp_path_factory.mktemp("recorded"))
    return journal, drawn, read_recorded(journal)


def test_durations_that_were_drawn_are_measured(run):  # W17
    _, drawn, world = run
    found = Counter((each.field, round(each.took_s, 6)) for each in world.measured)
    assert {field for field, _ in found} == set(DURATIONS)
    for field in DURATIONS:
        were = sorted(value for (what, value), count in drawn.items() for _ in range(count) if what == field)
        are = sorted(value for (what, value), count in found.items() for _ in range(count) if what == field)
        assert set(are) <= set(were) | {0.0}, (field, are, were)
        assert len(are) >= len(were) - 3, f"{field}: what a crash cut off has no end"


def test_calls_come_when_they_came_and_take_as_long(run):  # W17
    _, _, world = run
    assert len(world.calls) > 900
    at_s, service_s = world.arrivals("llm")
    assert at_s == sorted(at_s)
    scenario = yaml.safe_load(SCENARIO)["deployments"][0]["requests"]["poisson"]["service_s"]["lognormal"]
    below = sum(1 for each in service_s if each <= scenario["median"]) / len(service_s)
    assert abs(below - 0.5) <= 0.05, "half of them are below the median that they were drawn of"
    rows = calls_text(world, "llm").splitlines()
    assert rows[0] == "at,service"
    assert len(rows) == len(world.calls) + 1


def test_its_simulation_is_the_very_run_that_was_recorded(run):  # W17
    _, _, world = run
    found = compare_with_simulated(world, 2)
    assert found.beyond(1e-6) == ()
    assert found.history.changes > 50
    drawn = compare_with_simulated(world, 1, drawn=True)
    assert drawn.history.differs_at is not None, "other replicas take as long: others come up first"
    assert max(found.history.apart_s) < 1e-6
    assert recorded_felt(world)["llm"]["wait_s"].p99 > 1.0, "there was something to wait for"


@pytest.fixture(scope="module")
def another(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("another"), SCENARIO, "other", "--seed", "5")


def test_a_recording_differs_from_that_of_another_seed(run, another):
    _, _, world = run
    other = read_recorded(another)
    noise = compare_with_recorded(world, other)
    assert noise.history.difference is not None
    assert any("is off by" in each for each in noise.beyond(0.0))


def test_a_calibrated_scenario_can_be_simulated_as_it_is(run, tmp_path):
    journal, _, world = run
    out = tmp_path / "calibrated.yaml"
    done = CliRunner().invoke(app, ["calibrate", str(journal), "-o", str(out), "--json"])
    assert done.exit_code == 0, done.stderr
    assert yaml.safe_load(done.stdout)["llm"]["calls"] == len(world.calls)
    said = yaml.safe_load(out.read_text())
    (deployment,) = said["deployments"]
    assert deployment["max_ongoing_requests"] == 2
    assert [fault["kind"] for fault in said["faults"]] == ["replica_crash", "node_loss", "controller_crash"]
    again = CliRunner().invoke(app, ["simulate", str(out), "--report", str(tmp_path / "page.html"), "--json", "-"])
    assert again.exit_code == 0, again.stderr
    assert yaml.safe_load(again.stdout)["deployments"][0]["requests"]["arrived"] == len(world.calls)


FEW = """
name: few
nodes: [{name: n, gpus: 8}]
applications:
- name: shop
  deployments: [{name: llm, target_replicas: 3}]
"""


def test_few_samples_are_a_mean_and_none_is_marked(tmp_path):
    world = read_recorded(recorded(tmp_path, FEW))
    text = scenario_text(world, {})
    assert "init_s: 10.0  # the mean of 3 samples" in text
    assert "# not measured\nnetwork: {latency_s: 0.001}\n" in text
    assert "# not measured\n        reconfigure_s: 0.1\n" in text
    assert yaml.safe_load(text)["applications"][0]["deployments"][0]["name"] == "llm"
    assert scenario_of_recorded(world).deployments[0].spec.name == "shop/llm"


def test_a_call_that_nobody_finished_would_have_taken_longer_than_it_had(run):
    _, _, world = run
    lost = [call for call in world.calls if call.outcome == "lost"]
    assert lost
    _, service_s = world.arrivals("llm")
    for call in lost:
        assert service_s[world.calls.index(call)] >= call.ended_at - call.sent_at


def change(at, nth, state="running", rank=0):
    return RankChange(at, "llm", rank, nth, state)


def test_changes_that_lie_near_each_other_may_swap_and_others_may_not():
    first = [change(1.0, 0), change(2.0, 1), change(2.001, 2), change(3.0, 3)]
    near = [change(1.0, 0), change(2.0, 2), change(2.002, 1), change(3.0, 3)]
    found = compare_histories(first, near, 0.01)
    assert (found.difference, found.swapped, len(found.apart_s)) == (None, 1, 4)
    far = compare_histories(first, near, 0.001)
    assert far.difference.startswith("replica 2 with rank 0 of llm is running at 2.001 s; in the other that comes before")


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ([change(1.0, 0)], [], "replica 0 with rank 0 of llm is running at 1.000 s; the other has ended"),
        ([change(1.0, 0)], [change(1.0, 1)], "the other has replica 1 with rank 0 of llm is running at 1.000 s"),
        ([], [change(1.0, 1)], "only the other has that replica 1"),
    ],
)
def test_the_first_difference_is_told(first, second, difference):
    assert difference in compare_histories(first, second, 1.0).difference


def test_fidelity_says_how_far_they_are_apart_and_exits_with_1_beyond(run, another, tmp_path):
    journal, _, _ = run
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "1", "--json", "-"])
    assert done.exit_code == 0, done.stderr
    assert yaml.safe_load(done.stdout)["simulated"]["history"]["equal"] is True
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "1", "--against", str(another)])
    assert done.exit_code == 0, "the noise of recordings is told, and no error"
    assert "recorded again:   differs" in done.stdout
    calls = request_file_of(journal).rename(journal.with_name("aside"))
    try:
        done = CliRunner().invoke(app, ["fidelity", str(journal)])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert "expected a request file" in done.stderr
        slow = calls.read_bytes()
        request_file_of(journal).write_bytes(slow.replace(b'"done"', b'"lost"', 1))
        for command in (["fidelity", str(journal)], ["calibrate", str(journal), "-o", str(tmp_path / "x.yaml")]):
            done = CliRunner().invoke(app, command)
            assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
            assert "was changed" in done.stderr
    finally:
        calls.rename(request_file_of(journal))


def test_nothing_is_written_over_the_calls_of_a_recording(run):
    journal, _, _ = run
    calls = request_file_of(journal)
    before = calls.read_bytes()
    for command in (["calibrate", str(journal), "-o"], ["fidelity", str(journal), "--runs", "1", "--json"]):
        done = CliRunner().invoke(app, [*command, str(calls)])
        assert (done.exit_code, "which is an input" in done.stderr, calls.read_bytes() == before) == (2, True, True)


def test_calls_that_stand_in_two_files_alike_are_refused(run, tmp_path):
    journal, _, _ = run
    calls = str(request_file_of(journal))
    done = CliRunner().invoke(app, ["calibrate", str(journal), *["--requests", calls] * 2, "-o", str(tmp_path / "x.yaml")])
    assert (done.exit_code, "expected each file once" in done.stderr) == (2, True)


def test_files_of_another_application_are_told(run, tmp_path):
    journal, _, _ = run
    other = recorded(tmp_path, SCENARIO.partition("faults:")[0].replace("name: llm", "name: code"), "other")
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "1", "--against", str(other)])
    assert (done.exit_code, "expected a recording of llm, found one of code" in done.stderr) == (2, True)
    world = read_recorded(other, [nameless(request_file_of(journal), tmp_path / "nameless.jsonl")])
    assert not world.calls
    assert "calls are of llm, which it does not have" in world.warnings[-1]


def test_a_simulation_that_is_not_like_it_is_told(run, monkeypatch):
    journal, _, _ = run
    monkeypatch.setattr("executors.simulator.from_journal.calibration._took_s", lambda call: 0.01)
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "1", "-q"])
    assert done.exit_code == 1
    assert "p50 e2e_s of llm is off by" in done.stderr


def test_packed_recordings_are_read_as_they_are(run, tmp_path):
    journal, _, world = run
    for file in (journal, request_file_of(journal)):
        with gzip.open(tmp_path / f"{file.name}.gz", "wb") as packed:
            packed.write(file.read_bytes())
    assert read_recorded(tmp_path / f"{journal.name}.gz").calls == world.calls


def test_a_packed_recording_that_does_not_unpack_is_told_with_its_name(run, tmp_path):
    journal, _, _ = run
    path = tmp_path / f"{journal.name}.gz"
    whole = gzip.compress(journal.read_bytes())
    for packed in (whole[: len(whole) // 2], whole[:10] + b"\xff" * 20 + whole[30:], journal.read_bytes()):
        path.write_bytes(packed)
        done = CliRunner().invoke(app, ["calibrate", str(path), "-o", str(tmp_path / "x.yaml")])
        assert (done.exit_code, path.name in done.stderr, "unpack" in done.stderr) == (2, True, True), done.stderr


def test_a_recording_that_goes_on_from_something_is_refused(run, tmp_path):
    journal, _, _ = run
    files = ["--journal", str(tmp_path / "fork.jsonl"), "--report", str(tmp_path / "page.html"), "-q"]
    done = CliRunner().invoke(app, ["fork", str(journal), "--at", "60s", "--fault", "rank 1 of llm crashes", *files])
    assert done.exit_code == 0, done.stderr
    with pytest.raises(JournalError, match="begins with the deployment"):
        read_recorded(tmp_path / "fork.jsonl")


def resealed(file, path, change):
    """A file with lines changed, and its chain with it."""
    chain, texts = Chain(), []
    for raw in file.read_bytes().splitlines():
        line = change(json.loads(raw))
        text, chain = chain.seal({key: each for key, each in line.items() if key not in ("n", "h")})
        texts.append(text)
    path.write_bytes(b"".join(texts))
    return path


def rewritten(journal, path, change):
    request_file_of(path).write_bytes(request_file_of(journal).read_bytes())
    return resealed(journal, path, change)


def nameless(file, path):
    """The same file, as releases wrote it that gave runs no ids."""

    def without_run(line):
        about = {key: each for key, each in line.get("about", {}).items() if key != "run"}
        return {**line, "about": about} if "about" in line else line

    return resealed(file, path, without_run)


def refused(*command):
    done = CliRunner().invoke(app, [str(each) for each in command])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.stderr
    return done.stderr


def test_calls_of_another_run_are_refused(run, another, tmp_path):
    journal, _, _ = run
    out = tmp_path / "scenario.yaml"
    for one, other in ((journal, another), (another, journal)):
        assert "of run" in refused("calibrate", one, "--requests", request_file_of(other), "-o", out)
    assert not out.exists()
    copied = tmp_path / "run.jsonl"
    copied.write_bytes(journal.read_bytes())
    request_file_of(copied).write_bytes(request_file_of(another).read_bytes())
    assert "of run" in refused("fidelity", copied)


def sent_elsewhere(line):
    return {**line, "replica_id": "llm#9.0"} if "to" in line and line["replica_id"] else line


def test_files_without_an_id_are_of_one_run_as_far_as_their_replicas_say(run, tmp_path):
    journal, _, world = run
    old = nameless(journal, tmp_path / "old.jsonl")
    nameless(request_file_of(journal), request_file_of(old))
    found = read_recorded(old)
    assert found.calls == world.calls
    assert "no id says that it is of the same run" in found.warnings[0]
    strange = resealed(request_file_of(old), tmp_path / "strange.jsonl", sent_elsewhere)
    assert "found some to llm#9.0, which it never starts" in refused("calibrate", old, "--requests", strange, "-o", "x.yaml")
    lines = old.read_bytes().splitlines(keepends=True)
    old.write_bytes(b"".join(lines[:-1]))
    assert any("calls went to replicas that" in each for each in read_recorded(old, [strange]).warnings)


def test_a_journal_that_was_cut_says_how_many_calls_it_knows_nothing_of(run, tmp_path):
    journal, _, world = run
    cut = tmp_path / "cut.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[: len(lines) // 2]))
    request_file_of(cut).write_bytes(request_file_of(journal).read_bytes())
    warnings = read_recorded(cut).warnings
    assert "no end marker" in warnings[0]
    assert f"of {len(world.calls)} calls ended later" in warnings[1]


def test_without_any_call_there_is_nothing_to_calibrate(run, tmp_path):
    journal, _, _ = run
    alone = tmp_path / "alone.jsonl"
    alone.write_bytes(journal.read_bytes())
    for command in (["calibrate", alone, "-o", tmp_path / "x.yaml"], ["fidelity", alone]):
        assert "expected a request file with calls" in refused(*command)
    assert not (tmp_path / "x.yaml").exists()


def test_tokens_of_calls_stand_in_what_is_calibrated(run, tmp_path):
    journal, _, world = run
    told = tmp_path / "run.jsonl"
    told.write_bytes(journal.read_bytes())
    lines = [json.loads(raw) for raw in request_file_of(journal).read_bytes().splitlines()]
    ids = [line["r"][0] for line in lines if "r" in line and line["r"][-1] == "done"]
    lines[-1:-1] = [{"t": [each, 100 + each, 2 * each]} for each in ids]
    chain, texts = Chain(), []
    for line in lines:
        text, chain = chain.seal({key: each for key, each in line.items() if key not in ("n", "h")})
        texts.append(text)
    request_file_of(told).write_bytes(b"".join(texts))
    found = read_recorded(told)
    assert found.measured == world.measured
    rows = calls_text(found, "llm").splitlines()
    assert rows[0] == "at,service,prompt,output"
    assert len(rows) == len(world.calls) + 1
    out = tmp_path / "scenario.yaml"
    done = CliRunner().invoke(app, ["calibrate", str(told), "-o", str(out), "-q"])
    assert done.exit_code == 0, done.stderr
    columns = "{time: at, prompt: prompt, output: output}"
    by_tokens = [f"deployments[0].requests.trace.columns={columns}", "deployments[0].requests.trace.base_s=0.1"]
    by_tokens += [f"deployments[0].requests.trace.{each}_s_per_token=0.001" for each in ("prompt", "output")]
    sets = [word for each in by_tokens for word in ("--set", each)]
    done = CliRunner().invoke(app, ["simulate", str(out), *sets, "-q", "--report", str(tmp_path / "p.html"), "--check", "end"])
    assert done.exit_code == 0, done.stderr


def test_a_journal_is_run_again_once(run, another, monkeypatch):
    journal, _, _ = run
    read, iterate = Counter(), JournalReader.__iter__

    def counted(self):
        read[self.path] += 1
        return iterate(self)

    monkeypatch.setattr(JournalReader, "__iter__", counted)
    done = CliRunner().invoke(app, ["fidelity", str(journal), "--runs", "1", "--against", str(another), "-q"])
    assert done.exit_code == 0, done.stderr
    assert read == {str(journal): 1, str(another): 1}


def without_words(line):
    return {
        **line,
        **({"fingerprint": "0" * 16} if "fingerprint" in line else {}),
        **({"notes": []} if "notes" in line else {}),
    }


def of_other_states(line):
    return {**line, **({"fingerprint": "0" * 16} if "fingerprint" in line else {})}


def test_replay_says_where_nothing_but_the_texts_of_states_differs(run, tmp_path):
    journal, _, _ = run
    done = CliRunner().invoke(app, ["replay", str(rewritten(journal, tmp_path / "other.jsonl", of_other_states))])
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert "fingerprint differs" in done.stderr
    assert "; commands and notes agree in all" in done.stderr
    other = rewritten(tmp_path / "other.jsonl", tmp_path / "commands.jsonl", without_commands_later)
    assert "agree in all" not in CliRunner().invoke(app, ["replay", str(other)]).stderr


def without_commands_later(line):
    return {**line, "commands": []} if "event" in line else line


def without_commands(line):
    return {**line, **({"commands": []} if "commands" in line else {})}


def test_a_core_that_has_other_words_for_the_same_commands_reads_it(run, tmp_path):
    journal, _, world = run
    other = rewritten(journal, tmp_path / "other.jsonl", without_words)
    found = read_recorded(other)
    assert (found.measured, found.calls) == (world.measured, world.calls)
    assert compare_with_recorded(world, found).history.difference is None
    done = CliRunner().invoke(app, ["replay", str(other)])
    assert (done.exit_code, "notes[0] differs" in done.stderr) == (1, True), "and replay sees that it is not the same"
    with pytest.raises(JournalError, match="decides otherwise"):
        read_recorded(rewritten(journal, tmp_path / "commands.jsonl", without_commands))
