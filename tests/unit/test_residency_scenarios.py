"""Scenarios of models: what a file may say, and the one line for what it may not."""

import json
import re
from pathlib import Path

import pytest
import yaml

from executors.simulator.fields import FieldProblem
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.settings import parse_setting
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.residency.whole import ResidencyScenario
from executors.simulator.scenario.structuring import structure_residency

SIZES = "model,weight_gb,kv_cache_bytes_per_token\nsmall,2.5,1000\nlarge,150,2000000\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,2,T4\nb,64000,2048,8,V100\nc,64000,1024,2,T4\n"
CLIENTS = "client_id,timestamp,rate\nx,0,1\ny,0,3\nx,600,1\nz,600,100\n"
GROUP = {"name": "n", "gpus": 2, "gpu_gb": 80}
MODEL = {"name": "m", "weight_gb": 10}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("sizes.csv", SIZES), ("nodes.csv", NODES), ("clients.csv", CLIENTS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def read(folder: Path | None = None, **keys) -> ResidencyScenario:
    data = {"duration_s": 60, "nodes": [GROUP], "models": [MODEL], **keys}
    return structure_residency({key: value for key, value in data.items() if value is not None}, folder or Path())


def problem(folder: Path | None = None, **keys) -> str:
    with pytest.raises(FieldProblem) as found:
        read(folder, **keys)
    return f"{path_text(found.value.keys)}: {found.value}"


def source_of(folder: Path, **keys) -> Source:
    path = folder / "s.yaml"
    path.write_text(json.dumps({"duration_s": 60, "nodes": [GROUP], "models": [MODEL], **keys}, indent=1))
    return read_source(path)


# -- nodes


def test_nodes_are_written_out_with_the_memory_of_their_gpus_and_their_cache():
    (group, alone) = (
        {**GROUP, "count": 2, "cpu_cache_gb": 5, "really_gpu_gb": 79.5},
        {"name": "x", "gpus": 1, "gpu_gb": 24, "labels": {"zone": "a"}},
    )
    shapes = read(nodes=[group, alone]).shapes
    assert [shape.node_id for shape in shapes] == ["n-0", "n-1", "x"]
    assert shapes[0].gpu_bytes == (80 * 10**9,) * 2
    assert shapes[0].really_gpu_bytes == (79_500_000_000,) * 2
    assert shapes[0].cpu_bytes == 5 * 10**9
    assert shapes[2].labels == {"zone": "a"}


def test_nodes_are_taken_from_a_list_by_type_the_first_ones_first(folder):
    taken = {"file": "nodes.csv", "take": {"T4": 2, "V100": 1}, "gpu_gb": {"T4": 16, "V100": 32}, "cpu_cache_share": 0.5}
    shapes = read(folder, nodes=None, node_list=taken).shapes
    assert [(shape.node_id, shape.kind, len(shape.gpu_bytes)) for shape in shapes] == [
        ("a", "T4", 2),
        ("b", "V100", 8),
        ("c", "T4", 2),
    ]
    assert shapes[1].gpu_bytes[0] == 32 * 10**9
    assert shapes[1].cpu_bytes == 2**30


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"nodes": []}, "nodes: expected at least one group of nodes, or node_list, found []"),
        ({"nodes": [GROUP, GROUP]}, "nodes: expected node names of which none stands for two nodes"),
        ({"nodes": [{**GROUP, "gpu_gb": 0}]}, "nodes[0].gpu_gb: expected a number above 0"),
        ({"nodes": [{**GROUP, "really_gpu_gb": 81}]}, "nodes[0].really_gpu_gb: expected at most gpu_gb, which is 80, found 81"),
        ({"nodes": [{**GROUP, "labels": {"zone": 3}}]}, "nodes[0].labels.zone: expected a name"),
        ({"nodes": [{**GROUP, "gpu_mb": 5}]}, 'nodes[0].gpu_mb: expected a known key such as "gpu_gb"'),
    ],
)
def test_what_is_wrong_with_nodes_is_told_with_its_place(keys, expected):
    assert problem(**keys).startswith(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"take": {"T4": 3}}, 'nodes.csv: expected 3 nodes of type "T4", found 2: take fewer'),
        ({"take": {"T4": 0}}, "node_list.take.T4: expected an integer from 1 to 100000, found 0"),
        ({"take": {}}, "node_list.take: expected a mapping of types of GPUs to numbers"),
        ({"take": {"V100": 1}}, "node_list.gpu_gb: expected the memory of a GPU of type V100 too, in GB: V100: 32"),
        ({"file": "gone.csv"}, "gone.csv: cannot be read: No such file"),
        ({"gpus_column": "gpus"}, 'nodes.csv:1: expected a column "gpus", found no such column'),
    ],
)
def test_what_is_wrong_with_a_list_of_nodes_says_what_to_do(folder, change, expected):
    listed = {"file": "nodes.csv", "take": {"T4": 1}, "gpu_gb": {"T4": 16}, **change}
    found = problem(folder, nodes=None, node_list=listed)
    assert found.startswith("node_list")
    assert expected in found


