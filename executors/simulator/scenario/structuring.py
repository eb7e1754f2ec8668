"""Plain data to the classes of `model`, with cattrs; what does not fit is told with its whole key path."""

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args, get_origin

import attrs
import cattrs
from cattrs.errors import AttributeValidationNote, BaseValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from executors.simulator.fields import SECONDS_MAX, FieldProblem, FileProblem, Missing, is_number
from executors.simulator.load.csvfile import TraceError
from executors.simulator.load.distributions import BY_NAME, ColumnOfFile, Constant, Distribution, Empirical, Exponential
from executors.simulator.load.presets import with_preset
from executors.simulator.scenario.autoscaling import AUTOSCALING_CHECKS, autoscaling_of, check_not_static, target_of
from executors.simulator.scenario.engines import REFUSED, ScenarioEngine
from executors.simulator.scenario.every import Origins, expanded
from executors.simulator.scenario.faults import FAULTS, Fault, FaultRate
from executors.simulator.scenario.files import listed_names, with_files
from executors.simulator.scenario.hardware import NodeGroup
from executors.simulator.scenario.model import CHANGEABLE, SPEC_FIELDS, Change, Deployment, Scenario
from executors.simulator.scenario.models import is_old, upgraded
from executors.simulator.scenario.moments import Moment
from executors.simulator.scenario.placements import PlacementGroup, check_groups, static_placement
from executors.simulator.scenario.requests import REQUEST_SOURCES, DrawnTokens, Requests
from executors.simulator.scenario.spec_fields import SPEC_ATTRIBUTES, SPEC_CHECKS
from executors.simulator.scenario.weights import WeightSizes
from rankcore import DeploymentSpec, StaticPlacement
from rankcore.autoscaling import AutoscalingSpec
from rankcore.errors import InvalidSpecError

_FOLDER: ContextVar[Path] = ContextVar("folder")
"""Where the scenario is that is being structured: cattrs hands its hooks nothing but the data."""
_BUNDLE_COUNTS: ContextVar[Mapping[str, int] | None] = ContextVar("bundle_counts", default=None)
"""Likewise, how many bundles each placement group of it has."""
_MOMENT = re.compile(r"busiest_minute(?: *([-+]) *([0-9]+(?:\.[0-9]*)?))?")
_DISTRIBUTIONS = "a number of seconds, or one of " + ", ".join((*(f"{key}: {{...}}" for key in BY_NAME), "empirical: [...]"))


def structure_scenario(data: object, folder: Path = Path(), by_id: bool = False) -> Scenario:
    """Build a scenario of plain data, of a schema before this one too; files that it names are relative to `folder`.

    Args:
        by_id: Whether deployments are named by their ids, as in journals; else those of applications stand in these.

    Raises:
        FieldProblem: With the key path, counted from the scenario.
    """
    if isinstance(data, Mapping) and is_old(data):
        data = upgraded(data)
    token, counts = _FOLDER.set(folder), _BUNDLE_COUNTS.set(_bundle_counts(data))
    origins: Origins = {}
    try:
        whole, origins = expanded(data, partial(_sizes_in, folder), by_id)
        if isinstance(data, Mapping) and data.get("every_deployment"):
            _check_every(data["every_deployment"])
        return with_files(_CONVERTER.structure(whole, Scenario), folder)
    except (BaseValidationError, FieldProblem) as error:
        raise _in_the_file(_first_problem(error, ()), origins) from None
    finally:
        _FOLDER.reset(token)
        _BUNDLE_COUNTS.reset(counts)


def _sizes_in(folder: Path, data: object) -> list[str]:
    """The names of the file of `weight_sizes`."""
    return listed_names(_structure_in("weight_sizes", data, WeightSizes), folder)


def _check_every(data: object) -> None:
    """What holds for every deployment has to be right also where none has it from there."""
    if not isinstance(data, Mapping) or "name" in data:
        raise FieldProblem(("every_deployment",), data, "a mapping with keys of a deployment, but no name")
    probe = {"target_replicas": 0} if not data.get("autoscaling") else {}
    _structure_in("every_deployment", {"name": "every", **probe, **data}, Deployment)


