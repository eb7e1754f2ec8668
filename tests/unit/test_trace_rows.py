"""Which rows of a trace count and when they are; what is left out is told, what cannot be used refused in one line (W8, W9)."""

import gzip
import itertools
import random
from pathlib import Path

import pytest

from executors.simulator.load.presets import PRESETS
from executors.simulator.load.requests import RequestQueue
from executors.simulator.load.table import Counts, Numbers, Reading, Table, read_table
from executors.simulator.run import Run
from executors.simulator.scenario import ScenarioError, load_scenario, parse_scenario
from executors.simulator.scenario.loading import load_arrivals, notes_of
from rankcore.routing.events import RequestArrived

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
SCENARIO = "nodes: [{name: n, count: 8, gpus: 8}]\ndeployments:\n  - {name: llm, target_replicas: 1%s}\n"
TOKENS = "base_s: 0, prompt_s_per_token: 1, output_s_per_token: 1000"


def read(folder: Path, text: str, **options) -> Table:
    (folder / "t.csv").write_text(text)
    return read_table(folder / "t.csv", Reading(time="t", **options), {"n": ("n", Counts())})


def load(folder: Path, trace: str, seed: int = 1):
    scenario = parse_scenario(SCENARIO % f", requests: {trace}", str(folder / "s.yaml"))
    arrivals = load_arrivals(scenario, folder, seed)
    return arrivals["llm"], notes_of(scenario, arrivals)


def refused(folder: Path, trace: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(folder, trace)
    assert "\n" not in str(caught.value)
    return str(caught.value)


ROWS = [(0.5 * index, index) for index in range(100)]


def text_of(rows) -> str:
    return "t,n\n" + "".join(f"{at},{n}\n" for at, n in rows)


# -- the order of rows


def test_rows_in_any_order_are_the_same_trace_and_that_is_told(tmp_path):
    shuffled = random.Random(1).sample(ROWS, len(ROWS))
    plain, sorted_again = read(tmp_path, text_of(ROWS)), read(tmp_path, text_of(shuffled))
    assert plain.notes == ()
    assert sorted_again.after_s == plain.after_s
    assert sorted_again.cells == plain.cells
    (note,) = sorted_again.notes
    assert note.startswith(f"{tmp_path / 't.csv'}: ")
    assert "of 100 rows out of order" in note


def test_how_many_rows_are_late_and_by_how_much(tmp_path):
    table = read(tmp_path, "t,n\n5,1\n1.8,2\n2,5\n5,3\n4,4\n")
    assert list(table.after_s) == pytest.approx([0, 0.2, 2.2, 3.2, 3.2])
    assert list(table.cells["n"]) == [2, 5, 4, 1, 3]  # of equal times the first of the file comes first
    assert list(table.lines) == [3, 4, 6, 2, 5]
    assert table.notes[0].endswith(": 3 of 5 rows out of order (most 3.2 s): sorted")


# -- what becomes 0


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 10, 30]),
        ({"origin": "zero"}, [100, 110, 130]),
        ({"origin": 90}, [10, 20, 40]),
        ({"origin": 90, "time_unit": "min"}, [600, 1200, 2400]),
        ({"origin": "zero", "time_unit": "ms"}, [0.1, 0.11, 0.13]),
        ({"begin": 105}, [0, 20]),
        ({"begin": 105, "origin": 100}, [10, 30]),
        ({"begin": 100, "end": 130}, [0, 10]),
        ({"end": 1.85, "time_unit": "min"}, []),
    ],
)
def test_a_trace_begins_where_it_is_said_to(tmp_path, options, expected):
    text = "t,n\n100,1\n110,2\n130,3\n"
    if not expected:
        with pytest.raises(ValueError, match="expected at least one request, found none"):
            read(tmp_path, text, **options)
        return
    assert list(read(tmp_path, text, **options).after_s) == pytest.approx(expected)


def test_a_window_may_be_said_in_dates(tmp_path):
    text = "t,n\n2023-11-16 18:00:00,1\n2023-11-16 18:00:10,2\n2023-11-16 18:01:00,3\n"
    table = read(tmp_path, text, begin="2023-11-16T18:00:05Z", end="2023-11-16T19:30:30+01:30", origin="2023-11-16")
    assert list(table.cells["n"]) == [2]
    assert list(table.after_s) == [18 * 3600 + 10]
    assert table.notes == ()
    assert list(read(tmp_path, text, time_unit="iso", limit=2).after_s) == [0, 10]