# -- models


def test_models_take_their_sizes_from_a_file_unless_they_say_them_themselves(folder):
    models = [{"name": "large", "kv_cache_tokens": 1000}, {"name": "small", "weight_gb": 3, "working_gb": 1}]
    sizes = read(folder, model_sizes={"file": "sizes.csv"}, models=models).sizes
    assert (sizes["large"].weight_bytes, sizes["large"].working_bytes) == (150 * 10**9, 2 * 10**9)
    assert (sizes["small"].weight_bytes, sizes["small"].working_bytes) == (3 * 10**9, 10**9)


def test_without_models_all_of_the_file_are_there_as_every_model_says(folder):
    scenario = read(folder, models=None, model_sizes={"file": "sizes.csv"}, every_model={"min_hot_s": 7, "kv_cache_tokens": 10})
    assert [(model.name, model.min_hot_s) for model in scenario.models] == [("small", 7), ("large", 7)]
    assert scenario.sizes["small"].working_bytes == 10_000


def test_a_model_says_otherwise_than_every_model():
    every = {"priority": 3, "min_hot_s": 60}
    (first, second) = read(every_model=every, models=[MODEL, {**MODEL, "name": "o", "priority": 9}]).models
    assert (first.priority, first.min_hot_s, second.priority, second.min_hot_s) == (3, 60, 9, 60)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"models": []}, "models: expected at least one model, or model_sizes with a file that has some"),
        ({"models": [MODEL, MODEL]}, 'models[1].name: expected a name that no other model has, found "m"'),
        ({"models": [{"name": "m"}]}, 'models[0].weight_gb: expected the size of "m" in GB, as there is no model_sizes'),
        ({"models": [{"name": "a#b", "weight_gb": 1}]}, "models[0].name: expected a model name"),
        ({"models": [{**MODEL, "weight_gb": 0}]}, "models[0].weight_gb: expected a number above 0 to 9e+06, found 0"),
        ({"models": [{**MODEL, "weight_gb": 1e30}]}, "models[0].weight_gb: expected a number above 0 to 9e+06, found 1e+30"),
        ({"models": [{**MODEL, "kv_cache_tokens": 5}]}, "models[0].kv_cache_tokens: expected 0, as model_sizes does not say"),
        ({"models": [{**MODEL, "priority": 101}]}, "models[0].priority: expected an integer from 0 to 100, found 101"),
        ({"every_model": {"priority": 101}}, "every_model.priority: expected an integer from 0 to 100, found 101"),
        ({"models": [{**MODEL, "node_labels": []}]}, "models[0].node_labels: expected a mapping"),
        ({"models": [{**MODEL, "prioritty": 1}]}, 'models[0].prioritty: expected a known key such as "priority"'),
    ],
)
def test_what_is_wrong_with_models_is_told_with_its_place(keys, expected):
    assert problem(**keys).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model,weight_gb\na,0\n", "sizes.csv:2: weight_gb: expected a number from 1e-09 to 9e+06"),
        ("model,weight_gb\na,1e30\n", "sizes.csv:2: weight_gb: expected a number from"),
        ("model,weight_gb\na,1\na,2\n", 'sizes.csv:3: model: expected each model once, found "a" again'),
        ("name,weight_gb\na,1\n", 'sizes.csv:1: expected a column "model"'),
    ],
)
def test_what_is_wrong_with_a_file_of_sizes_is_told_with_its_line(folder, text, expected):
    (folder / "sizes.csv").write_text(text)
    found = problem(folder, model_sizes={"file": "sizes.csv", "kv_cache_column": None}, models=None)
    assert found.startswith("model_sizes.file: ")
    assert expected in found


