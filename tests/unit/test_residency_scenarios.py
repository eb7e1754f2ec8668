"""Scenarios with residency: what a file may say, and the one line for what it may not."""

import json
import re
from pathlib import Path

import attrs
import pytest
import yaml

from executors.simulator.fields import FieldProblem
from executors.simulator.load.sources import Source, read_source
from executors.simulator.questions.settings import parse_setting, read_settings
from executors.simulator.residency.run import ResidencyRun
from executors.simulator.scenario.entries import entries_of
from executors.simulator.scenario.errors import ScenarioError, path_text
from executors.simulator.scenario.model import Scenario
from executors.simulator.scenario.models import is_old, upgraded
from executors.simulator.scenario.structuring import structure_scenario
from rankcore.residency import ResidencyPolicy

SIZES = "model,weight_gb,kv_cache_bytes_per_token\nsmall,2.5,1000\nlarge,150,2000000\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,64000,1024,2,T4\nb,64000,2048,8,V100\nc,64000,1024,2,T4\n"
CLIENTS = "client_id,timestamp,rate\nx,0,1\ny,0,3\nx,600,1\nz,600,100\n"
GROUP = {"name": "n", "gpus": 2, "gpu_gb": 80}
M = {"name": "m", "residency": {"weight_gb": 10}}


