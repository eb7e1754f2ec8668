"""Request files: what was written is read again, whatever is damaged is found at its line, and nobody waits for the disk."""

import threading
from io import BytesIO

import pytest

from executors.engine.reading import JournalError
from executors.engine.request_file import CallTokens, ClockReading, RecordedRequest, RequestLog, RequestWriter
from executors.engine.request_reading import RequestFileReader, beside, request_file_of

CALLS = [
    RecordedRequest(0, "llm", "llm#1.0", 0, 5_000, 5_100, None, 9_000, "done"),
    RecordedRequest(1, "llm", "llm#1.1", 1, 6_000, 6_500, 7_000, 9_500, "lost"),
    RecordedRequest(2, "llm", "", None, 7_000, None, None, 7_001, "rejected"),
    *(RecordedRequest(3 + each, "llm", "llm#1.0", 0, 8_000 + each, 8_100, None, 12_000, "done") for each in range(12)),
]
CLOCK = ClockReading(ns=5_000, at_s=1.5, error_s=0.001, wall_s=1e9)


def written(path, calls=CALLS):
    writer = RequestWriter.create(path, {"executor": "test"})
    writer.read_clock(CLOCK)
    for call in calls:
        writer.append(call)
    writer.close()
    return path


def read(path):
    reader = RequestFileReader(path)
    return list(reader), reader


def test_what_was_written_is_read_again(tmp_path):
    calls, reader = read(written(tmp_path / "run.requests.jsonl"))
    assert calls == CALLS
    assert (reader.about, reader.clock, reader.dropped, reader.warning) == ({"executor": "test"}, CLOCK, 0, None)


def test_tokens_that_answers_said_are_read_with_their_calls(tmp_path):
    log = RequestLog(RequestWriter.create(tmp_path / "run.jsonl"))
    log.put(CLOCK)
    log.put(CALLS[0])
    log.close([CallTokens(0, 1500, 28)])
    calls, reader = read(tmp_path / "run.jsonl")
    assert (calls, reader.tokens, reader.warning) == (CALLS[:1], {0: CallTokens(0, 1500, 28)}, None)


def test_a_call_takes_at_most_120_bytes(tmp_path):
    long = [RecordedRequest(10**6, "llm", "llm#1.0", 0, 10**15, 10**15 + 10**9, 10**15 + 10**10, 10**15 + 10**11, "done")] * 50
    few, many = (written(tmp_path / f"{count}.jsonl", long[:count]).stat().st_size for count in (1, 50))
    assert (many - few) / 49 <= 120


def damage(lines):
    """Each way to damage a line in the middle, and the line at which that is found."""
    for at in range(1, len(lines) - 1):
        yield "dropped", lines[:at] + lines[at + 1 :], at + 1
        yield "repeated", lines[: at + 1] + lines[at:], at + 2
        flipped = lines[at].replace(b'"', b"'", 1) if at % 2 else lines[at].replace(b"0", b"1", 1).replace(b"n", b"m", 1)
        if flipped != lines[at]:
            yield "flipped", [*lines[:at], flipped, *lines[at + 1 :]], at + 1
        if at + 2 < len(lines):
            yield "swapped", [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]], at + 1


def test_what_is_missing_moved_repeated_or_changed_is_found_at_its_line(tmp_path):  # W18
    lines = written(tmp_path / "whole.jsonl").read_bytes().splitlines(keepends=True)
    path, seen = tmp_path / "damaged.jsonl", set()
    for what, damaged, line in damage(lines):
        path.write_bytes(b"".join(damaged))
        with pytest.raises(JournalError) as found:
            list(RequestFileReader(path))
        assert found.value.line == line, (what, line, str(found.value))
        seen.add(what)
    assert seen == {"dropped", "repeated", "flipped", "swapped"}


def test_lines_that_are_missing_at_the_end_are_told_by_the_end_marker(tmp_path):
    path = written(tmp_path / "cut.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-2]))
    calls, reader = read(path)
    assert calls == CALLS[:-1]
    assert "no end marker" in reader.warning
    path.write_bytes(b"".join(lines[:-2])[:-5])
    calls, reader = read(path)
    assert "ends in the middle of this line" in reader.warning


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "1: the file is empty"),
        (b"what\n", "1: not a line of a request file"),
        (b'{"journal":3}\n', "1: this line has no number n"),
    ],
)
def test_what_is_no_request_file_is_refused(tmp_path, text, problem):
    path = tmp_path / "other.jsonl"
    path.write_bytes(text)
    with pytest.raises(JournalError, match=problem):
        list(RequestFileReader(path))


def test_one_without_a_clock_cannot_be_laid_beside_a_journal(tmp_path):
    RequestWriter.create(tmp_path / "run.jsonl").close()
    _, reader = read(tmp_path / "run.jsonl")
    with pytest.raises(JournalError, match="how its clock stands"):
        _ = reader.clock


class Stuck(BytesIO):
    """A disk that takes nothing for a while."""

    def __init__(self):
        super().__init__()
        self.goes = threading.Event()
        self.goes.set()

    def write(self, text):
        self.goes.wait(10)
        return super().write(text)

    def close(self):
        self.kept = self.getvalue()
        super().close()


def test_a_disk_that_is_stuck_stops_no_call_and_what_is_dropped_is_counted(tmp_path):
    disk = Stuck()
    writer = RequestWriter(disk)
    disk.goes.clear()
    log = RequestLog(writer, queue_max=5)
    for _ in range(20):
        log.put(CALLS[0])
    dropped = log.dropped
    assert 14 <= dropped <= 15, "5 wait, and one may be in the hands of the thread"
    disk.goes.set()
    log.close()
    (tmp_path / "run.jsonl").write_bytes(disk.kept)
    calls, reader = read(tmp_path / "run.jsonl")
    assert (len(calls), reader.dropped) == (20 - dropped, dropped)


class Full(BytesIO):
    def write(self, text):
        if b'"r":' in text or b'"t":' in text:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_stops_no_call_either():
    log = RequestLog(RequestWriter(Full()))
    log.put(CALLS[0])
    log.put(CLOCK)
    log.close([CallTokens(0, 1, 1)])
    assert log.dropped == 1
    assert "No space left" in log.problem


def test_request_files_are_found_beside_their_journal(tmp_path):
    journal = tmp_path / "a[1].jsonl"
    assert beside(journal) == []
    first = written(request_file_of(journal))
    assert beside(journal) == [first]
