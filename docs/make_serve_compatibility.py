"""Write docs/serve-compatibility.md: every public name of the installed Ray Serve, and what becomes of it here.

python docs/make_serve_compatibility.py           write the page
python docs/make_serve_compatibility.py --check   say whether it is current (exit status 1 if not)

Both sides are read from the code: names from modules and classes, parameters from signatures, fields and defaults from models,
commands from the two shells. A name that is on both sides, with the same default, is the same unless serve-compatibility.toml
says otherwise; all others have to stand there with their reason. So a name that comes or goes, there or here, makes this fail
until it is decided about.
"""

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("serve-compatibility.md")
PROGRAMS = ROOT / "tests" / "integration" / "serve_programs"
DECIDED = Path(__file__).with_name("serve-compatibility.toml")
sys.path.insert(0, str(ROOT))

Verdict = Literal["same", "other", "renamed", "missing"]
VERDICTS = get_args(Verdict)
NO_DEFAULT = inspect.Parameter.empty

Names = Mapping[str, Any]
"""Names with their defaults; `NO_DEFAULT` where there is none to compare."""


class Surface(NamedTuple):
    """One kind of names: those of Ray Serve, and ours at the same place."""

    key: str
    title: str
    theirs: Callable[[], Names]
    ours: Callable[[], Names]


class Row(NamedTuple):
    """What becomes of one name."""

    name: str
    verdict: Verdict
    text: str


class Undecided(Exception):
    """Names that nobody has said anything about, or that there are not."""


def names_of(holder: object) -> Names:
    """Public attributes of a class or module."""
    return {name: NO_DEFAULT for name in dir(holder) if not name.startswith("_")}


def exported_by(module: Any) -> Names:
    """What a module says it exports."""
    return {name: NO_DEFAULT for name in module.__all__ if not name.startswith("_")}


def parameters_of(function: Callable[..., Any]) -> Names:
    """Public parameters, with their defaults."""
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return {
        each.name: each.default
        for each in parameters
        if each.kind not in kinds and not each.name.startswith("_") and each.name not in ("self", "func")
    }


def fields_of_model(model: Any) -> Names:
    """Fields of a pydantic model."""
    return {
        name: field.get_default(call_default_factory=True) if not field.is_required() else NO_DEFAULT
        for name, field in model.model_fields.items()
    }


def fields_of_attrs(kind: Any) -> Names:
    """Fields of an attrs class."""
    import attrs

    found = {}
    for field in attrs.fields(kind):
        default = field.default
        if isinstance(default, attrs.Factory) and not default.takes_self:  # type: ignore[arg-type]
            default = default.factory()
        found[field.name] = NO_DEFAULT if default is attrs.NOTHING else default
    return found


def commands_of(shell: Any) -> Names:
    """Commands of a shell, and their options as `command --option`."""
    found: dict[str, Any] = {}
    for name, command in shell.commands.items():
        found[name] = NO_DEFAULT
        for parameter in command.params:
            if longest := [option for option in parameter.opts if option.startswith("--")]:
                found[f"{name} {longest[0]}"] = NO_DEFAULT
    return found


def serve_deployment_options() -> Names:
    """Options of Serve's `@deployment`, with the defaults of its config."""
    from ray import serve
    from ray.serve._private.config import DeploymentConfig

    defaults = fields_of_model(DeploymentConfig) if hasattr(DeploymentConfig, "model_fields") else {}
    return {name: defaults.get(name, NO_DEFAULT) for name in parameters_of(serve.deployment) if name != "func_or_class"}


def our_deployment_options() -> Names:
    """Options of ours, with the defaults of the specs that they are fields of."""
    from executors.ray_gpu import declaration
    from executors.ray_gpu.serve_options import SERVE_OPTIONS
    from rankcore import DeploymentSpec
    from rankcore.routing import RoutingSpec

    spec, routing = fields_of_attrs(DeploymentSpec), {**fields_of_attrs(RoutingSpec), **declaration.ROUTING_DEFAULTS}
    found: dict[str, Any] = dict.fromkeys((*declaration.OWN_OPTIONS, *SERVE_OPTIONS), NO_DEFAULT)
    found |= {option: spec[field] for option, field in declaration.SPEC_OPTIONS.items() if field != "target_replicas"}
    found |= {option: routing[field] for option, field in declaration.ROUTING_OPTIONS.items()}
    return found | {"num_replicas": 1}