def of(name: str, **residency) -> dict:
    """A deployment with weights of so many GB."""
    return {"name": name, "residency": {"weight_gb": 1, **residency}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("sizes.csv", SIZES), ("nodes.csv", NODES), ("clients.csv", CLIENTS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def read(folder: Path | None = None, **keys) -> Scenario:
    data = {"duration_s": 60, "nodes": [GROUP], "deployments": [M], **keys}
    return structure_scenario({key: value for key, value in data.items() if value is not None}, folder or Path())


def problem(folder: Path | None = None, **keys) -> str:
    with pytest.raises(FieldProblem) as found:
        read(folder, **keys)
    return f"{path_text(found.value.keys)}: {found.value}"


def source_of(folder: Path, **keys) -> Source:
    path = folder / "s.yaml"
    path.write_text(json.dumps({"duration_s": 60, "nodes": [GROUP], "deployments": [M], **keys}, indent=1))
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
        ({"nodes": [GROUP, GROUP]}, "nodes[1].name: expected a node name that no other group makes"),
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


def test_a_node_of_the_list_that_is_written_out_too_is_refused(folder):
    listed = {"file": "nodes.csv", "take": {"T4": 1}, "gpu_gb": {"T4": 16}}
    twice = problem(folder, nodes=[{**GROUP, "name": "a"}], node_list=listed)
    assert twice.startswith('nodes: expected node names of which none stands for two nodes, found "a"')


# -- weights


def test_weights_take_their_sizes_from_a_file_unless_they_say_them_themselves(folder):
    deployments = [{"name": "large", "residency": {"kv_cache_tokens": 1000}}, of("small", weight_gb=3, working_gb=1)]
    sizes = read(folder, weight_sizes={"file": "sizes.csv"}, deployments=deployments).sizes
    assert (sizes["large"].weight_bytes, sizes["large"].working_bytes) == (150 * 10**9, 2 * 10**9)
    assert (sizes["small"].weight_bytes, sizes["small"].working_bytes) == (3 * 10**9, 10**9)


def test_without_deployments_all_of_the_file_are_there_as_every_deployment_says(folder):
    every = {"max_ongoing_requests": 3, "residency": {"min_hot_s": 7, "kv_cache_tokens": 10}}
    scenario = read(folder, deployments=None, weight_sizes={"file": "sizes.csv"}, every_deployment=every)
    found = [(each.spec.name, each.max_ongoing_requests, each.residency.min_hot_s) for each in scenario.deployments]
    assert found == [("small", 3, 7), ("large", 3, 7)]
    assert scenario.sizes["small"].working_bytes == 10_000


def test_a_deployment_says_otherwise_than_every_deployment():
    every = {"idempotent": True, "residency": {"priority": 3, "min_hot_s": 60}}
    first, second = read(every_deployment=every, deployments=[M, {**of("o", priority=9), "idempotent": False}]).deployments
    found = [(each.idempotent, each.residency.priority, each.residency.min_hot_s) for each in (first, second)]
    assert found == [(True, 3, 60), (False, 9, 60)]


def test_with_residency_nobody_is_there_before_somebody_calls_unless_that_is_said():
    none, two = read(deployments=[M, {**of("o"), "target_replicas": 2}]).deployments
    assert (none.spec.target_replicas, two.spec.target_replicas) == (0, 2)


def test_applications_have_deployments_of_their_own():
    applications = [{"name": "chat", "deployments": [M]}, {"name": "code", "deployments": [{**M, "max_queued_requests": 5}]}]
    faults = [{"kind": "replica_crash", "at": 1, "deployment": "code/m"}]
    scenario = read(applications=applications, every_deployment={"max_retries": 7}, faults=faults)
    assert [each.spec.name for each in scenario.deployments] == ["m", "chat/m", "code/m"]
    assert {each.max_retries for each in scenario.deployments} == {7}
    alone = read(deployments=None, applications=applications[:1])
    assert [entry.deployment for entry in entries_of(alone)] == ["chat/m"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"deployments": []}, "deployments: expected at least one deployment"),
        ({"deployments": [M, M]}, 'deployments[1].name: expected a name that no other deployment has, found "m"'),
        (
            {"deployments": [{"name": "m", "residency": {}}]},
            'deployments[0].residency.weight_gb: expected the size of "m" in GB, as',
        ),
        ({"deployments": [of("a#b")]}, "deployments[0].name: expected a name"),
        (
            {"deployments": [of("a/b")]},
            'deployments[0].name: expected a name without /, as a deployment of application "a" stands in applications[].dep',
        ),
        ({"deployments": [of("a@b")]}, "deployments[0].name: expected free of '/', '#' and '@'"),
        (
            {"deployments": [of("m", weight_gb=0)]},
            "deployments[0].residency.weight_gb: expected a number above 0 to 9e+06, found 0",
        ),
        ({"deployments": [of("m", weight_gb=1e30)]}, "deployments[0].residency.weight_gb: expected a number above 0 to 9e+06"),
        (
            {"deployments": [of("m", kv_cache_tokens=5)]},
            "deployments[0].residency.kv_cache_tokens: expected 0, as weight_sizes does",
        ),
        (
            {"deployments": [of("m", priority=101)]},
            "deployments[0].residency.priority: expected an integer from 0 to 100, found 101",
        ),
        (
            {"every_deployment": {"residency": {"priority": 101}}},
            "every_deployment.residency.priority: expected an integer from 0",
        ),
        ({"every_deployment": {"name": "m"}}, "every_deployment: expected a mapping with keys of a deployment, but no name"),
        ({"deployments": [of("m", node_labels=[])]}, "deployments[0].residency.node_labels: expected a mapping"),
        (
            {"deployments": [of("m", prioritty=1)]},
            'deployments[0].residency.prioritty: expected a known key such as "priority"',
        ),
        ({"deployments": [{**M, "max_surge": 1}]}, "deployments[0].max_surge: expected 0 with residency"),
        ({"deployments": [{**M, "placement": "pack_ranks"}]}, "deployments[0].placement: expected None with residency"),
        ({"deployments": [M, {"name": "o", "target_replicas": 1}]}, "deployments[1].residency: expected weights too, as other"),
        ({"applications": [{"name": "a/b", "deployments": [M]}]}, "applications[0].name: expected a name"),
        (
            {"applications": [{"name": "a", "deployments": []}]},
            "applications[0].deployments: expected a list with at least one",
        ),
        (
            {"applications": [{"name": "a", "deployments": [of("m", gpus=0)]}]},
            "applications[0].deployments[0].residency.gpus: ",
        ),
    ],
)
def test_what_is_wrong_with_weights_is_told_with_its_place(keys, expected):
    assert problem(**keys).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model,weight_gb\na,0\n", "sizes.csv:2: weight_gb: expected a number from 1e-09 to 9e+06"),
        ("model,weight_gb\na,1e30\n", "sizes.csv:2: weight_gb: expected a number from"),
        ("model,weight_gb\na,1\na,2\n", 'sizes.csv:3: model: expected each name once, found "a" again'),
        ("name,weight_gb\na,1\n", 'sizes.csv:1: expected a column "model"'),
    ],
)
def test_what_is_wrong_with_a_file_of_sizes_is_told_with_its_line(folder, text, expected):
    (folder / "sizes.csv").write_text(text)
    found = problem(folder, weight_sizes={"file": "sizes.csv", "kv_cache_column": None}, deployments=None)
    assert found.startswith("weight_sizes.file: ")
    assert expected in found


def test_weights_larger_than_any_node_are_no_mistake_of_the_file():
    assert read(deployments=[of("huge", weight_gb=5000)]).sizes["huge"].weight_bytes == 5000 * 10**9