def _in_the_file(problem: FieldProblem, origins: Origins) -> FieldProblem:
    """The problem of a deployment with the key path that it has in the file."""
    match problem.keys:
        case ("deployments", int(index), *rest) if index in origins:
            problem.keys = (*origins[index], *rest)
    return problem


def _bundle_counts(data: Any) -> Mapping[str, int] | None:
    """How many bundles each placement group has; None where that cannot be told, which the group's own error says."""
    if not isinstance(data, Mapping):
        return None
    try:
        groups = _CONVERTER.structure(data.get("placement_groups", []), tuple[PlacementGroup, ...])
        nodes = _CONVERTER.structure(data.get("nodes", []), tuple[NodeGroup, ...])
        check_groups(groups, nodes)
    except (BaseValidationError, FieldProblem):
        return None
    return {group.name: len(tuple(group.spread(nodes))) for group in groups}


def _first_problem(error: BaseException, path: tuple[str | int, ...]) -> FieldProblem:
    """The innermost first cause of what cattrs collected, which is the first in the order of the classes."""
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            path = (*path, note.name)
        elif isinstance(note, IterableValidationNote):
            path = (*path, note.index)
    if isinstance(error, BaseValidationError):
        return _first_problem(error.exceptions[0], path)
    if isinstance(error, FieldProblem):
        return error.within(path)
    raise error  # a bug of ours: hooks and validators raise nothing else


def _at(key: str | int, error: BaseException) -> BaseException:
    """The same error, one key further out."""
    return _first_problem(error, (key,))


def _structure_in(key: str | int, data: object, cls: Any) -> Any:
    try:
        return _CONVERTER.structure(data, cls)
    except (BaseValidationError, FieldProblem) as error:
        raise _at(key, error) from None


def _check_keys(data: object, known: tuple[str, ...], required: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise FieldProblem((), data, f"a mapping with {', '.join(required or known)}")
    for key in data:
        if key not in known:
            raise FieldProblem((key,), key, _nearest(key, known) or f"one of the keys {', '.join(known)}")
    for key in required:
        if key not in data:
            raise FieldProblem((key,), Missing(), "a value, which has no default")
    return data


def _nearest(key: object, known: tuple[str, ...]) -> str | None:
    """What is allowed instead of a key that is nearly a known one; None: it is one, or is like none."""
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5) if key not in known else None
    return f'a known key such as "{near[0]}"' if near else None


@cache
def _class_hook(cls: type) -> Callable[[Any, Any], Any]:
    structure: Callable[[Any, Any], Any] = make_dict_structure_fn(cls, _CONVERTER)
    fields = [field for field in attrs.fields(cls) if field.metadata.get("in_file", True)]
    known = tuple(field.name for field in fields)
    required = tuple(field.name for field in fields if field.default is attrs.NOTHING)

    def hook(data: Any, _: Any) -> Any:
        return structure(with_preset(_check_keys(data, known, required), known), cls)

    return hook


def _structure_deployment(data: Any, _: Any) -> Deployment:
    own = tuple(field.name for field in attrs.fields(Deployment) if field.name != "spec")
    follows = isinstance(data, Mapping) and (
        isinstance(data.get("placement"), Mapping) or any(data.get(key) is not None for key in ("autoscaling", "residency"))
    )
    values = _check_keys(data, SPEC_FIELDS + own, ("name",) if follows else ("name", "target_replicas"))
    fields = _checked_spec_fields(values)
    owned = _own_fields(values, Deployment, own)
    autoscaling = owned.get("autoscaling")
    if autoscaling is not None and not isinstance(fields.get("placement"), StaticPlacement):
        fields["target_replicas"] = target_of(values, autoscaling)
    elif owned.get("residency") is not None:
        fields.setdefault("target_replicas", 0)
    try:
        spec = DeploymentSpec(**fields)
    except InvalidSpecError as error:
        raise FieldProblem((error.field.rpartition(".")[2],), error.found, error.allowed) from None
    if autoscaling is not None:
        check_not_static(spec)
    return Deployment(spec=spec, **owned)


def structure_autoscaling(data: Any, _: Any = None) -> AutoscalingSpec:
    """The options of an autoscaler, of plain data.

    Raises:
        FieldProblem: With the key path, counted from these options.
    """
    values = _check_keys(data, tuple(AUTOSCALING_CHECKS), ())
    whole = ("min_replicas", "max_replicas", "initial_replicas", "max_rank_moves")
    return autoscaling_of({key: value if key in whole else _as_float(value, None) for key, value in values.items()})


