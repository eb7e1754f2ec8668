"""Values of a scenario that are given on the command line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.fields import SECONDS_MAX
from executors.simulator.load.sources import Source
from executors.simulator.questions.settings import parse_setting, parse_variation
from executors.simulator.scenario import ScenarioError
from executors.simulator.times import moment, parse_seconds

TEXT = """\
seed: 3
nodes: [{name: n, count: 2, gpus: 4}]
deployments:
  - {name: llm, target_replicas: 3}
  - {name: code, target_replicas: 1, init_s: {uniform: {low: 1, high: 2}}}
"""


def scenario(*settings: str):
    return Source("s.yaml", TEXT, ".", tuple(parse_setting("--set", text) for text in settings)).scenario()


def test_a_key_without_a_path_is_the_field_of_every_deployment():
    assert [each.spec.compaction for each in scenario("compaction=immediate").deployments] == ["immediate", "immediate"]
    assert [each.max_ongoing_requests for each in scenario("max_ongoing_requests=2").deployments] == [2, 2]


def test_a_path_reaches_one_value_by_number_or_by_name():
    for key in ("deployments[1].target_replicas", "deployments[code].target_replicas"):
        assert [each.spec.target_replicas for each in scenario(f"{key}=7").deployments] == [3, 7]
    assert scenario("deployments[code].init_s.uniform.high=9").deployments[1].init_s.high == 9
    assert scenario("nodes[n].gpus=8").node_gpus == {"n-0": 8, "n-1": 8}
    assert scenario("duration_s=60").duration_s == 60


def test_a_value_is_yaml_and_may_be_anything_that_the_file_may_have():
    found = scenario("network.latency_s={exponential: {mean: 0.5}}", "deployments[0].user_config={a: [1, 2]}")
    assert found.network.latency_s.mean == 0.5
    assert found.deployments[0].spec.user_config == {"a": (1, 2)}
    assert scenario("faults=[{kind: replica_crash, at: 5, deployment: llm}]").faults


def test_what_was_not_in_the_file_can_be_set_too():
    assert scenario("deployments[0].requests.poisson={rate_per_s: 1, for_s: 2, service_s: 1}").deployments[0].requests


def test_later_settings_hold():
    assert scenario("target_replicas=5", "deployments[0].target_replicas=6").deployments[0].spec.target_replicas == 6


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("compactoin=immediate", 'compactoin: expected a known key such as "compaction", found "compactoin"'),
        ("network.latency=1", 'network.latency: expected a known key such as "latency_s", found "latency"'),
        ("netwrk.latency_s=1", 'netwrk: expected a known key such as "network", found "netwrk"'),
        ("deployments[0].target_replicsa=1", "(set by deployments[0].target_replicsa=1)"),
        ("target_replicas=four", 'expected an integer >= 0, found "four" (set by target_replicas=four)'),
        ("deployments[2].victims=any", "expected [0] to [1], or a name: llm, code, found [2]"),
        ("deployments[lm].victims=any", "expected [0] to [1], or a name: llm, code, found [lm]"),
        ("faults[0].at=1", "expected a key that is in the scenario, found no list 'faults' in it"),
        ("deployments..victims=any", "expected a key such as deployments[0].target_replicas"),
        ("deployments[0].name.x=1", "expected a mapping around the last key, found a plain value"),
        ("seed=1", "seed: expected --seed N for it"),
        ("target_replicas", "--set: expected KEY=VALUE such as target_replicas=8, found 'target_replicas'"),
        ("target_replicas=", "--set: expected KEY=VALUE"),
        ("=3", "--set: expected KEY=VALUE"),
        ("user_config={a: ", "user_config={a:"),
        ("user_config=!!python/object:os.system {}", "tag"),
    ],
)
def test_what_cannot_be_set_is_told_in_one_line(setting, problem):
    with pytest.raises(ScenarioError) as caught:
        scenario(setting)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_variation_is_split_at_commas_that_stand_outside_of_brackets_and_quotes():
    found = parse_variation("--vary", "init_s={uniform: {low: 1, high: 2}}, 5 ,'a,b',[1, 2]")
    assert [setting.text for setting in found] == ["{uniform: {low: 1, high: 2}}", "5", "'a,b'", "[1, 2]"]
    assert {setting.key for setting in found} == {"init_s"}


def test_a_variation_may_have_ranges():
    found = parse_variation("--vary", "a=1..3,8, 0.1..0.4:0.1,-9..-6:3")
    assert [setting.text for setting in found] == ["1", "2", "3", "8", "0.1", "0.2", "0.3", "0.4", "-9", "-6"]
    assert [setting.text for setting in parse_variation("--vary", "a='1..3'")] == ["'1..3'"]


@pytest.mark.parametrize("text", ["a", "a=", "=1,2", "a=1,,2", "a=1,1", "a=3..1", "a=1..3:0", "a=1..3,2", "a=1..10001"])
def test_a_variation_that_is_none_is_told(text):
    with pytest.raises(ScenarioError, match="--vary: expected"):
        parse_variation("--vary", text)


def test_every_file_that_a_scenario_names_counts_to_what_it_is_made_of(tmp_path: Path):
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n")
    trace = "requests={trace: {file: t.csv, base_s: 1, prompt_s_per_token: 0, output_s_per_token: 0}}"
    source = Source("s.yaml", TEXT, str(tmp_path), (parse_setting("--set", f"deployments[0].{trace}"),))
    before = source.trace_digests()
    assert list(before) == ["t.csv"]
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,2\n")
    assert source.trace_digests() != before


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90), ("90s", 90), ("1.5", 1.5), (".5s", 0.5), ("2m", 120), ("1m30s", 90), ("1h30m", 5400), ("1d", 86400),
        ("1d2h3m4.5s", 93784.5), ("0:13:32", 812), ("10:00:00.5", 36000.5), (" 1h 30m ", 5400), ("0", 0),
        ("2d 03:00:00", 183600), ("2d03:00:00.5", 183600.5), ("1d 0:00:01", 86401),
    ],
)  # fmt: skip
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5",
        "1x",
        "s",
        ".",
        "1:2",
        "1:70:00",
        "1e3",
        "nan",
        "m",
        "1s1m",
        "99999999999",
        "2d 24:00:00",
        "1.5d 3:00:00",
    ],
)
def test_what_is_no_time_is_told(text):
    with pytest.raises(ValueError, match="expected a time"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("seconds", "digits", "words"),
    [
        (0, 0, "0:00:00"), (3661, 0, "1:01:01"), (172_799, 0, "47:59:59"), (172_799.5, 0, "2d 00:00:00"),
        (183_600, 0, "2d 03:00:00"), (974.96, 1, "0:16:15.0"), (975.25, None, "0:16:15.25"), (600, None, "0:10:00"),
    ],
)  # fmt: skip
def test_moments_are_written_in_one_way(seconds, digits, words):
    assert moment(seconds, digits) == words


@given(seconds=st.floats(0, SECONDS_MAX), digits=st.sampled_from((0, 1, 3, 6, None)))
def test_a_moment_that_is_shown_can_be_given_back(seconds, digits):
    shown = moment(seconds, digits)
    step = 10.0 ** -(6 if digits is None else digits)
    assert abs(parse_seconds(shown) - seconds) <= 0.51 * step + 2e-7, shown  # a float of thirty years is that coarse
    assert moment(parse_seconds(shown), digits) == shown
