"""A file of applications: what it says is read, and what is wrong with it is one line with file, line and key."""

from pathlib import Path

import pytest
import yaml

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.apps.file import AppsFile, checked, read_apps
from executors.apps.schema import apps_schema
from executors.ray_gpu.building import OPTIONS
from executors.ray_gpu.environment import known_fields
from executors.simulator.scenario.errors import ScenarioError
from executors.simulator.scenario.yamlfile import parse

FILE = """\
applications:
  - name: shop
    route_prefix: /shop
    import_path: models:app
    args: {size: large}
    deployments:
      - name: Chat
        num_replicas: 2
        residency: {weights: /models/chat}
  - import_path: models:other
"""

USUAL = {
    "num_replicas": "auto",
    "max_unavailable": "25%",
    "max_queued_requests": -1,
    "user_config": {"any": ["thing"]},
    "autoscaling_config": {"max_replicas": 3, "policy": "m:f"},
    "residency": {"weights": "/w", "priority": 3},
    "static_placement": {"placement_group": "g", "replica_bundle_mapping": {"0": [0, 1]}},
    "ray_actor_options": {"num_cpus": 0, "runtime_env": {"env_vars": {"A": "b"}}},
    "hand_over": "overlap",
    "routing_policy": "round_robin",
}
WRONG = {
    "num_replicas": -1,
    "max_unavailable": "a quarter",
    "hand_over": "soon",
    "residency": {"priority": 3},
    "static_placement": {"placement_group": "g"},
    "num_replica": 2,
}


def written(tmp_path, text=FILE):
    path = tmp_path / "apps.yaml"
    path.write_text(text)
    return path


def test_what_a_file_says_is_read(tmp_path):
    shop, other = read_apps(written(tmp_path), OPTIONS).config.applications
    assert (shop.name, shop.route_prefix, shop.import_path, shop.args) == ("shop", "/shop", "models:app", {"size": "large"})
    assert shop.deployments == [{"name": "Chat", "num_replicas": 2, "residency": {"weights": "/models/chat"}}]
    assert (other.name, other.route_prefix, other.deployments) == ("default", "/", [])


def test_how_http_is_served_is_as_it_is_unless_the_file_says(tmp_path):
    said = "http_options: {port: 8080}\nproxy_location: EveryNode\n"
    assert read_apps(written(tmp_path, said + FILE), OPTIONS).config.http == {"port": 8080, "location": "EveryNode"}
    assert read_apps(written(tmp_path), OPTIONS).config.http is None


@pytest.mark.parametrize(
    ("replaced", "by", "line", "problem"),
    [
        ("import_path: models:app", "import_pth: models:app", 4, "applications[0].import_pth: expected a known key such as"),
        ("name: shop", "name: 3", 2, "applications[0].name: expected text, found 3"),
        ("args: {size: large}", "args: large", 5, '[0].args: expected a mapping of names to values, found "large"'),
        ("args: {size: large}", "args: [x]", 5, '[0].args: expected a mapping of names to values, found ["x"]'),
        ("route_prefix: /shop", "route_prefix: []", 3, "[0].route_prefix: expected text or nothing, found []"),
        ("  - import_path: models:other", "  - name: other", 10, "[1]: expected the key 'import_path', found nothing"),
        (
            "args: {size: large}",
            "runtime_env: {env_var: {A: b}}",
            5,
            "runtime_env.env_var: expected a known key such as 'env_vars'",
        ),
        (
            "num_replicas: 2",
            "ray_actor_options: {runtime_env: {pips: [x]}}",
            8,
            "[0].deployments[0].ray_actor_options.runtime_env.pips: expected a known key such as 'pip'",
        ),
        ("num_replicas: 2", "num_replica: 2", 8, "[0].deployments[0].num_replica: expected a known key such as 'num_replicas'"),
        (
            "      - name: Chat",
            "      - version: '1'",
            7,
            "[0].deployments[0].name: expected the name of a deployment",
        ),
        ("{weights: /models/chat}", "/models/chat", 9, "applications[0].deployments[0].residency: expected a mapping"),
        (
            "  - import_path: models:other",
            "  - {name: shop, import_path: a:b}",
            10,
            "[1].name: expected a name that occurs",
        ),
        ("applications:", "application:", 1, "application: expected a known key such as 'applications'"),
        ("route_prefix: /shop", "name: shop", 3, "applications[0].name: expected each key once"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_line_and_key(tmp_path, replaced, by, line, problem):
    assert replaced in FILE
    path = written(tmp_path, FILE.replace(replaced, by, 1))
    with pytest.raises(ScenarioError) as raised:
        read_apps(path, OPTIONS, known_fields())
    said = str(raised.value)
    assert problem in said
    assert said.endswith(f"({path}:{line})")
    assert "\n" not in said


def test_keys_of_runtime_env_are_for_plugins_to_know_where_there_are_some(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_RUNTIME_ENV_PLUGINS", "[]")
    assert known_fields() is None
    path = written(tmp_path, FILE.replace("args: {size: large}", "runtime_env: {ours: 1}"))
    assert read_apps(path, OPTIONS, known_fields()).config.applications[0].runtime_env == {"ours": 1}


def test_a_key_of_two_lines_is_one_line_too(tmp_path):
    with pytest.raises(ScenarioError, match=r"apps\.yaml:1\)"):
        read_apps(written(tmp_path, '"a\\nb": 1\n' + FILE), OPTIONS)


def test_what_is_no_file_of_applications_is_not_called_a_scenario(tmp_path):
    with pytest.raises(ScenarioError, match="expected a file of applications, found a directory"):
        read_apps(tmp_path, OPTIONS)


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"apps\.yaml: cannot be read: No such file"):
        read_apps(tmp_path / "apps.yaml", OPTIONS)


def test_the_schema_takes_what_is_read_and_refuses_what_is_not(tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install 'rankcore[test]'")
    schema = apps_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert set(schema["$defs"]["Deployment"]["properties"]) == {*OPTIONS, "name"}
    assert validator.is_valid(yaml.safe_load(FILE))
    for option, value in USUAL.items():
        wanted = {"applications": [{"import_path": "a:b", "deployments": [{"name": "d", option: value}]}]}
        assert validator.is_valid(wanted), option
    for option, value in WRONG.items():
        wanted = {"applications": [{"import_path": "a:b", "deployments": [{"name": "d", option: value}]}]}
        assert not validator.is_valid(wanted), option
    for wrong in ({}, {"applications": [{}]}, {"applications": [], "http_options": {"prot": 1}}, {"applications": [], "a": 1}):
        assert not validator.is_valid(wrong), wrong


def test_the_file_of_the_page_is_what_the_schema_takes_and_is_read(tmp_path):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install 'rankcore[test]'")
    page = (Path(__file__).resolve().parents[2] / "docs" / "applications.md").read_text()
    text = page.partition("```yaml\n")[2].partition("```")[0]
    assert len(read_apps(written(tmp_path, text), OPTIONS, known_fields()).config.applications) == 2
    data, _ = parse(text, "the page")
    jsonschema.Draft202012Validator(apps_schema()).validate(data)


def test_parsed_data_is_checked_alike_and_its_errors_have_keys_alone():
    with pytest.raises(ScenarioError) as raised:
        checked(AppsFile({"applications": [{"import_path": "a:b", "name": 3}]}, "body"), OPTIONS)
    assert str(raised.value) == "applications[0].name: expected text, found 3"
    with pytest.raises(ScenarioError, match=r"^body: expected the key 'applications', found nothing$"):
        AppsFile({}, "body")