def _serve() -> Any:
    from ray import serve

    return serve


def _ours() -> Any:
    from executors import ray_gpu

    return ray_gpu


def _handles() -> Any:
    from ray.serve import handle

    return handle


def _configs() -> Any:
    from ray.serve import config

    return config


def _schema() -> Any:
    from ray.serve import schema

    return schema


def _our_call_options() -> Names:
    from executors.ray_gpu.requests import handle

    return {**fields_of_attrs(handle.CallOptions), **dict.fromkeys(handle.SERVE_OPTIONS, NO_DEFAULT)}


def _our_http_options() -> Names:
    from executors.ray_gpu.http.options import HttpOptions
    from executors.ray_gpu.proxies.options import SERVES_NOTHING

    return {**SERVES_NOTHING[HttpOptions], **fields_of_attrs(HttpOptions)}


def _our_grpc_options() -> Names:
    from executors.ray_gpu.grpc_proxy.options import GrpcOptions
    from executors.ray_gpu.proxies.options import SERVES_NAMES

    own = fields_of_attrs(GrpcOptions)
    return {**own, **{name: own[ours] for name, ours in SERVES_NAMES[GrpcOptions].items()}}


def _our_autoscaling() -> Names:
    from executors.ray_gpu.config import AutoscalingConfig

    return {**fields_of_attrs(AutoscalingConfig), "policy": NO_DEFAULT}


def _our_logging() -> Names:
    from executors.ray_gpu.schema import LoggingConfig

    return fields_of_attrs(LoggingConfig)


def _our_tracing() -> Names:
    from executors.ray_gpu.schema import TracingConfig

    return fields_of_attrs(TracingConfig)


def _our_router() -> Names:
    from executors.ray_gpu.config import RequestRouterConfig

    return fields_of_attrs(RequestRouterConfig)


def _our_file() -> Names:
    from executors.apps.file import AppsConfig

    return dict.fromkeys(AppsConfig.__struct_fields__, NO_DEFAULT)


def _our_application() -> Names:
    from executors.apps.file import ApplicationConfig

    return dict.fromkeys(ApplicationConfig.__struct_fields__, NO_DEFAULT)


def _serve_shell() -> Names:
    from ray.serve.scripts import cli

    return commands_of(cli)


def _our_shell() -> Names:
    import typer

    from executors.cli.app import app

    return commands_of(typer.main.get_command(app))


def _serve_paths() -> Names:
    from ray.dashboard.modules.serve import serve_head

    found = re.findall(r"@routes\.(\w+)\(\s*\"([^\"]+)\"", inspect.getsource(serve_head))
    return {f"{verb.upper()} {path}": NO_DEFAULT for verb, path in found}


def _our_paths() -> Names:
    from executors.ray_gpu.rest.endpoints import ENDPOINTS

    return {f"{each.method} {each.path}": NO_DEFAULT for each in ENDPOINTS}


def _without_defaults(names: Names) -> Names:
    return dict.fromkeys(names, NO_DEFAULT)


