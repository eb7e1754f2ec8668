"""What is wrong with a CSV file is told in one line, with the line of the file, and in little memory."""

import os
import tracemalloc
from pathlib import Path

import pytest

from executors.simulator.load.csvfile import LINE_MAX_BYTES, TraceError, read_cells
from executors.simulator.load.table import Counts, Reading, Table, read_table
from executors.simulator.load.traces import RateColumns, read_rates, read_values

HEADER = b"t,a,b\n"


def read_trace(path: Path, time: str, tokens: tuple[str, ...], **options) -> Table:
    return read_table(path, Reading(time=time, **options), {name: (name, Counts()) for name in tokens})


def error_of(tmp_path, content: bytes) -> str:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        list(read_cells(path, ("t", "a")))
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}")
    return message.removeprefix(str(path))


def test_the_wanted_columns_come_in_the_wanted_order_with_their_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b'\xef\xbb\xbfa, t ,b\r\n1,2,3\r\n\r\n"4 ""x""\nx",5,6\n7,8')
    assert list(read_cells(path, ("t", "a"))) == [(2, ("2", "1")), (5, ("5", '4 "x"\nx')), (6, ("8", "7"))]
    assert [(line, *cells) for line, cells in read_cells(path, ("t",))] == [(2, "2"), (5, "5"), (6, "8")]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", ": expected a CSV file with a header line, found an empty file"),
        (b"\n", ':1: expected a column "t", found no such column in ""'),
        (b"t,t,a\n", ':1: expected a column "t", found two of them in "t,t,a"'),
        (b"T,a\n", ':1: expected a column "t", found no such column in "T,a"'),
        (HEADER + b"1,2,3\n1\n", ":3: expected 2 columns or more, found 1"),
        (HEADER + b"1,\xe9,3\n", ":2: expected a CSV file in UTF-8, found 0xe9 as byte 3 of the line"),
        (HEADER + b"1,2,\0\n", ":2: expected a CSV file, found a NUL byte"),
        ("t,a\n1,2\n".encode("utf-16"), ":1: expected a CSV file in UTF-8, found 0xff as byte 1 of the line"),
        (HEADER + b'1,"2\n' + b"x\n" * 9, ":11: expected a CSV file, but unexpected end of data"),
        (HEADER + b'1,"2"3,4\n', """:2: expected a CSV file, but ',' expected after '"'"""),
    ],
)
def test_what_is_no_csv_file_is_refused_with_its_line(tmp_path, content, problem):
    assert error_of(tmp_path, content) == problem


def test_a_directory_and_a_missing_file_are_refused(tmp_path):
    for path, problem in (
        (tmp_path, "expected a regular file, found a directory"),
        (tmp_path / "none", "No such file or directory"),
    ):
        with pytest.raises(TraceError, match=problem):
            list(read_cells(path, ("t",)))


def test_what_cannot_be_read_again_is_refused_without_waiting_for_somebody_to_write_to_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a named pipe"), (Path("/dev/zero"), "a device")):
        problem = f"{path}: cannot be read: expected a regular file, found {kind}"
        with pytest.raises(TraceError) as caught:
            read_trace(path, "t", ())
        assert str(caught.value) == problem
        with pytest.raises(TraceError) as caught:
            read_values(path, "t", 1.0, 10)
        assert str(caught.value) == problem


