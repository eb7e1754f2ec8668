"""Logs: the options, what stands on a line, and lines of requests."""

import json
import logging
import logging.handlers

import attrs
import pytest

from executors.ray_gpu.errors import InvalidDeploymentError
from executors.ray_gpu.grpc_proxy.options import GrpcOptions
from executors.ray_gpu.http.options import HttpOptions
from executors.ray_gpu.logs import process
from executors.ray_gpu.logs.config import UNASKED, LoggingConfig, as_plain, from_plain, logging_config_of
from executors.ray_gpu.logs.process import log_from_here, path_of
from executors.ray_gpu.logs.shown_name import shown_name
from executors.ray_gpu.proxies.options import ProxyOptions

WHO = {"application": "chat", "deployment": "llm", "replica": "chat/llm#1.0", "rank": 3, "request_id": "of-now"}


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Configures loggers that are nobody's, and reads the file."""
    monkeypatch.setattr(process, "LOGGERS", ("tested",))
    monkeypatch.setattr(process, "ACCESS", "tested.access")

    def begin(**options):
        config = LoggingConfig(logs_dir=str(tmp_path / "new"), **options)
        access = log_from_here(config, "replica", "chat/llm#1.0", lambda: WHO)
        return access, lambda: path_of(config, "replica", "chat/llm#1.0").read_text().splitlines()

    yield begin
    for name in ("tested", "tested.access"):
        logging.getLogger(name).handlers.clear()


def test_a_line_says_who_wrote_it_with_which_rank_and_for_which_request(log):
    access, lines = log()
    logging.getLogger("tested.own").info("loaded %d layers", 12)
    access.note("GET", "/x", "200", 0.0123, "r-1")
    access.write()
    own, request = lines()
    assert own.startswith("INFO ")
    assert own.endswith("chat/llm#1.0 rank=3 of-now -- loaded 12 layers")
    assert request.endswith("chat/llm#1.0 rank=3 r-1 -- GET /x 200 12.3ms"), "of the request that it is about"


def test_a_request_can_forge_no_line_and_say_nothing_to_a_terminal(log):
    access, lines = log()
    access.note("GET", "/x\nINFO forged \x1b[2J\x9b\u2028é", "200", 0.0, "r\n1\x1b")
    access.note("GET", "/" + "x" * 1000, "200", 0.0, "r-2")
    access.write()
    forged, long = lines()
    assert forged.endswith("rank=3 r\\x0a1\\x1b -- GET /x\\x0aINFO forged \\x1b[2J\\x9b\\u2028é 200 0.0ms")
    assert long.endswith(f"GET /{'x' * 199} 200 0.0ms"), "the beginning of a path is enough"


def test_each_process_has_a_file_of_its_own_whatever_it_is_called(tmp_path):
    config = LoggingConfig(logs_dir=str(tmp_path))
    names = ("é/m#1.0", "ü/m#1.0", "a_b/c#1.0", "a/b_c#1.0", "a/b#1.0", "a/b#1_0", "é" * 100 + "/m#1.0", "é" * 100 + "/m#1.1")
    paths = [path_of(config, "replica", each) for each in names]
    assert len(set(paths)) == len(names)
    for path in paths:
        assert path.parent == tmp_path
        path.with_name(f"{path.name}.{process.FILES_KEPT}").touch()
    assert path_of(config, "replica", "chat/llm#1.0").name == "replica_chat%2Fllm%231%2E0.log"


def test_json_has_an_object_a_line_with_the_traceback_and_what_else_was_asked_for(log):
    _, lines = log(encoding="JSON", additional_log_standard_attrs=["threadName"])
    try:
        raise ValueError("as asked")
    except ValueError:
        logging.getLogger("tested").exception("failed")
    (line,) = map(json.loads, lines())
    assert WHO.items() <= line.items()
    assert (line["levelname"], line["message"], line["threadName"]) == ("ERROR", "failed", "MainThread")
    assert "ValueError: as asked" in line["exc_text"]


def test_what_is_below_the_level_is_left_out_and_a_process_that_says_nothing_has_no_file(log, tmp_path):
    access, _ = log(log_level="WARNING")
    logging.getLogger("tested").info("nothing")
    assert access is None, "lines of requests are INFO"
    assert not (tmp_path / "new").exists()


def test_without_an_access_log_there_is_nothing_to_note_requests_with(log):
    assert log(enable_access_log=False)[0] is None


def test_a_folder_that_cannot_be_made_costs_the_file_alone(tmp_path, log, capsys):
    (tmp_path / "new").write_text("a file")
    log()
    logging.getLogger("tested").info("still said")
    assert "still said" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"encoding": "XML"}, "encoding must be TEXT or JSON, got 'XML'"),
        ({"log_level": "LOUD"}, "log_level must be one of"),
        ({"log_level": 17}, "log_level must be one of"),
        ({"logs_dir": 3}, "logs_dir must be a folder's path, got 3"),
        ({"enable_access_log": "no"}, "enable_access_log must be True or False, got 'no'"),
        ({"additional_log_standard_attrs": ["colour"]}, "'colour' is none of them"),
        ({"additional_log_standard_attrs": "name"}, "must be a list"),
        ({"colour": 1}, "logging_config has no 'colour'; there are: encoding"),
        ("INFO", "logging_config must be a LoggingConfig or a dict"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_what_it_may_be(wrong, text):
    with pytest.raises(InvalidDeploymentError) as refused:
        logging_config_of(wrong)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_ray_serves_own_object_is_taken_with_the_same_meaning():
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed: pip install 'ray[serve]'")
    given = schema.LoggingConfig(encoding="JSON", log_level=10, logs_dir="/logs", enable_access_log=False)
    ours = logging_config_of(given)
    assert ours == LoggingConfig(encoding="JSON", log_level="DEBUG", logs_dir="/logs", enable_access_log=False)
    assert as_plain(LoggingConfig()).keys() == schema.LoggingConfig().model_dump().keys()


def test_it_comes_to_other_processes_as_it_is_and_a_newer_ones_fields_are_left_out():
    config = LoggingConfig(log_level=logging.ERROR, additional_log_standard_attrs=["name"])
    assert from_plain(as_plain(config) | {"newer": 1}) == config


def test_what_proxies_are_to_serve_is_the_same_once_a_controller_has_stored_it_and_another_read_it():
    logging = as_plain(LoggingConfig(encoding="JSON", additional_log_standard_attrs=["name", "lineno"]))
    grpc = GrpcOptions(servicer_functions=["a.b"], sys_path=["/a"], runtime_env={"env_vars": {"A": "b"}})
    options = ProxyOptions(http=HttpOptions(port=8001), grpc=grpc, logging=logging)
    # Or the next controller would replace proxies that serve as they should, and nobody listens meanwhile.
    assert ProxyOptions.of(json.loads(json.dumps(attrs.asdict(options)))) == options
    assert from_plain(None) is None
    assert not UNASKED.enable_access_log


def test_the_shown_name_is_the_deployment_with_its_rank_and_the_application_where_it_is_not_the_default_one():
    assert shown_name("default", "llm", "default/llm#1.0", 3) == "llm#rank3"
    assert shown_name("chat", "llm", "chat/llm#1.0", 0) == "chat/llm#rank0"
    assert shown_name("chat", "llm", "chat/llm#1.0", None) == "chat/llm#1.0"
