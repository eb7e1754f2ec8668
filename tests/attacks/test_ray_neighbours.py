"""What another user of the machine does to deployments on Ray that he sees run, and to those who look for their cluster."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.engine.reading import JournalReader
from executors.ray_gpu import names
from executors.ray_gpu.cluster_address import found_address, leave_address
from executors.ray_gpu.errors import UntrustedAddressError
from tests.attacks.ways_in import every_way_in
from tests.ray_local import ANSWER_S
from tests.second_user import NEEDS_ROOT, another_user_who, as_another_user

pytestmark = [NEEDS_ROOT, pytest.mark.ray]
ROOT = Path(__file__).parents[2]
ADDRESS = "ray_current_cluster"


@pytest.fixture
def model(serve):
    @serve.deployment(ray_actor_options={"num_cpus": 0})
    class Model:
        def __call__(self):
            return os.getpid()

    return serve.run(Model.bind(), route_prefix=None)


def endpoints():
    """Where replicas listen."""
    import ray

    found = [each for each in ray.util.list_named_actors(all_namespaces=True) if names.replica_of(each["name"]) is not None]
    return [ray.get(ray.get_actor(each["name"], namespace=each["namespace"]).describe.remote()) for each in found]


def test_nobody_else_can_put_his_socket_in_the_place_of_a_replicas(model):
    (endpoint,) = endpoints()
    assert Path(endpoint.socket_path).exists()
    assert None not in as_another_user(every_way_in, endpoint.socket_path)
    assert model.remote().result(timeout_s=ANSWER_S) == endpoint.pid


def test_nobody_else_can_switch_the_journal_off_or_have_it_written_over_a_file_of_ours(serve, tmp_path):
    import ray

    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    as_another_user(os.symlink, str(tmp_path / "ours"), str(logs / "rankcore-planted.journal.jsonl"))
    serve.start(namespace="planted", proxy_location="Disabled")
    try:
        journal = serve.status(namespace="planted").journal
        assert [each.cause.records for each in JournalReader(journal)] == [()]
        assert None not in as_another_user(every_way_in, journal)
        assert not (tmp_path / "ours").exists()
    finally:
        serve.shutdown(namespace="planted")


# -- where is the cluster?


@pytest.fixture
def rays_folder(shared_tmp, monkeypatch):
    """Ray's, as Ray makes it."""
    monkeypatch.setenv("RAY_TMPDIR", str(shared_tmp))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    folder = shared_tmp / "ray"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def lure(say, file):
    """Listen, say so in Ray's file, and tell what those send who come."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        Path(file).write_text(address)
        say(address)
        connection, _ = server.accept()
        say(len(connection.recv(1000)))


def test_nobody_is_lured_to_another_users_cluster(rays_folder):
    with another_user_who(lure, str(rays_folder / ADDRESS)) as heard:
        address = heard()
        line = [sys.executable, "-m", "executors.cli", "status"]
        done = subprocess.run(line, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120)
        socket.create_connection(address.split(":")).close()
        assert heard() == 0  # of this connection, which is the first
    assert done.returncode == 2
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("rankcore: error: "))
    assert f"names '{address}', which belongs to user 65534: other users can write to {rays_folder}" in line
    assert line.endswith("Say where your cluster is: --address or RAY_ADDRESS; `rankcore run --address local` starts one")


def test_an_address_elsewhere_is_believed_if_nobody_else_could_write_it(rays_folder):
    (rays_folder / ADDRESS).write_text("192.0.2.1:6379")
    with pytest.raises(
        UntrustedAddressError, match=r"not on this machine: other users can write to .*/ray, which has mode 0777"
    ):
        found_address()
    rays_folder.chmod(0o755)
    assert found_address() == "192.0.2.1:6379"
    (rays_folder / ADDRESS).chmod(0o666)
    with pytest.raises(UntrustedAddressError, match=r"/ray_current_cluster, which has mode 0666"):
        found_address()


def test_a_cluster_of_ours_is_found_whatever_others_write(rays_folder):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        ours = f"127.0.0.1:{server.getsockname()[1]}"
        leave_address(ours)
        assert found_address() == ours
        with another_user_who(replace_and_lure, str(rays_folder / ADDRESS)) as heard:
            heard()
            assert found_address() == ours
    assert found_address() is None  # it has ended, and so has the other


def listen_beside(say, port):
    with socket.socket() as beside, socket.socket(socket.AF_INET6) as everywhere:
        beside.bind(("127.0.0.2", port))
        beside.listen()
        everywhere.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        with suppress(OSError):  # of a machine without IPv6
            everywhere.bind(("::", port))
            everywhere.listen()
        say("listening")
        signal.pause()


def test_nobody_keeps_us_from_our_cluster_by_listening_on_its_port_of_another_address(rays_folder):
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket() as server:
            server.bind((address, 0))
            server.listen()
            ours = f"127.0.0.1:{server.getsockname()[1]}"
            leave_address(ours)
            if address == "127.0.0.1":
                with another_user_who(listen_beside, server.getsockname()[1]) as heard:
                    assert heard() == "listening"
                    assert found_address() == ours
            assert found_address() == ours


def replace_and_lure(say, file):
    os.unlink(file)
    lure(say, file)


def test_our_address_is_not_written_over_what_another_user_has_linked_to(rays_folder, tmp_path):
    (tmp_path / "precious").write_text("ours")
    as_another_user(os.symlink, str(tmp_path / "precious"), str(rays_folder / ADDRESS))
    with pytest.raises(UntrustedAddressError, match="cannot be read, or is a link"):
        found_address()
    leave_address("127.0.0.1:1")
    assert (tmp_path / "precious").read_text() == "ours"
    assert (rays_folder / ADDRESS).read_text() == "127.0.0.1:1"


def test_a_pipe_in_the_place_of_the_address_holds_nobody_up(rays_folder):
    as_another_user(os.mkfifo, str(rays_folder / ADDRESS))
    assert found_address() is None