def test_a_model_larger_than_any_node_is_no_mistake_of_the_file():
    assert read(models=[{"name": "huge", "weight_gb": 5000}]).sizes["huge"].weight_bytes == 5000 * 10**9


# -- what happens


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"faults": [{"kind": "node_loss", "at": 1, "node": "x"}]}, "faults[0].node: expected one of the nodes n, found"),
        ({"faults": [{"kind": "load_failure", "at": 1, "model": "x"}]}, "faults[0].model: expected one of the models m, found"),
        (
            {"faults": [{"kind": "replica_hang", "at": 1}]},
            "faults[0].kind: expected one of node_loss, replica_crash",
        ),
        ({"changes": [{"at": 1, "model": "m"}]}, "changes[0]: expected one of replicas and evict"),
        ({"changes": [{"at": 1, "model": "m", "evict": "HOT"}]}, "changes[0].evict: expected one of WARM, COLD"),
        ({"changes": [{"at": 1, "model": "x", "replicas": 1}]}, "changes[0].model: expected one of the models m"),
        ({"traffic": {}}, "traffic: expected one of zipf: {...}, clients: {...}"),
        ({"loading": {"disk_gb_per_s": 0}}, "loading.disk_gb_per_s: expected a number above 0"),
        ({"policy": {"max_load_failures": 0}}, "policy.max_load_failures: expected an integer >= 1"),
        ({"duration_s": None}, "duration_s: expected a number of seconds, as there are no requests"),
        ({"deployments": []}, "deployments: expected one of the keys"),
    ],
)
def test_what_is_wrong_with_the_rest_is_told_with_its_place(keys, expected):
    assert problem(**keys).startswith(expected)


# -- traffic


def test_zipf_shares_fall_off_with_the_place_in_the_list(folder):
    models = [{"name": name, "weight_gb": 1} for name in ("a", "b", "c")]
    zipf = {"rate_per_s": 20, "exponent": 1, "for_s": 3000, "service_s": 1}
    source = source_of(folder, models=models, traffic={"zipf": zipf})
    arrivals = source.model_arrivals(source.residency())
    counts = [len(arrivals[name]) for name in ("a", "b", "c")]
    assert sum(counts) == pytest.approx(60_000, rel=0.02)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.05)


def test_the_busiest_client_stands_for_the_first_model_and_comes_when_it_came(folder):
    models = [{"name": name, "weight_gb": 1} for name in ("a", "b", "c")]
    clients = {"file": "clients.csv", "service_s": 1, "scale": 0.1}
    source = source_of(folder, models=models, traffic={"clients": clients})
    arrivals = source.model_arrivals(source.residency())
    assert len(arrivals["a"]) == pytest.approx(6000, rel=0.1)  # z, of the second window only
    assert 600 <= arrivals["a"].at_s[0] < arrivals["a"].at_s[-1] < 1200
    assert len(arrivals["b"]) == pytest.approx(180, rel=0.4)  # y, of the first
    assert arrivals["b"].at_s[-1] < 600
    assert arrivals["c"].at_s[-1] > 600  # x, of both


def test_requests_of_a_model_come_before_its_share(folder):
    own = {"poisson": {"rate_per_s": 1, "for_s": 10, "service_s": 1}}
    models = [{"name": "a", "weight_gb": 1, "requests": own}, {"name": "b", "weight_gb": 1}]
    zipf = {"rate_per_s": 100, "for_s": 100, "service_s": 1}
    source = source_of(folder, models=models, traffic={"zipf": zipf})
    arrivals = source.model_arrivals(source.residency())
    assert len(arrivals["a"]) < 30
    assert len(arrivals["b"]) > 9_000


