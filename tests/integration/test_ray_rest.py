"""The REST server on a real cluster: with the requests that Ray Serve's own command line and KubeRay send, and with ours.

The tests of this module go on where the one before ended: one cluster, one server, one application.
"""

import json
import os
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from executors import ray_gpu as serve
from tests.free_ports import free_ports
from tests.ray_local import PATIENCE_S, clean_up, eventually

pytestmark = pytest.mark.ray

TOKEN = "a token of 22 letters!".replace(" ", "-")
CONFIG = {
    "applications": [
        {
            "name": "shop",
            "import_path": "tests.ray_rest_apps:app",
            "deployments": [{"name": "Echo", "num_replicas": 2}],
        }
    ]
}
APPLICATIONS = "/api/serve/applications/"


def shell(*arguments):
    """The lines that the command prints."""
    from typer.testing import CliRunner

    from executors.cli.app import app

    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


class Client:
    def __init__(self, port):
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, method, path, body=None, **headers):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        asked = urllib.request.Request(self.address + path, data, method=method)
        for key, value in {"content-type": "application/json", "authorization": f"Bearer {TOKEN}", **named}.items():
            asked.add_header(key, value)
        try:
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as found:
                return found.status, json.loads(found.read() or b"null"), found.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null"), error.headers

    def get(self, path):
        status, found, _ = self.ask("GET", path)
        assert status == 200, found
        return found

    def is_running(self):
        shop = self.get(APPLICATIONS)["applications"].get("shop", {})
        return shop.get("status") == "RUNNING" and all(
            replica["state"] == "RUNNING" for each in shop["deployments"].values() for replica in each["replicas"]
        )


@pytest.fixture(scope="module")
def client(ray_cluster):
    (port,) = free_ports(1)
    serve.start_rest({"port": port, "bearer_token": TOKEN})
    try:
        yield Client(port)
        assert serve.stop_rest()
        assert not serve.stop_rest(), "it is gone"
    finally:
        clean_up(serve)