# -- what happens


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"faults": [{"kind": "node_loss", "at": 1, "node": "x"}]}, "faults[0].node: expected one of the nodes n, found"),
        (
            {"faults": [{"kind": "load_failure", "at": 1, "deployment": "x"}]},
            "faults[0].deployment: expected one of the deployments m, found",
        ),
        (
            {"faults": [{"kind": "replica_hang", "at": 1, "deployment": "m"}]},
            "faults[0].kind: expected one of replica_crash, replica_unready, node_loss, controller_crash, load_failure, m",
        ),
        (
            {"faults": [{"kind": "replica_crash", "at": 1, "deployment": "m", "rank": 0}]},
            "faults[0].rank: expected neither rank nor replica_id: with residency it is the oldest",
        ),
        ({"changes": [{"at": 1, "deployment": "m"}]}, "changes[0]: expected delete: true, or fields"),
        ({"changes": [{"at": 1, "deployment": "m", "evict": "HOT"}]}, "changes[0].evict: expected one of WARM, COLD"),
        (
            {"changes": [{"at": 1, "deployment": "m", "evict": "WARM", "version": "2"}]},
            "changes[0].evict: expected no other change",
        ),
        (
            {"changes": [{"at": 1, "deployment": "x", "target_replicas": 1}]},
            "changes[0].deployment: expected one of the deploy",
        ),
        ({"traffic": {}}, "traffic: expected one of zipf: {...}, clients: {...}"),
        ({"loading": {"disk_gb_per_s": 0}}, "loading.disk_gb_per_s: expected a number above 0"),
        ({"nodes": [{"name": "n", "gpus": 2}]}, "nodes[0].gpu_gb: expected the memory of a GPU in GB, of one group"),
        ({"network": {"duplication": 0.5}}, "network.duplication: expected 0, as deployments have residency"),
        ({"fault_rates": [{"kind": "node_loss", "nodes": "n", "mtbf_s": 9, "mttr_s": 9}]}, "fault_rates: expected nothing, as"),
        ({"duration_s": None}, "duration_s: expected a number of seconds, as there are no requests"),
    ],
)
def test_what_is_wrong_with_the_rest_is_told_with_its_place(keys, expected):
    assert problem(**keys).startswith(expected)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"changes": [{"at": 1, "deployment": "p", "evict": "WARM"}]},
            "changes[0].evict: expected nothing, as p has no residency",
        ),
        (
            {"faults": [{"kind": "load_failure", "at": 1, "deployment": "p"}]},
            "faults[0].kind: expected another one, as no deployment has residency",
        ),
        (
            {"displacement": {"turn_factor": 2}},
            "displacement: expected nothing, as no deployment has residency",
        ),
    ],
)
def test_without_residency_nothing_happens_to_weights(keys, expected):
    assert problem(deployments=[{"name": "p", "target_replicas": 1}], **keys).startswith(expected)


# -- traffic


def test_zipf_shares_fall_off_with_the_place_in_the_list(folder):
    deployments = [of(name) for name in "abc"]
    zipf = {"rate_per_s": 20, "exponent": 1, "for_s": 3000, "service_s": 1}
    source = source_of(folder, deployments=deployments, traffic={"zipf": zipf})
    arrivals = source.arrivals(source.scenario())
    counts = [len(arrivals[name]) for name in ("a", "b", "c")]
    assert sum(counts) == pytest.approx(60_000, rel=0.02)
    assert counts[0] / counts[1] == pytest.approx(2, rel=0.05)
    assert counts[0] / counts[2] == pytest.approx(3, rel=0.05)


def test_the_busiest_client_stands_for_the_first_deployment_and_comes_when_it_came(folder):
    deployments = [of(name) for name in "abc"]
    clients = {"file": "clients.csv", "service_s": 1, "scale": 0.1}
    source = source_of(folder, deployments=deployments, traffic={"clients": clients})
    arrivals = source.arrivals(source.scenario())
    assert len(arrivals["a"]) == pytest.approx(6000, rel=0.1)  # z, of the second window only
    assert 600 <= arrivals["a"].at_s[0] < arrivals["a"].at_s[-1] < 1200
    assert len(arrivals["b"]) == pytest.approx(180, rel=0.4)  # y, of the first
    assert arrivals["b"].at_s[-1] < 600
    assert arrivals["c"].at_s[-1] > 600  # x, of both


