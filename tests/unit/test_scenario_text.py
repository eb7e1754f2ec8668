"""What a scenario file may be made of: a regular UTF-8 file of bounded size, and YAML without its traps."""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from executors.simulator.scenario import ScenarioError, load_scenario
from executors.simulator.scenario.textfile import SIZE_MAX_BYTES
from executors.simulator.scenario.yamlfile import VALUES_MAX, line_of, parse


def data_of(text: str) -> object:
    return parse(text, "s.yaml")[0]


def error_of(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse(text, "s.yaml")
    message = str(caught.value)
    assert message.isprintable()
    return message


def file_error(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert message.isprintable()
    return message


# Files


def test_a_byte_that_is_no_utf_8_is_named_with_its_line(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"name: x\n# caf\xe9\n")
    assert file_error(path) == f"expected text in UTF-8, found the byte 0xe9, which is none ({path}:2)"


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0")
    assert file_error(path) == f"expected text in UTF-8, found the byte 0x89, which is none ({path}:1)"


@pytest.mark.parametrize("letter", ["\0", "\x1b", "\x7f", "\x9b", "\ufffe"])
def test_control_characters_are_refused_with_their_line(letter):
    assert error_of(f"a: 1\nb: {letter}\n") == (
        f"expected a text file, found the control character U+{ord(letter):04X} (s.yaml:2)"
    )


def test_a_byte_order_mark_and_the_line_ends_of_any_system_are_read(tmp_path):
    path = tmp_path / "windows.yaml"
    path.write_bytes(b"\xef\xbb\xbfseed: 1\r\nsead: 2\r\n")
    assert file_error(path).endswith(f'found "sead" ({path}:2)')
    assert error_of("a: 1\rb: 2\rb: 3\r").endswith("(s.yaml:3)")


def test_a_named_pipe_is_refused_without_waiting_for_somebody_to_write_to_it(tmp_path):
    path = tmp_path / "pipe.yaml"
    os.mkfifo(path)
    assert file_error(path) == f"{path}: expected a scenario file, found a named pipe"


def test_devices_and_sockets_are_refused(tmp_path):
    assert file_error(Path("/dev/zero")) == "/dev/zero: expected a scenario file, found a device"
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        assert file_error(path).startswith(f"{path}: cannot be read: ")


def test_of_a_file_of_gigabytes_only_the_beginning_is_read(tmp_path):
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(8 * 2**30)  # takes no space
    tracemalloc.start()
    try:
        assert file_error(path) == f"{path}: expected a scenario file of at most {SIZE_MAX_BYTES} bytes, found more"
        assert tracemalloc.get_traced_memory()[1] < 4 * SIZE_MAX_BYTES
    finally:
        tracemalloc.stop()


def test_a_path_with_line_breaks_or_a_nul_stays_on_one_line(tmp_path):
    assert file_error(tmp_path / "a\nb.yaml") == f"{tmp_path}/a\\nb.yaml: cannot be read: No such file or directory"
    assert "cannot be read" in file_error(Path("a\0b.yaml"))


# Scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("+7", 7),
        ("-0", 0),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("0o17", "0o17"),
        ("0x1f", "0x1f"),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("yes", "yes"),
        ("No", "No"),
        ("off", "off"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("'~'", "~"),
        ("-.inf", float("-inf")),
        ("=", "="),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text, value):
    found = data_of(f"x: {text}\n")["x"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["010", "-007", "00"])
def test_a_number_with_leading_zeros_is_refused_since_programs_disagree_about_it(text):
    assert error_of(f"a:\n  - {text}\n") == (
        "a[0]: expected a number without leading zeros, which some programs read as octal, or a text in quotes, "
        f"found {text} (s.yaml:2)"
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1e400", "expected a number of at most 1.7e308, found 1e400"),
        ("-1e400", "expected a number of at most 1.7e308, found -1e400"),
        ("9223372036854775808", "expected an integer of at most 64 bits, found 9223372036854775808"),
        ("1" * 5000, f"expected an integer of at most 64 bits, found {'1' * 20}... with 5000 digits"),
    ],
)
def test_a_number_that_no_computer_number_holds_is_refused(text, problem):
    assert error_of(f"a: {text}\n") == f"a: {problem} (s.yaml:1)"


# Structure


def test_several_documents_are_refused_where_the_second_begins():
    assert error_of("--- \na: 1\n---\nb: 1\n") == "expected one scenario in a file, found a second document (s.yaml:3)"
    assert data_of("---\na: 1\n...\n") == {"a": 1}


@pytest.mark.parametrize("text", ["!!str 5", "!!set {a}", "! x", "!!python/object/apply:os.system [ls]", "!<x> []"])
def test_tags_are_refused(text):
    assert error_of(f"a: 1\nb: {text}\n").startswith('b: expected plain YAML, found the tag "')


@pytest.mark.parametrize("key", ["[1]", "{a: 1}", "*x"])
def test_keys_that_are_no_words_are_refused(key):
    message = error_of(f"x: &x 1\ny:\n  ? {key}\n  : 2\n")
    assert message == "y: expected keys that are words (s.yaml:3)"


def test_a_syntax_error_names_its_line():
    assert error_of("a: 1\nb: [1,\nc: 2\n").endswith("(s.yaml:3)")
    assert error_of("a: 1\nb: c: d\n").startswith("expected YAML, but mapping values are not allowed")


def test_a_key_with_strange_letters_is_shown_escaped_and_short():
    assert error_of(f'a: 1\n"k\\n{"y" * 500}": 01\n').startswith(f'["k\\n{"y" * 52}..."]: expected')
    assert len(error_of(f'"{"y" * 50_000}": 01\n')) < 300


# Anchors


def test_an_alias_stands_for_what_its_anchor_names():
    assert data_of("a: &x [1, {b: 2}]\nc: *x\n") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


def test_a_change_where_an_alias_stood_changes_nothing_else():
    data = data_of("a: &x {b: [1]}\nc: *x\nd: {<<: *x}\n")
    data["c"]["b"].append(2)
    assert data["a"] == data["d"] == {"b": [1]}


def test_a_merge_key_fills_in_what_the_mapping_does_not_say_itself():
    text = "- &a {x: 1, y: 2}\n- &b {y: 3, z: 4}\n- {<<: *a, y: 9}\n- {<<: [*b, *a]}\n- {'<<': 1}\n"
    assert data_of(text)[2:] == [{"x": 1, "y": 9}, {"y": 3, "z": 4, "x": 1}, {"<<": 1}]


def test_the_line_of_a_merged_key_is_where_it_is_written():
    _, lines = parse("base: &a\n  x: 1\nother:\n  <<: *a\n  y: 2\n", "s.yaml")
    assert line_of(("other", "x"), lines) == 2
    assert line_of(("other", "y"), lines) == 5
    assert line_of(("other", "z"), lines) == 3


@pytest.mark.parametrize("value", ["3", "[1]", "[]", "x", "~"])
def test_only_mappings_are_merged(value):
    assert error_of(f"a:\n  <<: {value}\n").startswith('a["<<"]: expected a mapping to merge, or a list of mappings, found ')


def test_an_alias_of_nothing_and_one_inside_itself_are_refused():
    assert error_of("a: &b 1\nc: *d\n") == 'c: expected the name of an anchor (&b), found "*d" (s.yaml:2)'
    assert error_of("a: &x [1, *x]\n") == "a[1]: expected values that end, found *x, which is inside itself (s.yaml:1)"
    assert "inside itself" in error_of("a: &x {b: {<<: *x}}\n")


@pytest.mark.parametrize("form", ["[{}]", "{{a: [{}]}}"])
def test_a_billion_laughs_are_refused_before_they_are_built(form):
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{i}: &a{i} {form.format(', '.join([f'*a{i - 1}'] * 10))}" for i in range(1, 15)]
    tracemalloc.start()
    try:
        assert error_of("\n".join(lines)) == f"expected at most {VALUES_MAX} values, found more (s.yaml:6)"
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_a_bomb_of_merge_keys_is_refused_before_it_is_built():
    keys = ", ".join(f"k{index}: 1" for index in range(1000))
    text = f"a: &a {{{keys}}}\nb:\n" + "  - {<<: *a}\n" * 5000
    assert error_of(text).startswith(f"expected at most {VALUES_MAX} values, found more (s.yaml:20")


def test_more_values_than_the_limit_are_refused_even_when_all_are_written_out():
    assert error_of("a: [" + "1," * VALUES_MAX + "1]\n") == f"expected at most {VALUES_MAX} values, found more (s.yaml:1)"


def test_aliases_nest_as_deep_as_what_they_stand_for():
    lines = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60)]
    assert error_of("\n".join(lines)) == "expected values nested at most 40 deep, found more (s.yaml:39)"


def test_both_parsers_of_pyyaml_agree(monkeypatch):
    import yaml

    import executors.simulator.scenario.yamlfile as yamlfile

    text = "é: &a {x: [1, 'b'], 😀: ~}\r\nc:\r\n  <<: *a\r\n  d: |\r\n    e\r\n"
    monkeypatch.setattr(yamlfile, "_LOADER", yaml.SafeLoader)
    slow, slow_lines = parse(text, "s.yaml")
    monkeypatch.setattr(yamlfile, "_LOADER", yaml.CSafeLoader)
    fast, fast_lines = parse(text, "s.yaml")
    assert slow == fast == {"é": {"x": [1, "b"], "😀": None}, "c": {"x": [1, "b"], "😀": None, "d": "e\n"}}
    for path in (("é",), ("é", "x", 1), ("c", "😀"), ("c", "d")):
        assert line_of(path, slow_lines) == line_of(path, fast_lines)
