"""The last lines of a file, and those that come."""

from executors import log_lines
from executors.log_lines import tail


def test_the_last_lines_are_as_many_as_are_asked_for_however_long_they_are(tmp_path):
    path = tmp_path / "log"
    there = [f"{number} {'x' * 100}" for number in range(6000)]
    path.write_text("".join(f"{each}\n" for each in there) + "not whole")
    for lines in (1, 600, 5000, 9000):
        assert tail(path, lines) == (there[-lines:], path.stat().st_size - len("not whole"))
    assert tail(path, 0)[0] == []


def test_what_is_looked_at_for_them_has_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "TAIL_BYTES", 4)
    monkeypatch.setattr(log_lines, "TAIL_BYTES_MAX", 10)
    path = tmp_path / "log"
    path.write_text("0123456789\n12345\n789\n")
    assert tail(path, 3) == (["789"], 21), "the line before is not whole in the last ten bytes"


def test_a_line_of_any_length_is_got_past_when_files_are_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(log_lines, "AT_ONCE_BYTES", 8)
    path = tmp_path / "log"
    path.write_text("first\n")
    _, end = tail(path, 1)
    with path.open("a") as file:
        file.write("x" * 20 + "\nnext\nnot yet")
    found = []
    for _ in range(6):
        texts, end = tail(path, 1, end)
        found += texts
    assert found[-1] == "next"
    assert "".join(found[:-1]) == "x" * 20
    assert tail(path, 1, end) == ([], end), "what is not whole yet is waited for"


def test_a_file_that_is_not_there_has_no_lines(tmp_path):
    assert tail(tmp_path / "none", 5) == ([], 0)
