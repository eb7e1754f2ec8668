"""`rankcore optimize`: search for the cheapest setting that meets the objectives, keep what is done, and say what it is."""

import csv
import io
import json
import shlex
from pathlib import Path

import attrs
import typer
from rich import box
from rich.table import Table
from rich.text import Text

from executors.checking import Checking
from executors.cli.bars import runs_bar
from executors.cli.objectives import goals_of, window_s_of
from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, told_in_one_line
from executors.cli.run_places import workers_at
from executors.cli.screen import answers
from executors.simulator.load.sources import read_source
from executors.simulator.questions.cellfile import CellFile
from executors.simulator.questions.goals import parse_aim
from executors.simulator.questions.optimizing import CELLS_MAX, GoalQuestion, Optimum, along, axis_of, optimize
from executors.simulator.questions.optimum_words import VERDICTS, as_json, in_a_sentence, interval
from executors.simulator.questions.settings import parse_setting, parse_variation

SEED_MAX = 2**63 - 1
NONE_FOUND = 1
ROWS_MAX = 40


@attrs.frozen(kw_only=True)
class OptimizeAsked:
    """The command line."""

    scenario: Path
    slo: list[str]
    slo_window: str | None
    vary: list[str]
    minimize: str | None
    maximize: str | None
    gpu_price: float | None
    fixed: list[str]
    monotone: str | None
    runs_max: int
    budget: int
    seed: int | None
    jobs: int
    on: str
    out: Path | None
    json_file: str | None
    fresh: bool
    checking: Checking
    quiet: bool

    @property
    def folder(self) -> Path:
        """Where the files go."""
        return self.out if self.out is not None else Path(f"{self.scenario.stem}.optimize")

    def rerun(self, seed: int) -> str:
        """The command that gives the same answer."""
        words = ["rankcore", "optimize", str(self.scenario)]
        for option, texts in (("--set", self.fixed), ("--vary", self.vary), ("--slo", self.slo)):
            words += [word for text in texts for word in (option, text)]
        price = None if self.gpu_price is None else f"{self.gpu_price:g}"
        given = (
            ("--minimize", self.minimize),
            ("--maximize", self.maximize),
            ("--gpu-price", price),
            ("--monotone", self.monotone),
            ("--slo-window", self.slo_window),
        )
        words += [word for option, text in given if text is not None for word in (option, text)]
        words += ["--runs-max", str(self.runs_max), "--budget-runs", str(self.budget), "--seed", str(seed)]
        return shlex.join(words)


def run(asked: OptimizeAsked) -> None:
    """What `rankcore optimize` does, errors and exit status included."""
    again = f"the same command goes on with what is kept in {asked.folder}"
    with told_in_one_line(f"interrupted; {again}"):
        question = _question(asked)
        asked.folder.mkdir(parents=True, exist_ok=True)
        path = asked.folder / "cells.jsonl"
        with Outputs() as outputs:
            inputs = (*question.source.inputs, path)
            part = None
            if asked.json_file not in (None, "-"):
                part = outputs.open("--json", Path(asked.json_file), inputs)
            if asked.fresh:
                path.unlink(missing_ok=True)
            with CellFile(path) as kept, runs_bar("searching", asked.quiet) as bar:
                found = optimize(question, kept, workers_at(asked.on, asked.jobs), bar.show)
            _write(asked, found, outputs, part)
        if asked.json_file == "-":
            typer.echo(_json(asked, found), nl=False)
        elif not asked.quiet:
            _print(asked, found)
    if found.best is None or found.out_of_budget:
        raise typer.Exit(NONE_FOUND)


def _question(asked: OptimizeAsked) -> GoalQuestion:
    """Everything that can be wrong is told here, before anything runs."""
    settings = tuple(parse_setting("--set", text) for text in asked.fixed)
    source = read_source(asked.scenario, settings)
    goals = goals_of(asked.slo, source.scenario())
    if not goals:
        allowed = "--slo GOAL such as --slo 'p99 latency_s < 2', or slo in the scenario"
        raise Refusal(f"expected {allowed}, found no objective")
    if not asked.vary:
        raise Refusal("expected --vary KEY=VALUE,VALUE,... such as --vary target_replicas=1..64, found nothing to vary")
    variations = [parse_variation("--vary", text) for text in asked.vary]
    keys = [variation[0].key for variation in variations]
    if len(set(keys)) < len(keys):
        raise Refusal("--vary: expected each key once: all its values go into one --vary, separated by commas")
    has_prices = bool(source.scenario().gpu_prices_per_hour)
    aim = parse_aim(asked.minimize, asked.maximize, asked.gpu_price, has_prices=has_prices)
    axis = axis_of(variations, aim, asked.monotone)
    if axis is not None and asked.monotone is None:
        variations[axis] = along(variations[axis], aim)
    begin = asked.seed if asked.seed is not None else source.scenario().seed
    if begin + asked.runs_max - 1 > SEED_MAX:
        most = SEED_MAX - asked.runs_max + 1
        raise Refusal(f"--seed: expected at most {most}, so that {asked.runs_max} seeds follow, found {begin}")
    question = GoalQuestion(
        source=source,
        variations=tuple(variations),
        axis=axis,
        goals=goals,
        aim=aim,
        seed=begin,
        runs_max=asked.runs_max,
        budget=asked.budget,
        checking=asked.checking,
        window_s=window_s_of(asked.slo_window, source.scenario()),
    )
    if question.cells > CELLS_MAX:
        raise Refusal(f"--vary: expected at most {CELLS_MAX:,} combinations, found {question.cells:,}")
    question.check()
    return question


