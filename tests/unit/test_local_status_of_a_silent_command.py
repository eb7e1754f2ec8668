"""`rankcore status --executor local` says where it is from what a command wrote down last."""

import json

import msgspec
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.cli.verbs import status_here
from executors.ray_gpu.errors import NoAnswerError
from executors.ray_gpu.overview import Status
from executors.run import api

STATUS = Status(namespace="n", epoch=1, controller_pid=7, journal=None, deployments={})


@pytest.mark.parametrize(
    ("locked", "answers", "said"),
    [
        (True, True, ""),
        (True, False, "wrote that down last: it is stopped, and does not answer"),
        (False, False, "the same `rankcore run` takes"),
    ],
)
def test_a_status_that_was_written_down_is_not_taken_for_an_answer(tmp_path, monkeypatch, capsys, locked, answers, said):
    def asked(*_, **__):
        if not answers:
            raise NoAnswerError("it is stopped, and does not answer")
        return STATUS

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / api.STATUS).write_bytes(msgspec.json.encode(STATUS))
    monkeypatch.setattr(api, "namespace_folder", lambda _: tmp_path)
    monkeypatch.setattr(api, "is_locked", lambda _: locked)
    monkeypatch.setattr(api, "_asked", asked)
    status_here("n", as_json=False)
    printed = capsys.readouterr()
    assert "namespace n" in printed.out
    assert printed.err == ""
    assert (said in printed.out, "does not answer" in printed.out) == (True, said.endswith("answer"))
    status_here("n", as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["controller_pid"] == 7
    assert (said in printed.err, printed.err == "") == (True, not said)
