"""The same requests in another form of file are the same arrivals (W8); what is no trace is refused in one line (W9)."""

import gzip
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executors.simulator.load.csvfile import TraceError
from executors.simulator.load.stamps import UNITS_S
from executors.simulator.load.table import Counts, Reading, Table, read_table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEGIN_US = 1_700_158_623_979_960


def read_trace(path: Path, time: str, tokens: tuple[str, ...], **options) -> Table:
    return read_table(path, Reading(time=time, **options), {name: (name, Counts()) for name in tokens})


def iso(at_us: int, zone: timezone) -> str:
    return (EPOCH + timedelta(microseconds=at_us)).astimezone(zone).isoformat()


FORMS = {
    "seconds": (None, lambda at_us: f"{at_us // 1_000_000}.{at_us % 1_000_000:06}"),
    "s": ("s", lambda at_us: f"{at_us // 1_000_000}.{at_us % 1_000_000:06}"),
    "ms": ("ms", lambda at_us: f"{at_us // 1000}.{at_us % 1000:03}"),
    "us": ("us", str),
    "ns": ("ns", lambda at_us: f"{at_us}000"),
    "Z": (None, lambda at_us: iso(at_us, UTC).replace("+00:00", "Z")),
    "+05:30": ("iso", lambda at_us: iso(at_us, timezone(timedelta(hours=5, minutes=30)))),
    "naive": ("iso", lambda at_us: iso(at_us, UTC).removesuffix("+00:00")),
}