def test_a_row_before_the_origin_is_refused_with_its_line(tmp_path):
    with pytest.raises(ValueError, match=r"t.csv:3: t: expected times from origin on, found an earlier one; begin: leaves"):
        read(tmp_path, "t,n\n9,1\n4,2\n", origin=5)


# -- which rows count


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ({"kind": "a"}, [1, 3]),
        ({"kind": ["a", "c"]}, [1, 3, 4]),
        ({"kind": {"not": "a"}}, [2, 4]),
        ({"kind": {"not": ["a", "b"]}}, [4]),
        ({"size": {"min": 5}}, [2, 3]),
        ({"size": {"max": 5}}, [1, 2]),
        ({"size": {"min": 5, "max": 6}}, [2]),
        ({"size": 5}, [2]),
        ({"size": {"min": 1}, "kind": "a"}, [1, 3]),
    ],
)
def test_only_rows_with_what_is_asked_for_count(tmp_path, where, kept):
    rows = "t,kind,size,n\n0, a,4,1\n1,b,5.0,2\n2,a,9,3\n3,c,,4\n"
    table = read(tmp_path, rows, where=where)
    assert list(table.cells["n"]) == kept
    assert table.notes[0].endswith(f"where leaves out {4 - len(kept)} of 4 rows")


def test_a_where_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"t.csv: expected at least one request with n = 7, found none"):
        read(tmp_path, "t,n\n0,1\n", where={"n": 7})


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("[a]", "where: expected a mapping of columns to texts, found"),
        ("{a: true}", "where.a: expected the text of a cell, a list of texts, {min: number, max: number} or {not: text}"),
        ("{a: []}", "where.a: expected the text of a cell"),
        ("{a: {min: x}}", "where.a: expected the text of a cell"),
        ("{a: {least: 1}}", "where.a: expected the text of a cell"),
        ("{a: {not: null}}", "where.a.not: expected the text of a cell"),
    ],
)
def test_a_where_that_says_nothing_is_refused_at_its_key(tmp_path, where, problem):
    message = refused(tmp_path, f"{{trace: {{file: t.csv, service_s: 1, where: {where}}}}}")
    assert message.startswith(f"deployments[0].requests.trace.{problem}")


# -- bad rows


BAD = b"t,n\n0,1\nsoon,2\n2\n3,many\n\xff,4\n5,\0\n6,6\n"


def test_as_many_bad_rows_are_left_out_as_is_said_and_the_next_one_is_refused(tmp_path):
    (tmp_path / "t.csv").write_bytes(BAD)

    def kept(skip_bad):
        return read_table(tmp_path / "t.csv", Reading(time="t", skip_bad=skip_bad), {"n": ("n", Counts())})

    table = kept(5)
    assert list(table.cells["n"]) == [1, 6]
    assert "skip_bad leaves out 5 bad rows, the first: " in table.notes[0]
    assert 't.csv:3: t: expected seconds, or YYYY-MM-DD hh:mm:ss, found "soon"' in table.notes[0]
    for skip_bad, problem in enumerate(
        (
            ":3: t: expected seconds, or YYYY",
            ":4: expected 2 columns",
            ':5: n: expected an integer from 0 to 1000000000, found "many"',
            ":6: expected a CSV file in UTF-8",
            ":7: expected a CSV file, found a NUL byte",
        )
    ):
        with pytest.raises(ValueError, match=problem):
            kept(skip_bad)


def test_bad_rows_of_json_lines_are_left_out_too(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"t": 1, "n": 1}\n[]\n{"t": 2}\nx\n{"t": 3, "n": 3}\n')
    table = read_table(tmp_path / "t.jsonl", Reading(time="t", skip_bad=3), {"n": ("n", Counts())})
    assert list(table.cells["n"]) == [1, 3]
    with pytest.raises(ValueError, match=r"t.jsonl:4: expected an object of JSON"):
        read_table(tmp_path / "t.jsonl", Reading(time="t", skip_bad=2), {"n": ("n", Counts())})


# -- thinner, whole seconds, faster


def test_the_rows_of_a_thinner_trace_are_among_those_of_a_thicker_one(tmp_path):
    rows = [(index, index) for index in range(2000)]
    kept = {share: set(read(tmp_path, text_of(rows), thin=share, seed=3).cells["n"]) for share in (0.1, 0.2, 0.7)}
    assert kept[0.1] < kept[0.2] < kept[0.7]
    for share, found in kept.items():
        assert len(found) == pytest.approx(2000 * share, rel=0.2)
    assert set(read(tmp_path, text_of(rows), thin=0.1, seed=4).cells["n"]) != kept[0.1]