SURFACES = (
    Surface("module", "`from ray import serve`", lambda: exported_by(_serve()), lambda: exported_by(_ours())),
    Surface("deployment", "options of `@serve.deployment`", serve_deployment_options, our_deployment_options),
    Surface(
        "Deployment", "members of what it returns", lambda: names_of(_serve().Deployment), lambda: names_of(_ours().Deployment)
    ),
    Surface("run", "parameters of `run`", lambda: parameters_of(_serve().run), lambda: parameters_of(_ours().run)),
    Surface(
        "run_many",
        "parameters of `run_many`",
        lambda: parameters_of(_serve().run_many),
        lambda: parameters_of(_ours().run_many),
    ),
    Surface("start", "parameters of `start`", lambda: parameters_of(_serve().start), lambda: parameters_of(_ours().start)),
    Surface("batch", "parameters of `@batch`", lambda: parameters_of(_serve().batch), lambda: parameters_of(_ours().batch)),
    Surface(
        "multiplexed",
        "parameters of `@multiplexed`",
        lambda: parameters_of(_serve().multiplexed),
        lambda: parameters_of(_ours().multiplexed),
    ),
    Surface(
        "handle",
        "members of a handle",
        lambda: {**names_of(_handles().DeploymentHandle), "deployment_name": NO_DEFAULT},
        lambda: {**names_of(_ours().DeploymentHandle), "app_name": NO_DEFAULT, "deployment_name": NO_DEFAULT},
    ),
    Surface(
        "options",
        "`handle.options`",
        lambda: _without_defaults(parameters_of(_handles().DeploymentHandle.options)),
        lambda: _without_defaults(_our_call_options()),
    ),
    Surface(
        "response",
        "members of a response",
        lambda: names_of(_handles().DeploymentResponse),
        lambda: names_of(_ours().DeploymentResponse),
    ),
    Surface(
        "generator",
        "members of a stream of responses",
        lambda: names_of(_handles().DeploymentResponseGenerator),
        lambda: names_of(_ours().DeploymentResponseGenerator),
    ),
    Surface(
        "broadcast",
        "members of what `handle.broadcast` returns",
        lambda: names_of(_handles().DeploymentBroadcastResponse),
        lambda: names_of(_ours().DeploymentBroadcastResponse),
    ),
    Surface(
        "context",
        "members of `get_replica_context()`",
        lambda: _without_defaults(
            {**names_of(_context()), **{name: 0 for name in _context().__annotations__ if name[0] != "_"}}
        ),
        lambda: _without_defaults({**names_of(_ours().ReplicaContext), **fields_of_attrs(_ours().ReplicaContext)}),
    ),
    Surface(
        "AutoscalingConfig",
        "fields of `autoscaling_config`",
        lambda: fields_of_model(_configs().AutoscalingConfig),
        _our_autoscaling,
    ),
    Surface("HTTPOptions", "fields of `http_options`", lambda: fields_of_model(_configs().HTTPOptions), _our_http_options),
    Surface(
        "gRPCOptions",
        "fields of `grpc_options`",
        lambda: fields_of_model(_configs().gRPCOptions),
        _our_grpc_options,
    ),
    Surface("LoggingConfig", "fields of `LoggingConfig`", lambda: fields_of_model(_schema().LoggingConfig), _our_logging),
    Surface("TracingConfig", "fields of `TracingConfig`", lambda: fields_of_model(_schema().TracingConfig), _our_tracing),
    Surface(
        "RequestRouterConfig",
        "fields of `RequestRouterConfig`",
        lambda: fields_of_model(_configs().RequestRouterConfig),
        _our_router,
    ),
    Surface(
        "file",
        "keys of a config file",
        lambda: _without_defaults(fields_of_model(_schema().ServeDeploySchema)),
        _our_file,
    ),
    Surface(
        "application",
        "keys of an application in it",
        lambda: _without_defaults(fields_of_model(_schema().ServeApplicationSchema)),
        _our_application,
    ),
    Surface("shell", "commands, and their options", _serve_shell, _our_shell),
    Surface("REST", "REST", _serve_paths, _our_paths),
)


def _context() -> Any:
    from ray.serve.context import ReplicaContext

    return ReplicaContext


def decided(path: Path = DECIDED) -> dict[str, dict[str, str]]:
    """By surface and name: `verdict: reason`."""
    return tomllib.loads(path.read_text())


def rows_of(surface: Surface, said: Mapping[str, str]) -> Iterator[Row]:
    """One row a name of Serve's, in its order.

    Raises:
        Undecided: Names what has no entry and needs one, or has one and needs none.
    """
    theirs, ours = surface.theirs(), surface.ours()
    wrong = [f"{surface.key}.{name}: has an entry, and Ray Serve has no such name" for name in said if name not in theirs]
    for name, default in theirs.items():
        if name in said:
            verdict, _, text = said[name].partition(": ")
            if verdict not in VERDICTS or not text:
                wrong.append(f"{surface.key}.{name}: expected one of {', '.join(VERDICTS)}, then ': ' and the reason")
            elif (name in ours) != (verdict in ("same", "other")):
                wrong.append(f"{surface.key}.{name}: is called {verdict}, and is {'' if name in ours else 'not '}here")
            else:
                yield Row(name, verdict, text)  # type: ignore[arg-type]
        elif name not in ours:
            wrong.append(f"{surface.key}.{name}: is not here, and has no entry")
        elif not _alike(default, ours[name]):
            wrong.append(f"{surface.key}.{name}: is {default!r} there and {ours[name]!r} here, and has no entry")
        else:
            yield Row(name, "same", "")
    if wrong:
        raise Undecided("\n".join(wrong))


def _alike(theirs: Any, ours: Any) -> bool:
    if NO_DEFAULT in (theirs, ours):
        return True
    plain = theirs.value if isinstance(theirs, Enum) else theirs
    return bool(plain == ours) or (not plain and not ours and type(plain) is not bool)


