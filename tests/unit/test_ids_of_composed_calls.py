"""A request's id goes with all that it leads to."""

import contextvars
import os
import uuid

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.ray_gpu import delete, deployment, get_request_context, run
from executors.ray_gpu.requests import handle as calling
from executors.ray_gpu.requests.request_context import enter
from executors.ray_gpu.requests.request_ids import made_up


@pytest.mark.parametrize(("answered", "said", "expected"), [("r-7", {}, "r-7"), ("r-7", {"request_id": "r-8"}, "r-8")])
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
    assert [call.name for call in begun] == [expected, expected]


def test_each_call_that_nobody_has_named_has_an_id_of_its_own_which_its_replica_knows():
    @deployment
    class Names:
        def __call__(self):
            return get_request_context().request_id

        def stream(self):
            yield get_request_context().request_id

    handle = run(Names.bind(), _local_testing_mode=True)
    try:
        responses = [handle.remote() for _ in range(3)]
        assert [each.result(60) for each in responses] == [each.request_id for each in responses]
        stream = handle.options(method_name="stream", stream=True).remote()
        assert list(stream) == [stream.request_id]
        ids = {each.request_id for each in (*responses, stream)}
        assert len(ids) == 4
        assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in ids)
        assert handle.options(request_id="mine").remote().result(60) == "mine"
    finally:
        delete("default")


def test_a_process_that_was_forked_gives_no_id_that_its_parent_gives():
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(theirs, "\n".join(made_up() for _ in range(3)).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(theirs)
    with os.fdopen(ours) as told:
        found = told.read().split()
    assert len({*found, *(made_up() for _ in range(3))}) == 6