def test_more_models_than_clients_are_told_what_to_do(folder):
    models = [{"name": name, "weight_gb": 1} for name in "abcd"]
    source = source_of(folder, models=models, traffic={"clients": {"file": "clients.csv", "service_s": 1}})
    with pytest.raises(ScenarioError, match=r"traffic\.clients\.most: expected at most 3, as .* most: 3 leaves the others"):
        source.model_arrivals(source.residency())
    fewer = source_of(folder, models=models, traffic={"clients": {"file": "clients.csv", "service_s": 1, "most": 3}})
    assert len(fewer.model_arrivals(fewer.residency())["d"]) == 0


def test_another_models_requests_change_nothing_of_the_others(folder):
    zipf = {"rate_per_s": 2, "for_s": 100, "service_s": {"exponential": {"mean": 1}}}
    own = {"poisson": {"rate_per_s": 5, "for_s": 10, "service_s": 1}}
    first = source_of(folder, models=[MODEL, {"name": "o", "weight_gb": 1, "requests": own}], traffic={"zipf": zipf})
    found = first.model_arrivals(first.residency())["m"]
    other = {"poisson": {"rate_per_s": 9, "for_s": 10, "service_s": 1}}
    second = source_of(folder, models=[MODEL, {"name": "o", "weight_gb": 1, "requests": other}], traffic={"zipf": zipf})
    assert second.model_arrivals(second.residency())["m"] == found


# -- files and settings


def test_what_is_wrong_in_a_file_names_file_and_line(folder):
    source = source_of(folder, models=[{"name": "m", "weight_gb": "ten"}])
    with pytest.raises(ScenarioError, match=r'models\[0\]\.weight_gb: expected .* found "ten" \(.*s\.yaml:\d+\)$'):
        source.residency()


def test_a_scenario_of_models_is_told_from_one_of_deployments(folder):
    assert source_of(folder).of_models
    path = folder / "d.yaml"
    path.write_text("nodes: [{name: n, gpus: 1}]\ndeployments: [{name: a, target_replicas: 1}]\n")
    assert not read_source(path).of_models
    with pytest.raises(ScenarioError, match="expected a scenario of deployments, found one of models, which simulate, compare"):
        source_of(folder).scenario()


def test_the_page_about_scenarios_shows_one_that_is_right():
    root = Path(__file__).parents[2]
    blocks = re.findall(r"```yaml\n(.*?)```", (root / "docs" / "simulating.md").read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [block for block in blocks if "every_model" in block]
    scenario = structure_residency(yaml.safe_load(text), root / "examples")
    assert [model.name for model in scenario.models] == ["Llama-3.1-8B", "Llama-3.1-70B", "my-own"]


def test_settings_change_every_model_or_one_or_the_whole(folder):
    source = source_of(folder)
    settings = ("min_hot_s=5", "models[m].priority=7", "policy.retry_s=2", "loading.disk_gb_per_s=1")
    changed = Source(source.name, source.text, source.folder, tuple(parse_setting("--set", text) for text in settings))
    scenario = changed.residency()
    assert (scenario.models[0].min_hot_s, scenario.models[0].priority) == (5, 7)
    assert (scenario.policy.retry_s, scenario.loading.disk_gb_per_s) == (2, 1)
    wrong = Source(source.name, source.text, source.folder, (parse_setting("--set", "min_hots=5"),))
    with pytest.raises(ScenarioError, match='min_hots: expected a known key such as "min_hot_s"'):
        wrong.residency()


def test_the_planner_is_told_bytes():
    policy = read(policy={"in_flight_cost_gb": 1.5, "recent_cost_gb": 2, "idle_to_warm_s": 60}).policy.for_planner
    assert (policy.in_flight_cost_bytes, policy.recent_cost_bytes, policy.idle_to_warm_s) == (1_500_000_000, 2 * 10**9, 60)