TEXT = """\
# Every name of Ray Serve

Made from the installed Ray Serve ({release}) and from our own code by `make docs`; a test checks that it is current, so that a
name that comes or goes on either side is decided about. {count} public names, options, fields, commands and paths:

| | names | share |
|---|---|---|
{totals}

**same**: the name is here, at the same place and with the same default, and means the same; what is otherwise in a corner is
in [requests.md](requests.md#what-is-otherwise-than-in-ray-serve), [http.md](http.md#what-is-otherwise-than-in-ray-serve) and
[autoscaling.md](autoscaling.md#beside-ray-serve), each line with its test. **other**: the name is here, and something of it is
not as there. **renamed**: it is here under the name that is given. **missing**: it is not here. Names that begin with an
underscore are not listed, nor are names of ours that Serve does not have.

{sections}
## Programs that run on both

{program_count} programs in the style of the examples of Serve's documentation, in `tests/integration/serve_programs/`. The same
text runs on Ray Serve and here, with its imports changed and nothing else: `from executors import ray_gpu as serve`, and
`executors.ray_gpu.config`, `.exceptions`, `.handle` and `.schema` for Serve's modules of these names. `make test` runs them
here, `make night` on Ray Serve, and both have to return what the program says. {pass_count} return the same.

| program | what it does | |
|---|---|---|
{programs}
"""


def page() -> str:
    """The whole page.

    Raises:
        Undecided: As `rows_of`, of all surfaces.
    """
    import ray

    said, wrong, sections, totals = decided(), [], [], Counter[Verdict]()
    keys = {surface.key for surface in SURFACES}
    wrong += [f"[{key}]: there is no such surface" for key in said if key not in keys]
    for surface in SURFACES:
        try:
            rows = list(rows_of(surface, said.get(surface.key, {})))
        except Undecided as error:
            wrong.append(str(error))
            continue
        totals.update(row.verdict for row in rows)
        sections.append(_section(surface, rows))
    if wrong:
        raise Undecided("\n".join(wrong))
    count = totals.total()
    shares = "\n".join(f"| {verdict} | {totals[verdict]} | {totals[verdict] / count:.0%} |" for verdict in VERDICTS)
    programs = [_program(path) for path in sorted(PROGRAMS.glob("*.py"))]
    return TEXT.format(
        release=ray.__version__,
        count=count,
        totals=shares,
        sections="\n".join(sections),
        program_count=len(programs),
        pass_count=sum(line.endswith("| same |") for line in programs),
        programs="\n".join(programs),
    )


def _program(path: Path) -> str:
    """A line about a program: what its first line says, and how far it returns the same on both."""
    module = ast.parse(path.read_text())
    assigned = [each for each in module.body if isinstance(each, ast.Assign)]
    said = {ast.unparse(each.targets[0]): each.value for each in assigned}
    told = ast.get_docstring(module)
    assert told, f"{path} does not say what it does"
    assert "EXPECTED" in said, f"{path} does not say what it returns"
    assert ("IN_RAY_SERVE" in said) == ("WHY" in said), f"{path}: what differs has a reason"
    differs = ""
    if "WHY" in said:
        here, there = (f"`{ast.unparse(said[name])}`" for name in ("EXPECTED", "IN_RAY_SERVE"))
        differs = f"{here} here, {there} there: {ast.literal_eval(said['WHY'])}"
    return f"| `{path.stem}` | {told.splitlines()[0]} | {differs or 'same'} |"


def _section(surface: Surface, rows: list[Row]) -> str:
    alike = [f"`{row.name}`" for row in rows if not row.text]
    lines = [f"## {surface.title[0].upper()}{surface.title[1:]}", ""]
    if alike:
        lines += textwrap.wrap(f"Same, {len(alike)} of {len(rows)}: {', '.join(alike)}.", 128, break_long_words=False)
        lines.append("")
    if len(alike) < len(rows):
        lines += ["| | | |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {row.verdict} | {row.text} |" for row in rows if row.text]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    try:
        text = page()
    except Undecided as error:
        print(f"docs/{DECIDED.name} does not fit the installed Ray Serve:\n{error}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        current = PAGE.exists() and PAGE.read_text() == text
        print("current" if current else f"docs/{PAGE.name} is not current: run `make docs`")
        return 0 if current else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