def test_requests_of_a_deployment_come_before_its_share(folder):
    own = {"poisson": {"rate_per_s": 1, "for_s": 10, "service_s": 1}}
    deployments = [{**of("a"), "requests": own}, of("b")]
    zipf = {"rate_per_s": 100, "for_s": 100, "service_s": 1}
    source = source_of(folder, deployments=deployments, traffic={"zipf": zipf})
    arrivals = source.arrivals(source.scenario())
    assert len(arrivals["a"]) < 30
    assert len(arrivals["b"]) > 9_000


def test_more_deployments_than_clients_are_told_what_to_do(folder):
    deployments = [of(name) for name in "abcd"]
    source = source_of(folder, deployments=deployments, traffic={"clients": {"file": "clients.csv", "service_s": 1}})
    with pytest.raises(ScenarioError, match=r"traffic\.clients\.most: expected at most 3, as .* most: 3 leaves the others"):
        source.arrivals(source.scenario())
    fewer = source_of(folder, deployments=deployments, traffic={"clients": {"file": "clients.csv", "service_s": 1, "most": 3}})
    assert len(fewer.arrivals(fewer.scenario())["d"]) == 0


def test_another_deployments_requests_change_nothing_of_the_others(folder):
    zipf = {"rate_per_s": 2, "for_s": 100, "service_s": {"exponential": {"mean": 1}}}
    own = {"poisson": {"rate_per_s": 5, "for_s": 10, "service_s": 1}}
    first = source_of(folder, deployments=[M, {**of("o"), "requests": own}], traffic={"zipf": zipf})
    found = first.arrivals(first.scenario())["m"]
    other = {"poisson": {"rate_per_s": 9, "for_s": 10, "service_s": 1}}
    second = source_of(folder, deployments=[M, {**of("o"), "requests": other}], traffic={"zipf": zipf})
    assert second.arrivals(second.scenario())["m"] == found


# -- files and settings


def test_what_is_wrong_in_a_file_names_file_and_line(folder):
    source = source_of(folder, deployments=[of("m", weight_gb="ten")])
    expected = r'deployments\[0\]\.residency\.weight_gb: expected .* found "ten" \(.*s\.yaml:\d+\)$'
    with pytest.raises(ScenarioError, match=expected):
        source.scenario()