def _structure_change(data: Any, _: Any) -> Change:
    own = tuple(field.name for field in attrs.fields(Change) if field.name != "fields")
    values = _check_keys(data, own + CHANGEABLE, ("at", "deployment"))
    fields = _checked_spec_fields({key: value for key, value in values.items() if key in CHANGEABLE})
    return Change(fields=fields, **_own_fields(values, Change, own))


def _checked_spec_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: values[key] for key in SPEC_CHECKS if key in values}
    for key, value in found.items():
        check = SPEC_CHECKS[key]
        if check is not None:
            check(None, SPEC_ATTRIBUTES[key], value)
    if isinstance(found.get("placement"), Mapping):
        try:
            found["placement"] = static_placement(found["placement"], _BUNDLE_COUNTS.get())
        except FieldProblem as problem:
            raise problem.within(("placement",)) from None
    return found


def _own_fields(values: Mapping[str, Any], cls: Any, names: tuple[str, ...]) -> dict[str, Any]:
    types_by_name = {field.name: field.type for field in attrs.fields(cls)}
    return {name: _structure_in(name, values[name], types_by_name[name]) for name in names if name in values}


def _structure_fault(kinds: Mapping[str, Any], data: Any, _: Any) -> Any:
    if not isinstance(data, Mapping):
        raise FieldProblem((), data, "a mapping with kind and at")
    kind = data.get("kind", Missing())
    cls = kinds.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise FieldProblem(("kind",), kind, f"one of {', '.join(kinds)}")
    return _CONVERTER.structure({key: value for key, value in data.items() if key != "kind"}, cls)


def _structure_fault_rate(data: Any, _: Any) -> FaultRate:
    """As any class, but a plain number of seconds is the mean of an exponential distribution."""
    own = tuple(field.name for field in attrs.fields(FaultRate))
    values = dict(_check_keys(data, own, ("kind", "mtbf_s")))
    for key in ("mtbf_s", "mttr_s"):
        if is_number(values.get(key)):
            values[key] = Exponential(mean=values[key]) if 0 < values[key] <= SECONDS_MAX else values[key]
    return FaultRate(**_own_fields(values, FaultRate, own))


def _structure_distribution(data: Any, _: Any) -> Distribution:
    if isinstance(data, Distribution):
        return data
    if is_number(data) and 0 <= data <= SECONDS_MAX:
        return Constant(value=float(data))
    if not isinstance(data, Mapping) or len(data) != 1:
        raise FieldProblem((), data, _DISTRIBUTIONS)
    (kind, parameters), *_rest = data.items()
    if kind == "empirical" and isinstance(parameters, Mapping):
        column: ColumnOfFile = _structure_in(kind, parameters, ColumnOfFile)
        return _read_column(column)
    if kind == "empirical":
        if not isinstance(parameters, list):
            raise FieldProblem((kind,), parameters, "a list of numbers, or a file and one of its columns")
        try:
            return Empirical(values=tuple(parameters))
        except FieldProblem as error:
            raise FieldProblem((kind, *error.keys[1:]), error.found, error.allowed) from None
    if kind not in BY_NAME:
        raise FieldProblem((kind,), kind, _nearest(kind, (*BY_NAME, "empirical")) or _DISTRIBUTIONS)
    distribution: Distribution = _structure_in(kind, parameters, BY_NAME[kind])
    return distribution


def _read_column(column: ColumnOfFile) -> Empirical:
    try:
        return column.read(_FOLDER.get())
    except TraceError as error:
        raise FileProblem(("empirical", "file"), column.file, str(error)) from None


def _structure_tokens(data: Any, _: Any) -> DrawnTokens:
    """The same distributions as for durations, but not of seconds."""
    structure = _class_hook(DrawnTokens)
    try:
        tokens: DrawnTokens = structure(data, DrawnTokens)
    except (BaseValidationError, FieldProblem) as error:
        problem = _first_problem(error, ())
        if problem.allowed is not _DISTRIBUTIONS:
            raise problem from None
        raise FieldProblem(problem.keys, problem.found, _DISTRIBUTIONS.replace("of seconds", "of tokens")) from None
    return tokens


