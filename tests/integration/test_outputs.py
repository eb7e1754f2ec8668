"""What is written is written whole or not at all: full disks, closed pipes, unwritable places, signals."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from executors.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """\
nodes: [{name: n, count: 2, gpus: 2}]
deployments:
  - name: llm
    target_replicas: 3
    requests: {poisson: {rate_per_s: 1, begin_s: 60, for_s: 60, service_s: 1}}
"""
ENDLESS = SCENARIO.replace("for_s: 60", "for_s: 100000")
COMMAND = (sys.executable, "-m", "executors.cli")
BROKEN_PIPE = 128 + signal.SIGPIPE


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}


def shell(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script in which "$@" is the rankcore command; bash says the status of the command, not of what reads it."""
    command = ["bash", "-c", f"set -o pipefail; {script}", "rankcore", *COMMAND]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)


def python(code: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process that `code` has prepared."""
    program = f"import sys\n{code}\nfrom executors.cli import main\nmain()\n"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)


def here(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, where nothing is asked of the process."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(app, arguments)
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_refused(done: subprocess.CompletedProcess[str], problem: str) -> None:
    assert done.returncode == 2
    assert done.stderr.startswith("rankcore: error: ")
    assert problem in done.stderr
    assert done.stderr.count("\n") == 1


# Pipes


def test_a_reader_that_wants_only_the_beginning_ends_the_command_quietly(folder):
    done = shell('"$@" simulate s.yaml --json - | head -0', folder)
    assert done.stderr == ""
    assert done.returncode in (0, BROKEN_PIPE)  # 0 where all of it was in the pipe before the reader was gone
    assert listing(folder) == ["s.report.html", "s.yaml"]


@pytest.mark.parametrize("options", [("simulate", "s.yaml"), ("--help",)])
def test_a_pipe_without_a_reader_has_the_status_of_sigpipe(folder, options):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, *options]
    done = subprocess.run(
        command, cwd=folder, env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True, timeout=600
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")


@pytest.mark.parametrize("option", ["--journal", "--report", "--json"])
def test_a_pipe_is_no_place_for_an_output_file(folder, option):
    done = shell(f'"$@" simulate s.yaml {option} >(true)', folder)
    assert_refused(done, f"{option}: expected a file to write, found /dev/fd/")
    assert "which is something that is no regular file" in done.stderr
    assert listing(folder) == ["s.yaml"]


def test_closed_standard_streams_do_no_harm(folder):
    assert shell('"$@" simulate s.yaml >&-', folder).returncode == 0
    assert shell('"$@" simulate s.yaml 2>&-', folder).returncode == 0
    done = shell('"$@" simulate missing.yaml 2>&-', folder)
    assert done.returncode == 2


# Full disks


@pytest.mark.parametrize("options", ["--json -", "", "--help"])
def test_a_full_standard_output_is_one_line_and_status_2(folder, options):
    done = shell(f'"$@" simulate s.yaml {options} > /dev/full', folder)
    assert_refused(done, "No space left on device")


@pytest.mark.parametrize(
    ("limit", "options"),
    [(0, ()), (0, ("--journal", "j.jsonl")), (5_000, ("--journal", "j.jsonl"))],
)
def test_a_disk_that_is_full_during_the_run_leaves_no_file_and_names_the_output(folder, limit, options):
    # A limit on the size of files stands in for the end of the disk.
    (folder / "s.report.html").write_text("of the last run")
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))"
    done = python(code, folder, "simulate", "s.yaml", *options)
    assert_refused(done, "cannot be written: ")
    assert "s.report.html" in done.stderr or "j.jsonl" in done.stderr
    assert ".part" not in done.stderr
    assert listing(folder) == ["s.report.html", "s.yaml"]
    assert (folder / "s.report.html").read_text() == "of the last run"


def test_a_disk_that_is_full_under_the_page_leaves_the_figures_which_were_written_before_it(folder):
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000))"
    done = python(code, folder, "simulate", "s.yaml", "--json", "f.json")
    assert_refused(done, "--report: s.report.html cannot be written: File too large")
    assert json.loads((folder / "f.json").read_text())["deployments"]
    assert listing(folder) == ["f.json", "s.yaml"]


def test_a_file_system_that_is_really_full_leaves_no_file(folder):
    small = folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root may mount a small file system")
    try:
        done = shell('"$@" simulate s.yaml --journal small/j.jsonl', folder)
        assert_refused(done, "--journal: small/j.jsonl cannot be written: No space left on device: the disk took only a part")
        assert listing(small) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert listing(folder) == ["s.yaml", "small"]


# Places


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("no/such/folder/x", "No such file or directory"),
        ("s.yaml/x", "Not a directory"),
        ("/proc/x", "No such file or directory"),
        ("loop/x", "Too many levels of symbolic links"),
        (f"{'x' * 300}", "File name too long"),
    ],
)
def test_an_unwritable_place_is_refused_before_the_run(folder, place, problem):
    (folder / "loop").symlink_to("loop")
    done = here(folder, "simulate", "s.yaml", "--journal", place)
    assert_refused(done, f"--journal: {place} cannot be written: {problem}")
    assert listing(folder) == ["loop", "s.yaml"]


@pytest.mark.parametrize("option", ["--report", "--json"])
def test_every_output_is_looked_at_before_the_run(folder, option):
    done = here(folder, "simulate", "s.yaml", "--journal", "j.jsonl", option, "no/x")
    assert_refused(done, f"{option}: no/x cannot be written: No such file or directory")
    assert listing(folder) == ["s.yaml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused_before_the_run(folder):
    (folder / "closed").mkdir(mode=0o500)
    assert_refused(here(folder, "simulate", "s.yaml", "--report", "closed/x.html"), "cannot be written: Permission denied")


def test_a_name_as_long_as_the_file_system_allows_is_written(folder):
    name = "é" * 120 + ".html"
    assert here(folder, "simulate", "s.yaml", "--report", name).returncode == 0
    assert listing(folder) == ["s.yaml", name]


def test_an_output_behind_a_link_goes_where_the_link_leads(folder):
    (folder / "real.json").write_text("old")
    (folder / "link.json").symlink_to("real.json")
    assert here(folder, "simulate", "s.yaml", "--json", "link.json").returncode == 0
    assert (folder / "link.json").is_symlink()
    assert json.loads((folder / "real.json").read_text())["scenario"]


# Signals

SEND = """\
import os, signal
from executors.simulator.clock import EventLoop
run = EventLoop.run
def interrupted(loop, until, most):
    if loop.done in ({at},): os.kill(os.getpid(), signal.{name})
    return run(loop, until, 1)
EventLoop.run = interrupted
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_in_the_middle_of_a_run_leaves_nothing_behind(folder, name):
    (folder / "s.yaml").write_text(ENDLESS)
    # The signal comes from within, at a moment of the run that is the same every time.
    done = python(SEND.format(at=1000, name=name), folder, "simulate", "s.yaml", "--journal", "j.jsonl", "--json", "f")
    assert done.returncode == 128 + signal.Signals[name]
    assert done.stderr == "rankcore: interrupted, nothing was written\n"
    assert done.stdout == ""
    assert listing(folder) == ["s.yaml"]


def test_a_second_signal_does_not_disturb_the_cleaning_up(folder):
    (folder / "s.yaml").write_text(ENDLESS)
    code = SEND.format(at=1000, name="SIGTERM") + (
        "from pathlib import Path\n"
        "unlink = Path.unlink\n"
        "def twice(path, **options):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    unlink(path, **options)\n"
        "Path.unlink = twice\n"
    )
    done = python(code, folder, "simulate", "s.yaml", "--journal", "j.jsonl")
    assert done.returncode == 128 + signal.SIGTERM
    assert listing(folder) == ["s.yaml"]


def test_figures_and_journal_are_kept_together_whenever_a_signal_comes_and_it_is_said_that_they_are(folder):
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "replace = Path.replace\n"
        "def interrupted(path, target):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return replace(path, target)\n"
        "Path.replace = interrupted\n"
    )
    done = python(code, folder, "simulate", "s.yaml", "--journal", "j.jsonl", "--json", "f.json")
    assert done.returncode == 130
    assert listing(folder) == ["f.json", "j.jsonl", "s.yaml"]
    assert done.stderr == "rankcore: interrupted, written before: f.json, j.jsonl\n"


def test_under_nohup_a_hang_up_is_ignored(folder):
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + SEND.format(at=50, name="SIGHUP")
    assert python(code, folder, "simulate", "s.yaml").returncode == 0