@pytest.fixture
def serve_cli(client, monkeypatch):
    """Ray Serve's own command line, with our token as Ray's."""
    from click.testing import CliRunner
    from ray.serve.scripts import cli

    def invoke(*arguments):
        monkeypatch.setattr("ray.dashboard.modules.dashboard_sdk.get_auth_headers_if_auth_enabled", _token, raising=False)
        done = CliRunner().invoke(cli, [*arguments, "--address", client.address], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    return invoke


def _token(*_):
    return {"Authorization": f"Bearer {TOKEN}"}


def test_serves_client_finds_nothing_before_anything_is_deployed(client, serve_cli):
    assert client.get(APPLICATIONS)["applications"] == {}
    assert "applications: {}" in serve_cli("status")
    assert "No configuration was found" in serve_cli("config")


def test_a_config_from_serves_command_line_comes_up(client, serve_cli, tmp_path):
    file = tmp_path / "apps.yaml"
    file.write_text(json.dumps(CONFIG))
    serve_cli("deploy", str(file))
    eventually(client.is_running, "the application runs")
    assert "status: RUNNING" in serve_cli("status", "--name", "shop")
    assert "import_path: tests.ray_rest_apps:app" in serve_cli("config")
    assert [each["rank"]["rank"] for each in client.get("/api/v1/ranks")] == [0, 1]


def test_what_is_in_force_is_a_config_that_changes_nothing(client):
    config = client.get("/api/v1/config")
    assert [each["name"] for each in config["applications"]] == ["shop"]
    status, planned, headers = client.ask("POST", "/api/v1/plan", config)
    assert (status, planned["changes"]) == (200, [])
    status, _, after = client.ask("PUT", APPLICATIONS, config, if_match=headers["etag"])
    assert (status, after["etag"]) == (200, headers["etag"])


def test_a_share_of_the_replicas_is_in_force_and_said_as_serve_says_it_until_all_are_asked_for(client, serve_cli, tmp_path):
    file = tmp_path / "half.yaml"
    tracing = {"enabled": False, "sampling_ratio": 0.5}
    more = {"target_capacity": 50, "tracing_config": tracing, "controller_options": {"runtime_env": {"env_vars": {"A": "b"}}}}
    file.write_text(json.dumps({**CONFIG, **more}))
    serve_cli("deploy", str(file))
    eventually(lambda: client.is_running() and len(client.get("/api/v1/ranks")) == 1, "half of two run")
    said = client.get(APPLICATIONS)
    assert said["target_capacity"] == client.get("/api/v1/status")["target_capacity"] == 50.0
    assert said["applications"]["shop"]["deployments"]["Echo"]["target_num_replicas"] == 1
    config = client.get("/api/v1/config")
    assert (config["target_capacity"], config["tracing_config"]["sampling_ratio"]) == (50.0, 0.5)
    assert config["applications"][0]["deployments"][0]["num_replicas"] == 2, "what was asked for"
    status, planned, _ = client.ask("POST", "/api/v1/plan", config)
    assert (status, planned["changes"]) == (200, [])
    assert client.ask("PUT", APPLICATIONS, CONFIG)[0] == 200
    eventually(lambda: client.is_running() and len(client.get("/api/v1/ranks")) == 2, "both run again")
    assert client.get(APPLICATIONS)["target_capacity"] is None
    refused = {"applications": [{**CONFIG["applications"][0], "external_scaler_enabled": True}]}
    refused["applications"][0]["deployments"] = [{"name": "Echo", "num_replicas": None, "autoscaling_config": {}}]
    status, said, _ = client.ask("PUT", APPLICATIONS, refused)
    assert (status, "external_scaler_enabled cannot be had with autoscaling_config" in said["error"]) == (422, True), said


def test_bad_input_is_one_line_with_its_field_and_the_controller_never_sees_it(client):
    before = client.get("/api/v1/status")["revision"]
    scale = "/api/v1/applications/shop/deployments/Echo/scale"
    wrong = [
        ("PUT", APPLICATIONS, b"{", 422, "body"),
        ("PUT", APPLICATIONS, {"applications": [{"name": "shop"}]}, 422, "applications"),
        ("PUT", APPLICATIONS, {"applications": [{"name": "a", "import_path": "tests.ray_rest_apps:nobody"}]}, 422, "nobody"),
        ("PUT", APPLICATIONS, {**CONFIG, "http_options": {"port": "x"}}, 422, "port"),
        ("POST", scale, {"target_num_replicas": -1}, 422, "target_num_replicas"),
        ("POST", scale, {}, 422, "target_num_replicas"),
        ("POST", scale.replace("Echo", "Nobody"), {"target_num_replicas": 1}, 404, "Nobody"),
        ("GET", "/api/v1/ranks?applicatoin=shop", None, 422, "applicatoin"),
        ("GET", "/api/v1/ranks?application=nobody", None, 404, "nobody"),
        ("GET", "/api/v1/journal?after=x", None, 422, "after"),
        ("GET", "/api/v1/nowhere", None, 404, "/api/v1/nowhere"),
    ]
    for method, path, body, status, field in wrong:
        found, said, _ = client.ask(method, path, body)
        assert (found, field in said["error"]) == (status, True), (path, body, found, said)
        assert "\n" not in said["error"]
    assert client.ask("GET", "/api/v1/status", authorization="Bearer no")[0] == 401
    assert client.get("/api/v1/status")["revision"] == before


def test_a_scaling_that_is_planned_changes_nothing_and_one_that_is_asked_for_does(client):
    bigger = {"applications": [{**CONFIG["applications"][0], "deployments": [{"name": "Echo", "num_replicas": 3}]}]}
    status, planned, _ = client.ask("POST", "/api/v1/plan", bigger)
    assert status == 200, planned
    (change,) = planned["changes"]
    assert (change["deployment"], change["what"], len(change["plan"]["starts"])) == ("shop/Echo", "changed", 1)
    assert len(client.get("/api/v1/ranks")) == 2
    status, said, _ = client.ask("POST", "/api/v1/applications/shop/deployments/Echo/scale", {"target_num_replicas": 3})
    assert (status, "Scaling request received" in said["message"]) == (200, True)
    eventually(lambda: client.is_running() and len(client.get("/api/v1/ranks")) == 3, "three of them run")


def test_the_shell_steers_the_cluster_by_the_servers_address(client, monkeypatch, tmp_path):
    monkeypatch.setenv("RANKCORE_REST_TOKEN", TOKEN)
    monkeypatch.setenv("RAY_DASHBOARD_ADDRESS", client.address)
    beside = ("deploy", "tests.ray_rest_apps:app", "--name", "beside", "--route-prefix", "none")
    assert shell(*beside, "--dry-run")[0].startswith("new       beside/Echo: 2 would start")
    assert shell(*beside, "--wait")[1].startswith("beside/Echo HEALTHY, 2 of 2 running")
    assert "shop/Echo HEALTHY" in " ".join(" ".join(shell("status", "shop")).split()), "others stay"
    assert shell("scale", "shop/Echo", "3", "-a", client.address)[0].startswith("shop/Echo HEALTHY, 3 of 3")
    assert [each["name"] for each in json.loads("\n".join(shell("config", "--json")))["applications"]] == ["beside", "shop"]
    file = tmp_path / "apps.yaml"
    file.write_text(json.dumps(CONFIG))
    assert any(line.startswith("deleted   beside/Echo") for line in shell("deploy", str(file), "--wait"))
    eventually(lambda: list(client.get(APPLICATIONS)["applications"]) == ["shop"], "who is not named is gone")


def test_of_two_writers_at_once_one_wins_and_the_other_is_told_which_revision_did(client):
    *_, headers = client.ask("GET", APPLICATIONS)
    configs = [
        {"applications": [{**CONFIG["applications"][0], "deployments": [{"name": "Echo", "num_replicas": each}]}]}
        for each in (1, 4)  # neither is in force
    ]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda each: client.ask("PUT", APPLICATIONS, each, if_match=headers["etag"]), configs))
    assert sorted(status for status, *_ in answers) == [200, 412], answers
    (won,) = (each for each in answers if each[0] == 200)
    (lost,) = (each for each in answers if each[0] == 412)
    assert lost[2]["etag"] == won[2]["etag"] != headers["etag"]
    assert won[2]["etag"].strip('"') in lost[1]["error"]


