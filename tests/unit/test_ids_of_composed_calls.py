"""A request's id goes with all that it leads to."""

import contextvars

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu.requests import handle as calling
from executors.ray_gpu.requests.request_context import enter


@pytest.mark.parametrize(
    ("answered", "said", "expected"), [("r-7", {}, "r-7"), ("r-7", {"request_id": "r-8"}, "r-8"), ("", {}, "")]
)
def test_what_is_called_for_a_request_has_its_id_unless_it_is_given_one(monkeypatch, answered, said, expected):
    begun = []
    monkeypatch.setattr(calling, "submit", lambda call, *_: begun.append(call))
    monkeypatch.setattr(calling, "caller_of", lambda *_: None)
    handle = calling.DeploymentHandle("chat/llm").options(**said)

    def serve():
        enter(answered, "")
        handle.remote()
        handle.broadcast("reset")

    contextvars.copy_context().run(serve)
    assert [call.about.request_id for call in begun] == [expected, expected]