@given(st.lists(st.integers(0, 10**11), min_size=1, max_size=30).map(sorted), st.sampled_from(sorted(FORMS)))
def test_one_trace_in_any_form_has_the_same_arrivals(tmp_path_factory, after_us, form):
    folder = tmp_path_factory.mktemp("forms")
    unit, text = FORMS[form]
    rows = [(text(BEGIN_US + each), index) for index, each in enumerate(after_us)]
    as_csv = "t,n\n" + "".join(f"{time},{count}\n" for time, count in rows)
    # A number in JSON is one, not a text with the same digits.
    as_jsonl = "".join(f'{{"n": {n}, "t": {t if unit in UNITS_S else json.dumps(t)}, "x": [1]}}\n' for t, n in rows)
    expected = [(each - after_us[0]) / 1e6 for each in after_us]
    for name, content in (("t.csv", as_csv), ("t.jsonl", as_jsonl)):
        (folder / name).write_text(content)
        (folder / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
        for path in (folder / name, folder / f"{name}.gz"):
            found = read_trace(path, "t", ("n",), time_unit=unit)
            assert list(found.after_s) == pytest.approx(expected, rel=0, abs=1e-6)
            assert list(found.cells["n"]) == list(range(len(rows)))


def test_nanoseconds_since_1970_lose_none_of_their_digits(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("t\n1700158623979960000\n1700158623979960001\n")
    assert list(read_trace(path, "t", (), time_unit="ns").after_s) == [0.0, 1e-9]


def test_each_time_is_in_its_own_zone(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("t\n2023-11-16T18:00:00Z\n2023-11-16T23:30:01+05:30\n2023-11-16T13:00:02-05:00\n")
    assert list(read_trace(path, "t", ()).after_s) == [0.0, 1.0, 2.0]


PACKED = gzip.compress(b"t,n\n1,2\n" * 50)
NUMBER = "expected a number of time_unit"


@pytest.mark.parametrize(
    ("name", "content", "unit", "problem"),
    [
        ("t.parquet.gz", b"PAR1", None, ": expected .csv or .jsonl, or one of these and .gz, or .parquet, which is packed"),
        ("t.csv.gz", b"t,n\n1,2\n", None, ": cannot be read: Not a gzipped file"),
        ("t.csv.gz", PACKED[:-9], None, ": cannot be read: Compressed file ended before the end-of-stream marker"),
        ("t.csv.gz", PACKED[:12] + b"\xff\xff\xff" + PACKED[15:], None, ": cannot be read: Error -3 while decompressing"),
        ("t.csv.gz", gzip.compress(b""), None, ": expected a CSV file with a header line, found an empty file"),
        ("t.jsonl", b"", None, ": expected at least one request, found none"),
        ("t.jsonl", b"\n \n", None, ": expected at least one request, found none"),
        ("t.jsonl", b"{\n", None, ":1: expected an object of JSON, but Expecting property name"),
        ("t.jsonl", b"[1]\n", None, ":1: expected an object of JSON, found another value"),
        ("t.jsonl", b'\n"t"\n', None, ":2: expected an object of JSON, found another value"),
        ("t.jsonl", b'{"t": 1}\n', None, ":1: n: expected a number or a text, found no such key"),
        ("t.jsonl", b'{"t": null, "n": 1}\n', None, ":1: t: expected a number or a text, found neither"),
        ("t.jsonl", b'{"t": 1, "n": [1]}\n', None, ":1: n: expected a number or a text, found neither"),
        ("t.jsonl", b'{"t": 1, "n": 1.5}\n', None, ':1: n: expected an integer from 0 to 1000000000, found "1.5"'),
        ("t.jsonl", b'{"t": NaN, "n": 1}\n', None, ':1: t: expected seconds, or YYYY-MM-DD hh:mm:ss, found "NaN"'),
        ("t.jsonl", b'{"t": 1, "n": 1}\n{"t": 0, "n": 1}\n', None, ":2: t: expected times that ascend, found one 1 s back"),
        ("t.jsonl", b"[" * 90_000 + b"\n", None, ":1: expected an object of JSON, but it is nested too deeply"),
        ("t.jsonl", b'{"t": "\xff"}\n', None, ":1: expected a CSV file in UTF-8, found 0xff as byte 8"),
        ("t.csv", b"t,n\n2023-11-16T18:15:46,1\n", "ms", f":2: t: {NUMBER}, from 0 to 1e+15, found"),
        ("t.csv", b"t,n\n-1,1\n", "us", f":2: t: {NUMBER}, from 0 to 1e+18"),
        ("t.csv", b"t,n\nnan,1\n", "s", f":2: t: {NUMBER}"),
        ("t.csv", b"t,n\ninf,1\n", "s", f":2: t: {NUMBER}"),
        ("t.csv", b"t,n\n1_0,1\n", "s", f":2: t: {NUMBER}"),
        ("t.csv", b"t,n\n5,1\n4,1\n", "days", ":3: t: expected times that ascend, found one 86400 s back"),
        ("t.csv", b"t,n\n0,1\n2000000,1\n", "days", ":3: t: expected a trace of at most 1e+09 s"),
        ("t.csv", b"t,n\n1700158623,1\n", "iso", ':2: t: expected YYYY-MM-DD hh:mm:ss, found "1700158623"'),
        ("t.csv", b"t,n\n1960-01-01T00:00:00Z,1\n", "iso", ":2: t: expected YYYY-MM-DD hh:mm:ss, found"),
        ("t.csv", b"t,n\n0001-01-01T00:00:00+05:30,1\n", "iso", ":2: t: expected YYYY-MM-DD hh:mm:ss, found"),
        ("t.csv", b"t,n\n2023-02-30T00:00:00Z,1\n", "iso", ":2: t: expected YYYY-MM-DD hh:mm:ss, found"),
        ("t.csv", b"t,n\n2023-02-03 00:00,1\n2023-02-03T00:00Z,1\n", None, ":3: t: expected times with a zone, or all without"),
        ("t.csv", b"t,n\n2023-02-03 00:00Z,1\n2023-02-03T00:00,1\n", None, "found one without a zone after one with"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, name, content, unit, problem):
    path: Path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(path, "t", ("n",), time_unit=unit, sort="refuse")
    assert problem in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)
