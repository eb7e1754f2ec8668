"""A scenario in which virtual time stands still is a mistake in it, and told as one."""

import pytest
import typer

from executors.cli.problems import told_in_one_line
from executors.simulator.clock import EventLoop


def test_time_that_stands_still_ends_the_command_with_one_line(monkeypatch, capsys):
    monkeypatch.setattr("executors.simulator.clock.SAME_INSTANT_MAX", 100)
    loop = EventLoop()

    def again() -> None:
        loop.after(0.0, again)

    loop.at(5.0, again)

    def go_on():
        with told_in_one_line("interrupted"):
            while loop.step():
                pass

    with pytest.raises(typer.Exit) as ended:
        go_on()
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "rankcore: error: time stands still at 5 s: 100 actions at one instant\n"