def _json(asked: OptimizeAsked, found: Optimum) -> str:
    plain = as_json(found, asked.gpu_price, asked.rerun(found.question.seed))
    return json.dumps(plain, indent=2, allow_nan=False) + "\n"


def _write(asked: OptimizeAsked, found: Optimum, outputs: Outputs, json_part: Path | None) -> None:
    from executors.simulator.report.front import render_front

    table, page = (outputs.open("--out", asked.folder / f"optimize.{ending}") for ending in ("csv", "html"))
    if json_part is not None:
        outputs.write(json_part, _json(asked, found))
    outputs.write(table, _as_csv(found))
    sentence = in_a_sentence(found, asked.gpu_price)
    title = found.question.source.scenario().name
    outputs.write(page, render_front(title, found, sentence, asked.rerun(found.question.seed)))
    outputs.keep()


def _as_csv(found: Optimum) -> str:
    """One row for each combination that has run."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    question = found.question
    of_goals = [word for goal in question.goals for word in (goal.text, "low", "high", "held in runs")]
    keys = [variation[0].key for variation in question.variations]
    rows.writerow([*keys, "runs", "verdict", question.aim.name, "gpu_hours", *of_goals])
    for each in found.tried:
        values = [value for m in each.measured for value in (m.value, m.low, m.high, m.kept)]
        verdict = "undecided" if VERDICTS[each.verdict] == "~" else VERDICTS[each.verdict]
        rows.writerow([*(s.text for s in each.settings), each.runs, verdict, each.cost, each.gpu_hours, *values])
    return text.getvalue()


def _print(asked: OptimizeAsked, found: Optimum) -> None:
    console, question = answers(), found.question
    console.print(Text(question.source.scenario().name, style="bold"))
    console.print(Text(in_a_sentence(found, asked.gpu_price)), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for variation in question.variations:
        table.add_column(Text(variation[0].key.rpartition(".")[2]), no_wrap=True)
    for header in ("runs", f"{question.aim.name} [{question.aim.unit}]" if question.aim.unit else question.aim.name):
        table.add_column(Text(header), justify="right")
    for goal in question.goals:
        table.add_column(Text(goal.text), justify="right", no_wrap=True)
        table.add_column("held", justify="right", no_wrap=True)
    table.add_column("")
    for each in found.tried[:ROWS_MAX]:
        goals = [
            word
            for goal, m in zip(question.goals, each.measured, strict=True)
            for word in (interval(goal, m), f"{m.kept}/{each.runs}")
        ]
        is_best = found.best is not None and each.cell == found.best.cell
        cells = [*(s.text for s in each.settings), str(each.runs), question.aim.shown(each.cost).split(" ")[0], *goals]
        table.add_row(
            *map(Text, cells), Text("the answer" if is_best else VERDICTS[each.verdict]), style="bold" if is_best else None
        )
    console.print(table)
    told = [f"{found.runs:,} runs of {len(found.tried):,} of {question.cells:,} combinations, from seed {question.seed} on"]
    told += [f"{len(found.tried) - ROWS_MAX} more rows are in the CSV"] if len(found.tried) > ROWS_MAX else []
    told += ["~ is not decided, and counts as missed"] if any(VERDICTS[each.verdict] == "~" for each in found.tried) else []
    console.print(Text(f"{'; '.join(told)}.", style="dim"), soft_wrap=True)
    files = (("figures", "optimize.csv"), ("page", "optimize.html"), ("runs", "cells.jsonl"))
    for name, file in files:
        console.print(Text(f"{name + ':':<9}{asked.folder / file}"), soft_wrap=True)
    console.print(Text(f"again:   {asked.rerun(question.seed)}"), soft_wrap=True)
