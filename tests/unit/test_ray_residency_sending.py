"""How the requests of one process are sent: so many at once at most, in their order, by nobody who keeps it alive."""

import queue
import subprocess
import sys
import threading

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")
pytest.importorskip("torch", reason="torch is not installed: pip install 'rankcore[torch]'")

from executors.ray_gpu.residency.sending import Sender

WAIT_S = 60.0


def test_so_many_are_sent_at_once_and_the_others_in_their_order_as_answers_come():
    sender, sent = Sender(2), queue.SimpleQueue()
    for number in range(5):
        sender.submit(lambda number=number: sent.put(number))
    assert [sent.get(timeout=WAIT_S) for _ in range(2)] == [0, 1]
    assert sent.empty()
    for following in (2, 3, 4):
        sender.done()
        assert sent.get(timeout=WAIT_S) == following
    for _ in range(2):
        sender.done()
    sender.submit(lambda: sent.put("there is room again"))
    assert sent.get(timeout=WAIT_S) == "there is room again"


def test_what_is_sent_again_and_what_had_to_wait_is_sent_by_another_thread_than_the_one_that_learns_of_it():
    sender, threads = Sender(1), queue.SimpleQueue()

    def send():
        threads.put(threading.current_thread())

    sender.submit(send)
    assert threads.get(timeout=WAIT_S) is threading.current_thread()
    sender.again(send, 0.01)
    sender.submit(send)
    sender.done()
    for _ in range(2):
        assert threads.get(timeout=WAIT_S).daemon


def test_one_that_cannot_be_sent_does_not_keep_the_next_one():
    sender, sent = Sender(1), queue.SimpleQueue()
    sender.submit(lambda: None)
    sender.submit(lambda: 1 / 0)
    sender.submit(lambda: sent.put("sent"))
    sender.done()
    sender.done()
    assert sent.get(timeout=WAIT_S) == "sent"


def test_a_process_ends_though_requests_of_it_are_unanswered():
    program = """
from executors.ray_gpu.residency.sending import Sender
sender = Sender(1)
sender.submit(lambda: None)
sender.submit(lambda: None)
sender.again(lambda: None, 1e6)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=240.0, check=False)
    assert ended.returncode == 0