def test_whole_seconds_are_spread_and_stay_in_order_with_their_cells(tmp_path):
    text = text_of([(index // 50, index) for index in range(200)])
    table = read(tmp_path, text, jitter_s=1.0, seed=5)
    assert list(table.after_s) == sorted(table.after_s)
    assert [int(each) for each in table.after_s] == [index // 50 for index in range(200)]
    assert [n // 50 for n in table.cells["n"]] == [index // 50 for index in range(200)]
    assert len(set(table.after_s)) == 200
    assert read(tmp_path, text, jitter_s=1.0, seed=5).after_s == table.after_s
    assert read(tmp_path, text, jitter_s=1.0, seed=6).after_s != table.after_s
    assert table.notes == ()


# -- in a scenario


def test_notes_of_a_trace_reach_whoever_reads_the_figures(tmp_path):
    (tmp_path / "t.csv").write_text("t,n\n5,1\n4,0\n4,x\n")
    trace = "{file: t.csv, columns: {time: t, output: n, prompt: n}, where: {n: {not: 0}}, skip_bad: 1, " + TOKENS + "}"
    arrivals, notes = load(tmp_path, f"{{trace: {trace}}}")
    assert list(arrivals.service_s) == [1001.0]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("trace", "problem"),
    [
        ("begin: 2023-11-16", "begin: expected a time of the file: a number of time_unit, from 0 to 1e+15"),
        ("end: soon", 'end: expected a number >= 0 or a time such as 2023-11-16T18:40Z, found "soon"'),
        ("end: -1", "end: expected a number >= 0 or a time"),
        ("origin: last", "origin: expected first, zero, a number >= 0 or a time"),
        ("sort: false", "sort: expected true or refuse, found false"),
        ("thin: 0", "thin: expected a number above 0 to 1, found 0"),
        ("skip_bad: -1", "skip_bad: expected an integer from 0 to"),
        ("preset: azure", "preset: expected one of azure-llm-2023,"),
        ("columns: [t]", "columns: expected a mapping with keys of time, prompt"),
        ("columns: {token: t}", "columns.token: expected one of time, prompt"),
        ("columns: {time: 3}", "columns.time: expected a name"),
        ("columns: {service: n}", "columns.service: expected no column of service times where service_s is given"),
        ("service_unit: end", "service_unit: expected left out, as columns names no service"),
    ],
)
def test_keys_that_make_no_sense_are_refused_at_their_path(tmp_path, trace, problem):
    (tmp_path / "t.csv").write_text("TIMESTAMP\n1\n")
    unit = "" if "time_unit" in trace else ", time_unit: ms"
    message = refused(tmp_path, f"{{trace: {{file: t.csv, service_s: 1, {trace}{unit}}}}}")
    assert message.startswith(f"deployments[0].requests.trace.{problem}"), message


def test_the_end_of_a_request_is_no_date(tmp_path):
    trace = "{file: t.csv, time_unit: iso, service_unit: end, columns: {service: n}}"
    message = refused(tmp_path, f"{{trace: {trace}}}")
    assert "requests.trace.service_unit: expected one of s, ms, us, ns, min, h, days where time_unit is iso" in message


def test_a_number_is_no_time_of_a_file_with_dates(tmp_path):
    (tmp_path / "t.csv").write_text("TIMESTAMP\n2023-11-16\n")
    message = refused(tmp_path, "{trace: {file: t.csv, service_s: 1, time_unit: iso, begin: 5}}")
    assert "requests.trace.begin: expected a time of the file: YYYY-MM-DD hh:mm:ss, found 5" in message


# -- durations that stand in the file


def test_a_request_takes_as_long_as_its_row_says(tmp_path):
    (tmp_path / "t.csv").write_text("t,took,until\n10,1500,12\n20,250,20\n")
    arrivals, _ = load(tmp_path, "{trace: {file: t.csv, columns: {time: t, service: took}, service_unit: ms}}")
    assert list(arrivals.service_s) == [1.5, 0.25]
    arrivals, _ = load(tmp_path, "{trace: {file: t.csv, columns: {time: t, service: until}, service_unit: end}}")
    assert list(arrivals.service_s) == [2, 0]
    arrivals, _ = load(
        tmp_path, "{trace: {file: t.csv, columns: {time: t, service: until}, service_unit: end, time_unit: min}}"
    )
    assert list(arrivals.service_s) == [120, 0]
    (tmp_path / "t.csv").write_text("t,took,until\n10,1500,12\n20,250,18\n")
    message = refused(tmp_path, "{trace: {file: t.csv, columns: {time: t, service: until}, service_unit: end}}")
    assert message.endswith("t.csv:3: until: expected an end, found one 2 s before its begin")


# -- what a request has of its own


def run(folder: Path, columns: str, deployment: str, seed: int = 1):
    (folder / "t.csv").write_text("t,p,hit,o,who,patience\n0,3,2,1,a,5\n0,3,5,2,b,0.5\n0,1,0,1,a,1500\n9,1,0,1,b,1500\n")
    trace = f"{{trace: {{file: t.csv, begin_s: 100, columns: {{time: t, {columns}}}, {TOKENS}}}}}"
    text = "duration_s: 9000\n" + SCENARIO.replace(
        "target_replicas: 1%s", f"target_replicas: 2, requests: {trace}, {deployment}"
    )
    scenario = parse_scenario(text, str(folder / "s.yaml"))
    arrivals = load_arrivals(scenario, folder, seed)
    finished = Run(scenario, arrivals)
    finished.go()
    return arrivals["llm"], finished.world.deployments["llm"].requests.counts


OWN = "prompt: p, output: o"


def test_cached_tokens_of_a_prompt_take_no_time(tmp_path):
    arrivals, _ = run(tmp_path, f"{OWN}, cached: hit", "max_ongoing_requests: 9")
    assert list(arrivals.service_s) == [1001, 2000, 1001, 1001]


def test_a_request_is_given_up_when_its_own_time_is_over(tmp_path):
    _, counts = run(tmp_path, f"{OWN}, timeout: patience", "max_ongoing_requests: 9")
    assert (counts.done, counts.expired) == (2, 2)


def test_the_router_is_told_of_sessions_of_the_trace(tmp_path, monkeypatch):
    told = []
    tell = RequestQueue.tell
    monkeypatch.setattr(RequestQueue, "tell", lambda queue, event: (told.append(event), tell(queue, event)))

    def keys(columns: str, deployment: str):
        told.clear()
        run(tmp_path, columns, f"routing_policy: affinity{deployment}")
        return [event.key for event in told if isinstance(event, RequestArrived)]

    assert keys(f"{OWN}, session: patience", "") == ["session 0", "session 1", "session 2", "session 2"]
    assert keys(OWN, ", sessions: 2") == ["session 0", "session 1", "session 0", "session 1"]
    with pytest.raises(ScenarioError, match="sessions: expected nothing, as the trace has a column of sessions"):
        run(tmp_path, f"{OWN}, session: who", "routing_policy: affinity, sessions: 2")


# -- presets


MOONCAKE = "".join(
    f'{{"timestamp": {1000 * index}, "input_length": {index + 1}, "output_length": 5, "hash_ids": [1, 2]}}\n'
    for index in range(200)
)
AZURE_2024 = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2024-05-10 00:{index // 60:02}:{index % 60:02}.009930+00:00,{index + 1},5\n" for index in range(200)
)
BURST_1 = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" + "".join(
    f"{index},ChatGPT,{index + 1},{0 if index % 10 == 5 else 5},1,Conversation log\n" for index in range(200)
)
BURST_2 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens\n" + "".join(
    f"{index},s{index % 7},2.5,ChatGPT,{index + 1},5\n" for index in range(200)
)


def excerpt(folder: Path, path: Path) -> str:
    with path.open() as file:
        (folder / path.name).write_text("".join(itertools.islice(file, 201)))
    return path.name


@pytest.mark.parametrize(
    ("preset", "name", "content", "count"),
    [
        ("azure-llm-2023", "azure_llm_2023_code.csv", None, 200),
        ("azure-llm-2024", "t.csv", AZURE_2024, 200),
        ("mooncake", "t.jsonl", MOONCAKE, 200),
        ("burstgpt", "t.csv", BURST_1, 180),
        ("burstgpt", "t2.csv", BURST_2, 200),
    ],
)
def test_published_requests_are_read_by_their_names(tmp_path, preset, name, content, count):
    if content is None:
        excerpt(tmp_path, DATA / name)
    else:
        (tmp_path / name).write_text(content)
    arrivals, notes = load(tmp_path, f"{{trace: {{preset: {preset}, file: {name}, {TOKENS}}}}}")
    assert len(arrivals) == count
    assert arrivals.at_s[0] < 1.0
    if content is not None:
        assert arrivals.service_s[0] == 5001.0
        assert arrivals.at_s[-1] == pytest.approx(199, abs=1)
    assert [each.partition(": ")[2] for each in notes] == {
        "mooncake": ["hash_ids is not read"],
        "burstgpt": ["where leaves out 20 of 200 rows"] if content is BURST_1 else [],
    }.get(preset, [])


def test_what_a_preset_says_of_service_times_is_for_want_of_better(tmp_path):
    (tmp_path / "t.csv").write_text(BURST_2)
    assert set(load(tmp_path, "{trace: {preset: burstgpt, file: t.csv}}")[0].service_s) == {2.5}
    assert set(load(tmp_path, "{trace: {preset: burstgpt, file: t.csv, service_s: 1}}")[0].service_s) == {1}
    arrivals, _ = load(
        tmp_path, "{trace: {preset: burstgpt, file: t.csv, jitter_s: 0, columns: {time: Elapsed time}, limit: 3}}"
    )
    assert list(arrivals.at_s) == [0, 0, 0]
    (tmp_path / "t.csv").write_text(BURST_1)
    message = refused(tmp_path, "{trace: {preset: burstgpt, file: t.csv}}")
    assert message.endswith('expected a column "Elapsed time", or service_s in the scenario, found neither')


def test_pods_of_a_cluster_are_requests_that_take_until_they_are_deleted():
    folder = ROOT / "tests" / "excerpts"
    arrivals, _ = load(folder, "{trace: {preset: alibaba-openb-pods, file: alibaba_openb_pods_200.csv}}")
    assert len(arrivals) == 200
    assert arrivals.service_s[0] == 12537496.0


def test_published_rates_are_read_by_their_name(tmp_path):
    name = excerpt(tmp_path, DATA / "servegen_clients_m-small_day1.csv")
    rates = f"{{rates: {{preset: servegen, file: {name}, where: {{client_id: 5}}, scale: 0.01, service_s: 1}}}}"
    arrivals, _ = load(tmp_path, rates)
    assert len(arrivals) > 500
    text = SCENARIO % "" + f"traffic: {{clients: {{preset: servegen, scale: 0.01, for_s: 600, service_s: 1, file: {name}}}}}\n"
    scenario = parse_scenario(text, str(tmp_path / "s.yaml"))
    found = load_arrivals(scenario, tmp_path, 1)
    assert len(found["llm"]) > 500
    assert notes_of(scenario, found) == ()


@pytest.mark.parametrize(
    ("preset", "name", "events"),
    [("stepfun-faults", "gpu_node_faults_days_000_240.csv", 200), ("bamboo-spot", "spot_nodes_aws_g4dn.csv", 76)],
)
def test_published_faults_are_read_by_their_names(tmp_path, preset, name, events):
    excerpt(tmp_path, DATA / name)
    (tmp_path / "s.yaml").write_text(SCENARIO % "" + f"fault_trace: {{preset: {preset}, file: {name}}}\n")
    trace = load_scenario(tmp_path / "s.yaml").fault_trace
    assert trace is not None
    assert trace.events is not None
    assert len(trace.events) == events
    assert trace.cluster_size == (400 if preset == "stepfun-faults" else None)


def test_faults_in_any_order_and_in_dates_are_the_same_faults(tmp_path):
    rows = [
        "2024-03-30T00:00:10Z,down,a",
        "2024-03-30T00:01:40Z,up,a",
        "2024-03-30T00:00:50Z,down,b",
        "2024-03-30T01:00:00Z,up,b",
    ]
    (tmp_path / "f.csv").write_text("time,event,node\n" + "\n".join(rows))
    form = "file: f.csv, cluster_size: 9, map: first, time_unit: iso"

    def events(window: str = ""):
        (tmp_path / "s.yaml").write_text(SCENARIO % "" + f"fault_trace: {{{form}{window}}}\n")
        scenario = load_scenario(tmp_path / "s.yaml")
        return scenario, scenario.fault_trace.events

    scenario, found = events()
    assert list(found.at_s) == [0, 40, 90, 3590]
    assert notes_of(scenario, {}) == (f"{tmp_path / 'f.csv'}: 1 of 4 rows out of order (most 50 s): sorted",)
    assert found.window_s == 3590
    _, found = events(", begin: '2024-03-30T00:00:40Z', end: '2024-03-30T00:30:00Z'")
    assert list(found.at_s) == [0, 10, 60]
    assert found.window_s == 1760
    for window, problem in (
        (", end: '2024-03-30T00:30:00Z'", "fault_trace.begin: expected a time of the file where there is an end"),
        (", begin: 5", "fault_trace.begin: expected a time of the file: YYYY-MM-DD"),
        (", sort: refuse", "f.csv:4: time: expected times that ascend, found one 50 s back"),
    ):
        with pytest.raises(ScenarioError, match=problem):
            events(window)


def test_a_preset_sets_what_is_not_said_and_nothing_else(tmp_path):
    (tmp_path / "t.jsonl").write_text(MOONCAKE)
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write(MOONCAKE)
    arrivals, _ = load(tmp_path, f"{{trace: {{preset: mooncake, file: t.jsonl.gz, time_unit: s, limit: 3, {TOKENS}}}}}")
    assert list(arrivals.at_s) == [0, 1000, 2000]
    trace = f"{{preset: mooncake, file: t.jsonl, columns: {{output: input_length}}, limit: 1, {TOKENS}}}"
    assert list(load(tmp_path, f"{{trace: {trace}}}")[0].service_s) == [1001.0]
    assert len(PRESETS) == 8


def test_a_file_without_a_first_row_lacks_every_column_that_it_may_lack(tmp_path):
    columns = {"n": ("n", Numbers(0, 1))}
    for name, problem in (("t.jsonl", "expected at least one request, found none"), ("t.csv", "found an empty file")):
        (tmp_path / name).write_text("")
        with pytest.raises(ValueError, match=problem):
            read_table(tmp_path / name, Reading(time="t"), columns, ("n",))
    (tmp_path / "t.csv").write_text('"t"x')
    with pytest.raises(ValueError, match=r"t.csv:1: expected a CSV file, but"):
        read_table(tmp_path / "t.csv", Reading(time="t"), columns, ("n",))
    with pytest.raises(ValueError, match=r"none.csv: cannot be read"):
        read_table(tmp_path / "none.csv", Reading(time="t"), columns, ("n",))


OF_MODELS = """
nodes: [{name: n, count: 8, gpus: 8}]
every_deployment:
  target_replicas: 1
  requests: {trace: {file: t.csv, begin_s: 5, columns: {time: at, service: s, model: who}%s}}
deployments: [{name: small}, {name: large}]
applications: [{name: shop, deployments: [{name: other}]}]
"""


def of_models(folder, rows, more=""):
    (folder / "t.csv").write_text("at,s,who\n" + "".join(f"{at},{service_s},{who}\n" for at, service_s, who in rows))
    scenario = parse_scenario(OF_MODELS % more, str(folder / "s.yaml"))
    found = load_arrivals(scenario, folder, 1)
    return {name: list(zip(each.at_s, each.service_s, strict=True)) for name, each in found.items()}, notes_of(scenario, found)


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_of_several_models_is_shared_out_among_their_deployments(tmp_path, seed):
    stream = random.Random(seed)
    names = ["small", "large", "other", "nobody's"]
    rows = [(at, service, names[at] if at < 4 else stream.choice(names)) for at, service in enumerate(range(1, 60))]
    found, notes = of_models(tmp_path, rows)
    for name in names[:3]:
        id_ = "shop/other" if name == "other" else name
        assert found[id_] == [(at + 5.0, service) for at, service, who in rows if who == name], (
            "times count from the first of all"
        )
        assert any(note.endswith(f"{len(found[id_])} of 59 rows are for {id_}") for note in notes)


def test_thinning_a_trace_of_several_models_keeps_rows_of_the_whole(tmp_path):
    rows = [(each, each + 1, ("small", "large", "other")[each % 3]) for each in range(90)]
    whole, _ = of_models(tmp_path, rows)
    thinned, _ = of_models(tmp_path, rows, ", thin: 0.5, origin: zero")
    for name, each in thinned.items():
        assert set(each) <= set(whole[name])


def test_a_model_of_which_the_file_has_no_row_is_told_with_those_that_it_has(tmp_path):
    with pytest.raises(ScenarioError) as caught:
        of_models(tmp_path, [(each, 1, "small" if each else "m") for each in range(3)])
    place = "deployments[1].requests.trace.file"
    assert str(caught.value) == f'{place}: {tmp_path}/t.csv: who: expected a row of "large", found those of "m", "small"'
