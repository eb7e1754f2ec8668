"""A trace in Parquet has the arrivals that it has in CSV (W8); without pyarrow that is said, and how to get it."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

from executors.simulator.load.csvfile import TraceError, check_lines, read_cells, read_names
from executors.simulator.load.table import Counts, Numbers, Reading, read_table

KINDS = {"n": ("n", Counts())}


def test_without_pyarrow_it_is_said_how_to_get_it(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    problem = r"t.parquet: expected .csv or .jsonl, or pyarrow, which is not installed: pip install 'rankcore\[parquet\]'"
    for read in (
        lambda path: list(read_cells(path, ("t",))),
        lambda path: check_lines(path, 9),
        read_names,
        lambda path: read_table(path, Reading(time="t"), KINDS),
    ):
        with pytest.raises(TraceError, match=problem):
            read(tmp_path / "t.parquet")


def written(path, **columns):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs rankcore[parquet]")
    parquet.write_table(pytest.importorskip("pyarrow").table(columns), path, row_group_size=2)
    return path


BEGIN = datetime(2023, 11, 16, 18, 15, 46, 680590, tzinfo=UTC)
AFTER_US = [0, 1, 250_000, 3_000_000]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([BEGIN + timedelta(microseconds=each) for each in AFTER_US], None),
        ([(BEGIN + timedelta(microseconds=each)).replace(tzinfo=None) for each in AFTER_US], "iso"),
        ([(BEGIN + timedelta(microseconds=each)).isoformat() for each in AFTER_US], "iso"),
        ([1_700_158_546_680_590_000 + 1000 * each for each in AFTER_US], "ns"),
        ([each / 1e6 for each in AFTER_US], "s"),
    ],
)
def test_times_and_counts_are_those_that_were_written(tmp_path, times, unit):
    path = written(tmp_path / "t.parquet", other=[[1], [2], [], [3]], n=[4, 3, 2, 1], t=times)
    table = read_table(path, Reading(time="t", time_unit=unit), KINDS)
    assert list(table.after_s) == pytest.approx([each / 1e6 for each in AFTER_US], abs=1e-6)
    assert list(table.cells["n"]) == [4, 3, 2, 1]
    assert list(table.lines) == [1, 2, 3, 4]
    assert read_names(path) == ["other", "n", "t"]


def test_what_is_wrong_in_a_file_is_told_with_its_row(tmp_path):
    path = written(tmp_path / "t.parquet", t=[1.0, None, 3.0, 4.0, 5.0], n=[1, 2, 3, -4, None], x=[[1], [], [], [], []])
    for skip_bad, problem in enumerate(
        (
            "t.parquet:2: t: expected a number or a text, found nothing",
            't.parquet:4: n: .*found "-4"',
            "t.parquet:5: n: expected",
        )
    ):
        with pytest.raises(TraceError, match=problem):
            read_table(path, Reading(time="t", skip_bad=skip_bad), KINDS)
    assert list(read_table(path, Reading(time="t", skip_bad=3), KINDS).cells["n"]) == [1, 3]
    with pytest.raises(TraceError, match=r't.parquet: expected a column "m", found no such column in "t,n,x"'):
        read_table(path, Reading(time="t"), {"m": ("m", Counts())})
    with pytest.raises(TraceError, match=r"t.parquet: x: expected numbers, texts or times, found list"):
        read_table(path, Reading(time="t", limit=9), {"x": ("x", Numbers(0, 1))})
    with pytest.raises(TraceError, match=r"t.parquet: expected at most 3 requests, found more"):
        read_table(path, Reading(time="t", rows_max=3), KINDS)
    path.write_bytes(b"PAR1")
    with pytest.raises(TraceError, match=r"t.parquet: cannot be read: "):
        read_table(path, Reading(time="t"), KINDS)
