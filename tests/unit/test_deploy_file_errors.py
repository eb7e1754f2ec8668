"""`rankcore deploy FILE`: what is wrong with a file as a whole is one line with key and line, and no cluster is asked."""

import pytest
import typer

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.deploy import deploy
from executors.ray_gpu import api, connection

MODULE = "from executors.ray_gpu import deployment\n@deployment\ndef f(): ...\napp = f.bind()\n"
FILE = """\
http_options: {port: 8080}
proxy_location: HeadOnly
applications:
  - name: one
    import_path: MODULE:app
    route_prefix: /x
  - name: two
    import_path: MODULE:app
    route_prefix: /y
"""


@pytest.fixture
def text(tmp_path, monkeypatch):
    (tmp_path / "an_app_of_a_file.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "connect", lambda **_: None)
    return FILE.replace("MODULE", "an_app_of_a_file")


def never(*_, **__):
    raise AssertionError("the cluster was asked")


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("found", "by", "line", "problem"),
    [
        ("port: 8080", "port: many", 1, "http_options: http option port must be an integer from 1 to 65535, got 'many'"),
        ("port: 8080", "prot: 8080", 1, "http_options: HttpOptions: no option 'prot'; the options are: "),
        (
            "HeadOnly",
            "Nowhere",
            2,
            "proxy_location: http option location must be one of 'HeadOnly', 'EveryNode', ",
        ),
        ("/y", "/x/", 9, "applications[1].route_prefix: expected one that application 'one' does not have, found '/x'"),
        ("/y", "y", 9, "applications[1].route_prefix: route_prefix must be a path such as '/' or '/llm', got 'y'"),
        ("name: two", "name: t/o", 7, "applications[1].name: the application's name must be"),
    ],
)
def test_it_is_one_line_with_key_and_line(text, tmp_path, monkeypatch, capsys, dry_run, found, by, line, problem):
    monkeypatch.setattr(api, "plan_packages", never)
    monkeypatch.setattr(api, "deploy_packages", never)
    assert text.count(found) == 1
    (tmp_path / "apps.yaml").write_text(text.replace(found, by))
    with pytest.raises(typer.Exit) as ended:
        deploy("apps.yaml", name=None, replicas=None, replace=False, prune=False, dry_run=dry_run, wait=False, namespace="n")
    said = capsys.readouterr().err.splitlines()
    assert (ended.value.exit_code, len(said)) == (2, 1)
    assert said[0].startswith(f"rankcore: error: {problem}")
    assert said[0].endswith(f"(apps.yaml:{line})")