def test_a_file_that_is_one_endless_line_is_refused_without_reading_it_to_its_end(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(HEADER)
    os.truncate(path, 1 << 40)  # a file with a hole: reading it takes hours
    with pytest.raises(TraceError, match=":2: expected lines of at most 100000 bytes"):
        read_trace(path, "t", ())


@pytest.mark.parametrize("text", ["1_000", "\u0663", "1\u00a0", "0x10", "1,5"])
def test_a_number_is_one_in_every_program(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text(f't,a\n"{text}",1\n', encoding="utf-8")
    with pytest.raises(TraceError, match="t: expected seconds"):
        read_trace(path, "t", ("a",))
    with pytest.raises(TraceError, match="t: expected a number"):
        read_values(path, "t", 1.0, 10)


@pytest.mark.parametrize("content", [b"x" * 30_000_000, HEADER + b'1,"' + b"x\n" * 15_000_000])
def test_a_line_or_a_cell_without_end_costs_no_memory(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    del content
    tracemalloc.start()
    with pytest.raises(TraceError, match=rf"x.csv:\d+: expected .*(at most {LINE_MAX_BYTES} bytes|field limit)"):
        list(read_cells(path, ("t",)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_trace_with_too_many_requests_is_refused_where_they_get_too_many(tmp_path):
    def read_trace(path, time, tokens, limit=None):
        reading = Reading(time=time, limit=limit, rows_max=3, hint="; limit: takes the first ones only")
        return read_table(path, reading, {name: (name, Counts()) for name in tokens})

    path = tmp_path / "x.csv"
    path.write_bytes(HEADER + b"1,1,1\n" * 4 + b"this line is never read")
    with pytest.raises(TraceError, match=r"x.csv: expected at most 3 requests, found more; limit: takes the first"):
        read_trace(path, "t", ("a",))
    assert len(read_trace(path, "t", ("a",), limit=2).after_s) == 2
    path.write_bytes(HEADER + b"1,1,1\n" * 3 + b"2,2,2")  # the last line has no end to be counted
    with pytest.raises(TraceError, match=r"x.csv:5: expected at most 3 requests, found more; limit: takes the first"):
        read_trace(path, "t", ("a",))
    path.write_bytes(HEADER + b"1,1,1\n" * 3)
    assert len(read_trace(path, "t", ("a",)).after_s) == 3


def test_a_trace_counts_from_its_first_request_and_can_be_sped_up(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"t,a,b\n2023-11-16 18:15:46.6805900, 1 ,10\n2023-11-16 18:15:50.6805900,2,20\n")
    rows = read_trace(path, "t", ("b", "a"), speedup=2.0)
    assert list(rows.after_s) == [0.0, 2.0]
    assert {name: list(each) for name, each in rows.cells.items()} == {"b": [10, 20], "a": [1, 2]}
    assert list(read_trace(path, "t", ()).after_s) == [0.0, 4.0]


RATES = b"model,start,rate,cv\nx,0,1,1\ny,0,5,1\nx,600,2,0.5\ny,600,5,1\nx,1800,3,2\n"


def rates(tmp_path, content: bytes = RATES, window_s: float | None = None, cv: str | None = "cv", **where: str):
    path = tmp_path / "rates.csv"
    path.write_bytes(content)
    return read_rates(path, Reading(time="start", where=where), RateColumns(rate="rate", cv=cv), window_s, 1.0)[0]


def test_rates_are_those_of_the_chosen_rows_and_windows_last_as_long_as_the_shortest_step(tmp_path):
    windows = rates(tmp_path, model="x")
    assert [(each.begin_s, each.end_s, each.rate_per_s, each.cv) for each in windows] == [
        (0.0, 600.0, 1.0, 1.0),
        (600.0, 1200.0, 2.0, 0.5),  # the window at 1200 is missing: nothing arrives in it
        (1800.0, 2400.0, 3.0, 2.0),
    ]
    assert [each.cv for each in rates(tmp_path, model="x", cv=None)] == [1.0, 1.0, 1.0]
    assert [each.end_s for each in rates(tmp_path, model="x", window_s=300.0)] == [300.0, 900.0, 2100.0]


@pytest.mark.parametrize(
    ("content", "where", "problem"),
    [
        (
            RATES,
            {},
            "rates.csv:3: start: expected each time once, found that of line 2 again; where: {column: text} chooses rows",
        ),
        (RATES, {"model": "z"}, 'rates.csv: expected at least one window with model = "z", found none'),
        (RATES, {"modell": "z"}, 'rates.csv:1: expected a column "modell", found no such column'),
        (b"start,rate,cv\n0,1,1\n", {}, "rates.csv: expected two windows or more, or window_s, found one window"),
        (b"start,rate,cv\n0,-1,1\n", {}, 'rates.csv:2: rate: expected a number from 0 to 1e+12, found "-1"'),
        (b"start,rate,cv\n0,inf,1\n", {}, 'rates.csv:2: rate: expected a number from 0 to 1e+12, found "inf"'),
        (b"start,rate,cv\n0,1,0\n", {}, 'rates.csv:2: cv: expected a number from 0.01 to 100, found "0"'),
        (b"start,rate,cv\nnan,1,1\n", {}, 'rates.csv:2: start: expected seconds, or YYYY-MM-DD hh:mm:ss, found "nan"'),
    ],
)
def test_rates_that_cannot_be_used_are_refused(tmp_path, content, where, problem):
    with pytest.raises(TraceError) as caught:
        rates(tmp_path, content, **where)
    assert problem in str(caught.value)


def test_values_of_a_column_are_scaled_and_checked(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes(b"ms\n1500\n20\n")
    assert read_values(path, "ms", 0.001, 2) == (1.5, 0.02)
    with pytest.raises(TraceError, match=r"x.csv:3: expected at most 1 values, found more"):
        read_values(path, "ms", 0.001, 1)
    path.write_bytes(b"ms\n1500\n-20\n")
    with pytest.raises(TraceError, match=r'x.csv:3: ms: expected a number from 0 to 1e\+12, found "-20"'):
        read_values(path, "ms", 0.001, 2)
    path.write_bytes(b"ms\n")
    with pytest.raises(TraceError, match=r"expected at least one value, found none"):
        read_values(path, "ms", 1.0, 2)
