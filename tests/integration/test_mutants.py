"""The planted bugs: all fit the present source, the published table names each, and two are really caught."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants.__main__ import BAD_INPUT, SURVIVORS, main
from mutants.answers import Answers
from mutants.asking import Answer, Outcome
from mutants.groups import EVERY, GROUPS, RANKS, Group
from mutants.layers import Layer, layers
from mutants.mutant import Mutant, MutantError
from mutants.table import CAUGHT, PAGE, between_markers, left_columns, table
from mutants.trees import TOPS, Tree

ROOT = Path(__file__).parents[2]
NAMES = list(EVERY)
RULE = re.compile(r"(TR|[RTDPAQV])\d+|S\d|2(\.\d)?")


@pytest.mark.parametrize("name", NAMES)
def test_every_mutant_fits_the_present_source_and_is_python(name: str) -> None:
    mutant = EVERY[name]
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
    assert RULE.fullmatch(mutant.rule)
    assert mutant.path.startswith("rankcore/") or mutant.path == "tests/conformance/in_memory.py"
    source = mutant.source(ROOT)
    assert source != (ROOT / mutant.path).read_text(encoding="utf-8")
    compile(source, mutant.path, "exec")


def test_no_name_and_no_bug_is_there_twice() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("mutants.catalogue.")]
    listed = [each for module in modules for value in vars(module).values() if isinstance(value, tuple) for each in value]
    assert Counter(each.name for each in listed) == Counter(NAMES)
    assert len({(each.path, each.old, each.new) for each in listed}) == len(NAMES)


def test_every_promise_has_a_mutant() -> None:
    """R1 to R12, S1 to S8, T1 to T10, those of the one plane, and the sections on states, corner cases and the contract."""
    broken = {mutant.rule for mutant in EVERY.values()}
    promises = {*(f"R{number}" for number in range(1, 13)), *(f"S{number}" for number in range(1, 9)), "2", "2.3", "2.4"}
    promises |= {f"T{number}" for number in range(1, 11)}
    promises |= {"P2", "P3", "P4", "P5", "P6", "T11", "Q11", "Q12", "Q13"}
    promises |= {f"TR{number}" for number in range(1, 9)}
    assert promises <= broken


@pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))
def test_the_published_table_has_a_row_for_each_mutant_and_each_is_caught(group: Group) -> None:
    """Where this is red: python -m mutants --publish, with the option of the group."""
    mutants = group.mutants
    inside = between_markers((ROOT / PAGE).read_text(encoding="utf-8"), *group.markers)[1]
    rows = [line for line in inside.splitlines() if line.startswith("| `")]
    assert [row[: len(left_columns(mutant))] for row, mutant in zip(rows, mutants.values(), strict=True)] == [
        left_columns(mutant) for mutant in mutants.values()
    ]
    for row, mutant in zip(rows, mutants.values(), strict=True):
        marks = row[len(left_columns(mutant)) :].strip(" |").split(" | ")
        assert len(marks) == len(group.layers)
        assert CAUGHT in marks, f"{mutant.name} survives: write the missing test"
    assert f"{len(mutants)} of {len(mutants)} mutants are caught" in inside


def test_two_mutants_are_caught_and_the_checkout_stays_as_it_is(tmp_path: Path) -> None:
    """In a process of its own, since it forks; with a layer of few tests."""
    chosen = ("the-epoch-is-not-compared", "the-rank-of-the-dead-is-free")
    before = {each: (ROOT / EVERY[each].path).read_bytes() for each in chosen}
    code = "import mutants.__main__ as m, pathlib, sys; m.KEPT = pathlib.Path(sys.argv.pop(1)); sys.exit(m.main())"
    command = [sys.executable, "-c", code, str(tmp_path / "results.json"), "--layer", "scenarios"]
    named = [word for name in chosen for word in ("--only", name)]
    done = subprocess.run([*command, *named], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("caught by tests/scenarios/test_scenarios.py::test_scenario[") == 2
    assert {each: (ROOT / EVERY[each].path).read_bytes() for each in chosen} == before
    again = subprocess.run([*command, *named], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert again.stdout == done.stdout
    # Of other sources, and caught by a test that does not catch one, and by one that is not there any more.
    results = tmp_path / "results.json"
    kept = json.loads(results.read_text(encoding="utf-8"))
    for name, by in zip(chosen, ("dynamo_3567_successful_before_it_is", "no_such_test"), strict=True):
        kept[name]["scenarios"].update(of="", by=f"tests/scenarios/test_scenarios.py::test_scenario[{by}]")
    results.write_text(json.dumps(kept), encoding="utf-8")
    anew = subprocess.run([*command, *named], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert anew.stdout == done.stdout
    assert again.stderr == "", "what is known is asked again"


def test_a_mutant_that_no_longer_fits_says_so(tmp_path: Path) -> None:
    mutant = Mutant("twice", "R1", "", "some.py", "x = 1\n", "x = 2\n")
    with pytest.raises(MutantError, match=r"^twice: some.py is not there any more"):
        mutant.source(tmp_path)
    (tmp_path / "some.py").write_text("x = 1\nx = 1\n")
    with pytest.raises(
        MutantError, match=r"the text to replace occurs 2 times in some.py, expected once: .* begins with 'x = 1'"
    ):
        mutant.source(tmp_path)


def test_a_copy_has_one_bug_at_a_time(tmp_path: Path) -> None:
    for top in ("rankcore", "executors", "tests", "docs", "examples"):
        (tmp_path / "from" / top).mkdir(parents=True)
    for top in ("README.md", "pyproject.toml", "rankcore/a.py", "rankcore/b.py"):
        (tmp_path / "from" / top).write_text("x = 1\n")
    (tmp_path / "to").mkdir()
    tree = Tree(tmp_path / "from", tmp_path / "to")
    tree.plant(Mutant("a", "R1", "", "rankcore/a.py", "1", "2"))
    tree.plant(Mutant("b", "R1", "", "rankcore/b.py", "1", "3"))
    assert [(tmp_path / "to/rankcore" / name).read_text() for name in ("a.py", "b.py")] == ["x = 1\n", "x = 3\n"]
    assert int((tmp_path / "to/rankcore/b.py").stat().st_mtime) != int((tmp_path / "from/rankcore/b.py").stat().st_mtime)
    tree.plant(None)
    assert (tmp_path / "to/rankcore/b.py").read_text() == "x = 1\n"


def layer(name: str, tests: Path) -> Layer:
    return Layer(
        name,
        "some tests",
        ("pytest", name),
        lambda _: (tests,),
        frozenset({1}),
        re.compile(r"(x)"),
        lambda by: ("pytest", by),
        1,
    )


def test_what_survived_is_asked_again_when_the_tests_have_changed_and_what_was_caught_is_not(tmp_path: Path) -> None:
    (tmp_path / "tests.py").write_text("")
    (tmp_path / "core.py").write_text("x = 1\n")
    one, other = layer("one", tmp_path / "tests.py"), layer("other", tmp_path / "tests.py")
    mutant = Mutant("a", "R1", "does this", "core.py", "1", "2")
    answers = Answers(tmp_path, tmp_path / "kept/results.json")
    assert answers.get(mutant, one) is None
    answers.put(mutant, one, Answer(Outcome.CAUGHT, "test_x", 0.5))
    answers.put(mutant, other, Answer(Outcome.SURVIVED, "", 2.0))

    def known() -> list[Outcome | None]:
        read = Answers(tmp_path, tmp_path / "kept/results.json")
        found = [read.get(mutant, each) for each in (one, other)]
        return [answer.outcome if answer is not None else None for answer in found]

    assert known() == [Outcome.CAUGHT, Outcome.SURVIVED]
    assert "| `a` | R1 | does this | yes | - |" in table([mutant], [one, other], answers)
    assert "| one | some tests | 1 s | 1 | 1 |" in table([mutant], [one, other], answers)
    (tmp_path / "tests.py").write_text("def test_another(): ...\n")
    assert known() == [Outcome.CAUGHT, None]
    (tmp_path / "core.py").write_text("x = 1  # otherwise\n")
    assert known() == [None, None]
    assert [answers.last_caught_by(mutant, each) for each in (one, other)] == ["test_x", ""]
    with pytest.raises(MutantError, match=r"layer 'one' has not been asked about a"):
        table([mutant], [one], Answers(tmp_path, tmp_path / "kept/results.json"))


def test_every_layer_has_tests_and_the_published_ones_are_layers() -> None:
    known = layers(ROOT)
    assert {name for group in GROUPS.values() for name in group.layers} <= set(known)
    for each in known.values():
        sources = list(each.sources(ROOT))
        assert sources
        assert all(path.is_file() for path in sources), each.name
    unit = " ".join(known["unit"].command)
    assert "tests/unit/test_recovery.py" in unit
    assert "tests/unit/test_simulator.py" not in unit


def test_no_layer_has_tests_of_what_a_copy_does_not_have() -> None:
    """Such a test fails without any mutant, and then no mutant can be asked about."""
    left_out = {path.name for path in ROOT.iterdir() if path.is_dir()} - set(TOPS)
    imports = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(map(re.escape, left_out))})\b", re.MULTILINE)
    for layer in layers(ROOT).values():
        tests = [path for path in layer.sources(ROOT) if path.suffix == ".py"]
        assert [path.name for path in tests if imports.search(path.read_text(encoding="utf-8"))] == [], layer.name


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "the-epoch"], "there is no mutant 'the-epoch'; --list shows all, among them the-rank-n-stays"),
        (["--layer", "luck"], "there is no layer 'luck'; --list shows all"),
        (["--jobs", "0"], "--jobs is 0, expected at least 1"),
        (["--publish", "--layer", "unit"], "--publish needs every mutant and every published layer"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == BAD_INPUT
    told = capsys.readouterr().err
    assert told.startswith(f"error: {complaint}")
    assert told.count("\n") == 1


def test_the_list_names_every_mutant_and_every_layer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    told = capsys.readouterr().out
    assert all(f"{mutant.name}: {mutant.bug}" in told for mutant in RANKS.mutants.values())
    assert all(f"  {name} " in told for name in layers(ROOT))


def test_a_page_without_its_markers_is_refused() -> None:
    begin, end = RANKS.markers
    assert between_markers(f"a{begin}b{end}c", begin, end) == (f"a{begin}", "b", f"{end}c")
    for page in ("", f"{end}{begin}", f"{begin}{begin}{end}"):
        with pytest.raises(MutantError, match=r"docs/verification.md must have the line"):
            between_markers(page, begin, end)


def test_a_survivor_is_an_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that is asked for is known already, so nobody is asked."""
    monkeypatch.setattr("mutants.__main__.KEPT", tmp_path / "results.json")
    mutant, unit = EVERY["the-clock-goes-back"], layers(ROOT)["unit"]
    answers = Answers(ROOT, tmp_path / "results.json")
    answers.put(mutant, unit, Answer(Outcome.SURVIVED, "", 1.0))
    assert main(["--only", mutant.name, "--layer", "unit"]) == SURVIVORS
    assert "1 survive, each a missing test: the-clock-goes-back" in capsys.readouterr().out
    answers.put(mutant, unit, Answer(Outcome.CAUGHT, "test_x", 1.0))
    assert main(["--only", mutant.name, "--layer", "unit"]) == 0
    assert "caught by test_x" in capsys.readouterr().out
