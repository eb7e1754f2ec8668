"""`rankcore engine fit`: from a CSV file of measurements to an engine in YAML."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import typer

from executors.cli.outputs import Outputs
from executors.cli.problems import Refusal, told_in_one_line, warn
from executors.simulator.engines.fit import Fit, fit_benchmark, fit_steps, table_of
from executors.simulator.engines.points import points_of
from executors.simulator.engines.spec import Curve, Engine, StepTime
from executors.simulator.fields import FieldProblem
from executors.simulator.load.csvfile import TraceError
from executors.simulator.scenario.engines import EngineTable

FAR_OFF = 0.15
ANY_TIME = StepTime(Curve(((0, 1),)), Curve(((0, 0),)))


@attrs.frozen(kw_only=True)
class Limits:
    """What of an engine is given, and not looked for."""

    kv_cache_tokens: int | None
    kv_policy: str
    max_num_seqs: int
    max_num_batched_tokens: int


@attrs.frozen
class EngineAsked:
    """What it is of, and how it is called."""

    gpu: str
    tp: int
    name: str


def run(points: Path, where: Sequence[str], asked: EngineAsked, output: Path | None, limits: Limits) -> None:
    """What `rankcore engine fit` does, errors and exit status included."""
    outputs = Outputs()
    with told_in_one_line(outputs.interrupted), outputs:
        pending = None if output is None else outputs.open("--output", output, (points,))
        try:
            EngineTable(gpu_type=asked.gpu, tp=asked.tp, base_ms=((0, 0.0),), prompt_ms=((0, 0.0),))
            fit = fitted(points, limits, dict(map(_condition, where)))
        except FieldProblem as problem:
            option = "--" + str(problem.keys[0]).replace("_", "-").replace("gpu-type", "gpu")
            raise Refusal(f"{option}: {problem}") from None
        except TraceError as error:
            raise Refusal(str(error)) from None
        except ValueError as error:
            raise Refusal(f"{points}: {error}") from None
        text = yaml_of(fit, asked, limits)
        if pending is not None:
            outputs.write(pending, text)
            outputs.keep()
        typer.echo("\n".join(_lines(fit)))
        for figure, off in fit.left_out_mape.items():
            if off > FAR_OFF:
                warn(f"{figure} of a row that the fit did not see is off by {off:.1%} on average")
        typer.echo(f"engine:  {output}" if output is not None else f"\n{text}", nl=output is not None)


def _condition(text: str) -> tuple[str, str]:
    column, equals, value = text.partition("=")
    if not equals:
        raise Refusal(f"--where: expected COLUMN=TEXT, found {text!r}")
    return column, value


def fitted(points: Path, limits: Limits, where: Mapping[str, str]) -> Fit:
    """The fit of a file."""
    steps, benchmarks = points_of(points, where)
    if steps:
        return attrs.evolve(fit_steps(steps), kv_cache_tokens=limits.kv_cache_tokens)
    longest = max(each.isl + each.osl for each in benchmarks)
    engine = Engine(
        ANY_TIME,
        limits.kv_cache_tokens or max(longest, 16),
        limits.max_num_seqs,
        limits.max_num_batched_tokens,
        kv_policy=limits.kv_policy,
    )
    return fit_benchmark(benchmarks, engine, searches=limits.kv_cache_tokens is None)


def _lines(fit: Fit) -> list[str]:
    """A table of all rows, and how far off they are."""
    found = ["row  " + "  ".join(f"{name:>12} {'fitted':>10}" for name in fit.figures)]
    for number, row in enumerate(fit.rows, 1):
        cells = zip(row.measured, row.fitted, strict=True)
        found.append(f"{number:>3}  " + "  ".join(f"{measured:>12,.6g} {said:>10,.4g}" for measured, said in cells))
    for title, errors in (("MAPE", fit.mape), ("MAPE of a row left out", fit.left_out_mape)):
        found.append(f"{title}: " + ", ".join(f"{name} {error:.1%}" for name, error in errors.items()))
    return found


def yaml_of(fit: Fit, asked: EngineAsked, limits: Limits) -> str:
    """The engine, as `engines` of a scenario has it."""
    import yaml

    error = ", ".join(f"{figure} {each:.1%}" for figure, each in fit.mape.items())
    engine = {
        "name": asked.name,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "kv_policy": limits.kv_policy,
        **({} if fit.kv_cache_tokens is None else {"kv_cache_tokens": fit.kv_cache_tokens}),
        "tables": [table_of(fit, asked.gpu, asked.tp)],
    }
    missing = "" if fit.kv_cache_tokens is not None else "# kv_cache_tokens is to be added: iterations do not tell it.\n"
    text = yaml.safe_dump({"engines": [engine]}, sort_keys=False, default_flow_style=None, width=120)
    return f"# Fitted to {len(fit.rows)} rows; MAPE: {error}.\n{missing}{text}"