def test_the_page_about_scenarios_shows_one_that_is_right():
    root = Path(__file__).parents[2]
    blocks = re.findall(r"```yaml\n(.*?)```", (root / "docs" / "simulating.md").read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [block for block in blocks if "every_deployment" in block]
    scenario = structure_scenario(yaml.safe_load(text), root / "examples")
    assert [each.spec.name for each in scenario.deployments] == ["Llama-3.1-8B", "Llama-3.1-70B", "my-own"]


def test_settings_change_every_deployment_or_one_or_the_whole(folder):
    source = source_of(folder, applications=[{"name": "a", "deployments": [of("o", min_hot_s=1)]}])
    settings = ("min_hot_s=5", "deployments[m].residency.priority=7", "start_backoff_s=2", "loading.disk_gb_per_s=1")
    changed = Source(source.name, source.text, source.folder, tuple(parse_setting("--set", text) for text in settings))
    scenario = changed.scenario()
    assert [each.residency.min_hot_s for each in scenario.deployments] == [5, 5]
    assert [each.residency.priority for each in scenario.deployments] == [7, 0]
    assert {each.spec.start_backoff_s for each in scenario.deployments} == {2}
    assert scenario.loading.disk_gb_per_s == 1
    wrong = Source(source.name, source.text, source.folder, (parse_setting("--set", "min_hots=5"),))
    with pytest.raises(ScenarioError, match='min_hots: expected a known key such as "min_hot_s"'):
        wrong.scenario()


def test_the_planner_is_told_bytes():
    needs = {"weight_gb": 1.5, "working_gb": 2, "idle_to_warm_s": 60, "keep": "COLD"}
    (entry,) = entries_of(read(deployments=[of("m", **needs)]))
    found = entry.residency
    assert (found.weight_bytes, found.working_bytes, found.idle_to_warm_s, found.keep) == (1_500_000_000, 2 * 10**9, 60, "COLD")


# -- scenarios of models, as older releases had them


OLD = {
    "duration_s": 60,
    "nodes": [GROUP],
    "model_sizes": {"file": "sizes.csv", "model_column": "model"},
    "every_model": {"min_hot_s": 1, "max_ongoing_requests": 4},
    "models": [{"name": "small", "priority": 3, "replicas": 2}, {"name": "large", "min_hot_s": 60}],
    "policy": {"retry_s": 9, "max_load_failures": 2, "idle_to_warm_s": 40, "recent_use_s": 5},
    "dispatch": {"wait_for_room_s": 600, "turn_s": 7},
    "faults": [{"kind": "replica_crash", "at": 1, "model": "small"}],
    "changes": [{"at": 1, "model": "small", "replicas": 3}, {"at": 2, "model": "large", "evict": "WARM"}],
}


@pytest.mark.parametrize("settings", [(), ("displacement={turn_factor: 2, reserves: false}",)])
def test_the_planner_of_a_run_weighs_displacement_as_the_scenario_says_and_as_ever_where_it_does_not(folder, settings):
    source = Source("s.yaml", yaml.safe_dump({"duration_s": 9, "nodes": [GROUP], "deployments": [M]}), str(folder))
    scenario = attrs.evolve(source, settings=tuple(parse_setting("--set", each) for each in settings)).scenario()
    run = ResidencyRun(scenario, source.arrivals(scenario))
    run.world.start()
    policy = run.world.control.state.weights.planner.policy
    assert policy == (ResidencyPolicy(turn_factor=2.0, reserves=False) if settings else ResidencyPolicy())


def test_each_rule_of_displacement_that_is_compared_is_of_a_few_lines_and_holds_for_any_scenario(folder):
    rules = Path(__file__).resolve().parents[2] / "bench" / "policies"
    for name in ("least-recently-used", "greedy", "fixed-turns"):
        settings = read_settings(rules / f"{name}.yaml")
        scenario = Source(
            "s.yaml", yaml.safe_dump({"duration_s": 9, "nodes": [GROUP], "deployments": [M]}), "", settings
        ).scenario()
        assert scenario.displacement.policy != ResidencyPolicy()
        assert scenario.deployments[0].residency.min_hot_s in (5.0, 60.0, 3600.0)


def test_a_file_of_settings_that_is_empty_or_a_folder_is_called_by_its_name(folder):
    (folder / "none.yaml").write_text("")
    for path in (folder / "none.yaml", folder):
        with pytest.raises(ScenarioError, match=r"expected a file of settings, found (an empty file|a directory)"):
            read_settings(path)


def test_a_scenario_of_models_is_read_as_one_of_deployments_with_residency(folder):
    path = folder / "old.yaml"
    path.write_text(json.dumps(OLD))
    source = read_source(path)
    assert source.is_old
    assert not source_of(folder).is_old
    scenario = source.scenario()
    small, large = scenario.deployments
    assert (small.spec.target_replicas, small.residency.priority, small.residency.min_hot_s) == (2, 3, 7)  # turn_s
    assert (large.residency.min_hot_s, large.residency.wait_for_room_s, large.residency.idle_to_warm_s) == (60, 600, 40)
    assert {each.idempotent for each in scenario.deployments} == {True}
    assert {each.max_ongoing_requests for each in scenario.deployments} == {4}
    assert {(each.spec.start_backoff_s, each.spec.max_start_failures) for each in scenario.deployments} == {(9, 2)}
    assert scenario.sizes["small"].weight_bytes == 2_500_000_000
    assert [fault.deployment for fault in scenario.faults] == ["small"]
    assert [(change.deployment, change.fields, change.evict) for change in scenario.changes] == [
        ("small", {"target_replicas": 3}, None),
        ("large", {}, "WARM"),
    ]


def test_what_is_upgraded_is_not_old_and_is_not_changed_again():
    new = upgraded(OLD)
    assert not is_old(new)
    assert upgraded({**OLD, "models": None})["deployments"] is None  # nonsense stays nonsense, for the reader to refuse


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"policy": {"retries": 1}}, "policy: expected one of the keys"),
        (
            {"models": [{"name": "m", "weight_gb": "ten"}]},
            'deployments[0].residency.weight_gb: expected a number above 0 to 9e+06, found "ten"',
        ),
        (
            {"faults": [{"kind": "load_failure", "at": 1, "model": "x"}]},
            "faults[0].deployment: expected one of the deployments",
        ),
    ],
)
def test_what_is_wrong_with_an_old_one_is_told_in_the_words_of_now(folder, keys, expected):
    with pytest.raises(FieldProblem) as found:
        structure_scenario(upgraded({**OLD, **keys}), folder)
    assert f"{path_text(found.value.keys)}: {found.value}".startswith(expected)
