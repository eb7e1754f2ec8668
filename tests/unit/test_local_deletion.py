"""A command that runs local replicas ends when it is asked to, however it was started."""

import signal

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'rankcore[ray]'")

from executors.controller import undisturbed
from executors.run.answers import Answers


@pytest.mark.parametrize(("interrupts", "expected"), [("heard", "SIGINT"), ("ignored", "SIGTERM")])
def test_a_command_in_the_background_of_a_script_which_ignores_interrupts_ends_too(interrupts, expected):
    came = []

    def hear(number, _):
        came.append(signal.Signals(number).name)

    heard = signal.SIG_IGN if interrupts == "ignored" else hear
    before = signal.signal(signal.SIGINT, heard), signal.signal(signal.SIGTERM, hear)
    try:
        with undisturbed():  # as its loop answers
            Answers(None).delete()
            assert came == []
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
    assert came == [expected]