def test_notes_come_as_events_and_whoever_comes_back_misses_none(client):
    def events(after, headers=()):
        asked = urllib.request.Request(f"{client.address}/api/v1/notes{after}")
        for key, value in (("authorization", f"Bearer {TOKEN}"), *headers):
            asked.add_header(key, value)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            place, found = None, []
            for line in stream:
                key, _, value = line.decode().rstrip("\n").partition(": ")
                if key == "id":
                    place = value
                    if found:
                        return place, found
                elif key == "data":
                    found.append(json.loads(value))

    place, first = events("?after=start&deployment=shop/Echo")
    assert first[0]["deployment"] == "shop/Echo"
    assert first[0]["kind"] == "applied"
    _, second = events("", [("last-event-id", place)])
    assert second[0] != first[-1]
    status, said, _ = client.ask("GET", "/api/v1/notes", last_event_id="nonsense")
    assert (status, said["field"]) == (422, "last-event-id")


def test_a_call_under_way_is_shown_with_its_age_and_ended_its_caller_is_told(client):
    eventually(client.is_running, "the application runs")
    handle = serve.get_app_handle("shop")
    response = handle.options(method_name="waits").remote()
    found = eventually(lambda: client.get("/api/v1/requests?application=shop&older_than_s=0.2")["requests"], "it is shown")
    (call,) = found
    assert (call["deployment"], call["method"]) == ("shop/Echo", "waits")
    assert call["age_s"] >= 0.2
    status, said, _ = client.ask("DELETE", f"/api/v1/requests/{call['id']}")
    assert status == 200, said
    with pytest.raises(serve.CallCancelledError, match="an operator has cancelled this call"):
        response.result(timeout_s=PATIENCE_S)
    eventually(lambda: not client.get("/api/v1/requests")["requests"], "it is gone")
    assert client.ask("DELETE", f"/api/v1/requests/{call['id']}")[0] == 404
    assert client.ask("DELETE", "/api/v1/requests/nonsense")[0] == 422
    response = handle.options(method_name="waits").remote()
    shown = eventually(lambda: [each for each in shell("requests", "shop") if "waits" in each], "the shell shows it")
    shell("cancel", shown[0].split()[-1], "--reason", "enough")
    with pytest.raises(serve.CallCancelledError, match="enough"):
        response.result(timeout_s=PATIENCE_S)
    assert handle.remote("still here").result(timeout_s=PATIENCE_S) == "still here"


def test_prometheus_reads_the_series_there(client):
    asked = urllib.request.Request(f"{client.address}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as found:
        assert (found.status, found.headers["content-type"].partition(";")[0]) == (200, "text/plain")


def test_ten_thousand_reads_ask_the_controller_for_little_and_change_no_decision(client):
    def steps():
        journal = client.get("/api/v1/status")["journal"]
        with open(journal, "rb") as file:
            return [line for line in file if b'"ClusterNote"' in line]

    eventually(client.is_running, "the application runs")
    before = steps()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: client.ask("GET", "/api/v1/ranks")[0], range(500)))
    assert found == {200}
    assert steps() == before


def test_serves_command_line_ends_all_of_it_and_the_server_stays(client, serve_cli):
    serve_cli("shutdown", "--yes")
    assert client.get(APPLICATIONS)["applications"] == {}
    status, said, _ = client.ask("GET", "/api/v1/ranks")
    assert (status, "nothing runs" in said["error"]) == (503, True)


def test_others_than_this_machine_are_let_in_with_a_token_alone(client):
    with pytest.raises(serve.InvalidDeploymentError, match=r"host '0.0.0.0' .* bearer_token \(rankcore rest --token-file"):
        serve.start_rest({"host": "0.0.0.0"})


def test_a_port_that_is_anothers_is_said_in_one_line(client):
    taken = int(client.address.rpartition(":")[2])
    with pytest.raises(serve.InvalidDeploymentError, match=f"port {taken} of 127.0.0.1 is another process's"):
        serve.start_rest({"port": taken}, namespace=f"other-{os.getpid()}")