def _structure_requests(data: Any, _: Any) -> Requests:
    if isinstance(data, Mapping) and len(data) == 1 and (near := _nearest(next(iter(data)), tuple(REQUEST_SOURCES))):
        raise FieldProblem((next(iter(data)),), next(iter(data)), near)
    if not isinstance(data, Mapping) or len(data) != 1 or next(iter(data)) not in REQUEST_SOURCES:
        raise FieldProblem((), data, "one of " + ", ".join(f"{key}: {{...}}" for key in REQUEST_SOURCES))
    ((kind, parameters),) = data.items()
    requests: Requests = _structure_in(kind, parameters, REQUEST_SOURCES[kind])
    return requests


def _structure_engine(data: Any, _: Any) -> ScenarioEngine:
    """As any class; what other engines can do and this one can't is refused as such."""
    for key in REFUSED:
        if isinstance(data, Mapping) and key in data:
            raise FieldProblem((key,), data[key], f"no {key}: engines here have none, so figures would be of another one")
    engine: ScenarioEngine = _class_hook(ScenarioEngine)(data, ScenarioEngine)
    return engine


def _structure_moment(data: Any, _: Any) -> Moment:
    if is_number(data) and 0 <= data <= SECONDS_MAX:
        return Moment(offset_s=float(data))
    match = _MOMENT.fullmatch(data) if isinstance(data, str) else None
    if match is None:
        raise FieldProblem((), data, f"seconds from 0 to {SECONDS_MAX:g}, or busiest_minute, or busiest_minute + seconds")
    sign, offset = match.groups(default="0")
    return Moment(anchor="busiest_minute", offset_s=min(float(offset), SECONDS_MAX) * (-1 if sign == "-" else 1))


def _tuple_hook(cls: Any) -> Callable[[Any, Any], Any]:
    item_type = get_args(cls)[0]

    def hook(data: Any, _: Any) -> Any:
        if not isinstance(data, list):
            raise FieldProblem((), data, "a list")
        return tuple(_structure_in(index, item, item_type) for index, item in enumerate(data))

    return hook


def _as_is(data: Any, _: Any) -> Any:
    """Numbers, texts, flags and mappings: the validators of the classes check type and range together."""
    return data


def _or_none(hook: Callable[[Any, Any], Any], data: Any, cls: Any) -> Any:
    """What is left out may as well be null."""
    return None if data is None else hook(data, cls)


def _as_float(data: Any, _: Any) -> Any:
    return float(data) if type(data) is int and is_number(data) else data


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=True)
    # Each scalar by name: the hooks that cattrs has for these, which would turn 8.5 into 8, come before any predicate.
    for scalar in (int, str, bool):
        converter.register_structure_hook(scalar, _as_is)
    converter.register_structure_hook(float, _as_float)
    for either in (bool | str, float | str, float | str | None):
        converter.register_structure_hook_func(partial(operator.eq, either), _as_is)
    converter.register_structure_hook_func(_is_mapping, _as_is)
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook)
    converter.register_structure_hook_factory(_is_plain_class, _class_hook)
    for cls, hook in _SPECIAL.items():
        converter.register_structure_hook_func(partial(operator.eq, cls), hook)
        if cls not in (Deployment, Change, FaultRate):  # always written out
            converter.register_structure_hook_func(partial(operator.eq, cls | None), partial(_or_none, hook))
    return converter


def _is_mapping(cls: Any) -> bool:
    return get_origin(cls) is Mapping


def _is_tuple(cls: Any) -> bool:
    return get_origin(cls) is tuple


def _is_plain_class(cls: Any) -> bool:
    return attrs.has(cls) and get_origin(cls) is None and cls not in _SPECIAL


_SPECIAL: dict[Any, Callable[[Any, Any], Any]] = {
    Deployment: _structure_deployment,
    AutoscalingSpec: structure_autoscaling,
    Change: _structure_change,
    Moment: _structure_moment,
    Distribution: _structure_distribution,
    Fault: partial(_structure_fault, FAULTS),
    FaultRate: _structure_fault_rate,
    DrawnTokens: _structure_tokens,
    Requests: _structure_requests,
    ScenarioEngine: _structure_engine,
}
_CONVERTER = _make_converter()
