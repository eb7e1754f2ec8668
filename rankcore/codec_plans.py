"""How each type is written as plain data and read back: what `rankcore.codec` looks up.

A class is looked at once, at first use, and turned into a `Plan`: a pair of functions, one for each direction. Its
annotations say everything; a class with a kind of annotation that is not here is refused, at that first use.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from itertools import pairwise
from operator import attrgetter, itemgetter
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

import attrs
import msgspec

from rankcore.errors import CodecError, RankcoreError, shown
from rankcore.frozen import FrozenDict, FrozenJson, PMap, freeze_json

Format: TypeAlias = tuple[int, int]
"""Major and minor."""


def since(major: int, minor: int) -> dict[str, Format]:
    """The `metadata` of a field that came with this format: at its default it is not written, so texts stay as they were."""
    return {"since": (major, minor)}


class Mismatch(Exception):
    """Something does not fit its type. Each level that it passes on its way up adds a step to the path.

    Attributes:
        unheard: Whether it is a field or a class of which this version has never heard.
    """

    def __init__(self, complaint: str, *, unheard: bool = False) -> None:
        super().__init__(complaint)
        self.complaint = complaint
        self.unheard = unheard
        self.path: list[str] = []

    def text(self, data: object) -> str:
        """The complaint about all of `data`, in one sentence that begins with the path."""
        if not self.path:
            return self.complaint.removeprefix(": ") if isinstance(data, dict) else f"the value{self.complaint}"
        root = data["type"] if isinstance(data, dict) and self.path != [".type"] else ""
        return f"{root}{''.join(reversed(self.path))}{self.complaint}".removeprefix(".")

    def at(self, step: str) -> "Mismatch":
        """The same, one level further up."""
        self.path.append(step)
        return self


def _must_be(allowed: str, found: object) -> Mismatch:
    return Mismatch(f" must be {allowed}, got {shown(found)}")


class Plan(NamedTuple):
    """How values of one type are written and read.

    Attributes:
        read: From plain data; raises `Mismatch`.
        convert: To plain data; None: the value is plain already.
        classes: Of the values; tells the members of a union apart when writing.
        shapes: Of the plain data; tells them apart when reading.
    """

    read: Callable[[Any], Any]
    convert: Callable[[Any], Any] | None
    classes: tuple[type, ...]
    shapes: tuple[type, ...]

    def write(self, value: Any) -> Any:
        """To plain data."""
        return self.convert(value) if self.convert else value


@cache
def entry_plan(kind: Any) -> Plan:
    """What stands at the top is tagged, a union or not."""
    return _tagged_plan(get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,))


def write_tagged(value: Any) -> dict[str, Any]:
    """A record as plain data that says which class it is of."""
    cls: Any = type(value)
    return {"type": cls.__name__, **record_plan(cls).write(value)}


@cache
def plan_of(hint: Any) -> Plan:
    """Look at a type, as found in an annotation."""
    origin = get_origin(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if origin in (Union, UnionType):
        return _union_plan(get_args(hint))
    if origin is tuple:
        return _tuple_plan(get_args(hint))
    if origin is PMap:
        return _map_plan(*get_args(hint))
    if origin is Mapping:
        return _frozen_dict_plan(*get_args(hint))
    if origin is Literal:
        return _choice_plan({choice: choice for choice in get_args(hint)}, str)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice_plan({member.value: member for member in hint}, hint)
    return record_plan(hint)


def _exact_plan(cls: type, allowed: str) -> Plan:
    def read(data: Any) -> Any:
        if type(data) is not cls:
            raise _must_be(allowed, data)
        return data

    return Plan(read, None, (cls,), (cls,))


FLOAT_BITS = 1023
"""An integer that stands where a float may stand has no more, so that it can be calculated with as one."""


def _float_plan() -> Plan:
    special = {"inf": math.inf, "-inf": -math.inf}

    def read(data: Any) -> Any:
        if type(data) is float or (type(data) is int and data.bit_length() <= FLOAT_BITS):
            return data
        if type(data) is str and data in special:
            return special[data]
        raise _must_be("a number, 'inf' or '-inf'", data)

    return Plan(read, _float_to_plain, (float, int), (float, int, str))


def _float_to_plain(value: float) -> float | str:
    if type(value) is int and value.bit_length() > FLOAT_BITS:
        raise CodecError(f"an integer of {value.bit_length()} bits cannot be written where a float may stand")
    if math.isfinite(value):
        return value
    if math.isnan(value):
        raise CodecError("NaN cannot be written: it is not equal to itself")
    return "inf" if value > 0 else "-inf"


def _bytes_plan() -> Plan:
    def read(data: Any) -> Any:
        try:
            return base64.b64decode(data, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise _must_be("bytes in base64", data) from None

    return Plan(read, lambda value: base64.b64encode(value).decode(), (bytes,), (str,))


def _json_plan() -> Plan:
    def read(data: Any) -> Any:
        try:
            return freeze_json(data)
        except TypeError as error:
            raise Mismatch(f" must be JSON-like data ({error})") from None

    return Plan(read, _json_to_plain, (), ())


def _json_to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json_to_plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_json_to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise CodecError(f"{value} cannot be written: JSON has no such number")
    return value


_SIMPLE: dict[Any, Plan] = {
    int: _exact_plan(int, "an integer"),
    str: _exact_plan(str, "a string"),
    bool: _exact_plan(bool, "true or false"),
    NoneType: _exact_plan(NoneType, "null"),
    float: _float_plan(),
    bytes: _bytes_plan(),
    FrozenJson: _json_plan(),
}


def _choice_plan(choices: dict[Any, Any], cls: type) -> Plan:
    shape = int if issubclass(cls, int) else str
    allowed = "one of " + ", ".join(repr(str(choice)) for choice in choices)

    def read(data: Any) -> Any:
        if type(data) is not shape or data not in choices:
            raise _must_be(allowed, data)
        return choices[data]

    return Plan(read, None, (cls,), (shape,))


def _tuple_plan(items: tuple[Any, ...]) -> Plan:
    if items[-1] is Ellipsis:
        return _sequence_plan(plan_of(items[0]))
    plans = [plan_of(item) for item in items]

    def convert(value: Any) -> Any:
        return [plan.write(item) for plan, item in zip(plans, value, strict=True)]

    def read(data: Any) -> Any:
        if type(data) not in (list, tuple) or len(data) != len(plans):
            raise _must_be(f"a list of {len(plans)}", data)
        return tuple(_read_at(index, plan, data[index]) for index, plan in enumerate(plans))

    return Plan(read, convert, (tuple,), (list, tuple))


def _sequence_plan(plan: Plan) -> Plan:
    def convert(value: Any) -> Any:
        return [plan.write(item) for item in value]

    def read(data: Any) -> Any:
        if type(data) not in (list, tuple):
            raise _must_be("a list", data)
        return tuple([_read_at(index, plan, item) for index, item in enumerate(data)])

    return Plan(read, convert if plan.convert else None, (tuple,), (list, tuple))


def _map_plan(key_hint: Any, value_hint: Any) -> Plan:
    keys, values = plan_of(key_hint), plan_of(value_hint)
    if keys.shapes == (str,):
        return _text_map_plan(keys, values)

    def convert(value: Any) -> Any:
        return [[keys.write(key), values.write(item)] for key, item in _in_key_order(value)]

    def read(data: Any) -> Any:
        if type(data) not in (list, tuple):
            raise _must_be("a list of [key, value] pairs", data)
        found = [_read_at(index, pair, item) for index, item in enumerate(data)]
        if any(not before[0] < after[0] for before, after in pairwise(found)):
            raise Mismatch(" must be in the order of its keys, each of them once")
        return PMap(found)

    pair = _tuple_plan((key_hint, value_hint))
    return Plan(read, convert, (PMap,), (list, tuple))


def _text_map_plan(keys: Plan, values: Plan) -> Plan:
    def convert(value: Any) -> Any:
        return {key: values.write(item) for key, item in _in_key_order(value)}

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise _must_be("an object", data)
        return PMap({_read_at(key, keys, key): _read_at(key, values, item) for key, item in data.items()})

    return Plan(read, convert, (PMap,), (dict,))


def _frozen_dict_plan(key_hint: Any, value_hint: Any) -> Plan:
    """A mapping with string keys that its record has frozen, such as labels."""
    plan = _text_map_plan(plan_of(key_hint), plan_of(value_hint))

    def read(data: Any) -> Any:
        return FrozenDict(plan.read(data))

    return Plan(read, plan.convert, (FrozenDict,), (dict,))


def _in_key_order(value: Any) -> list[tuple[Any, Any]]:
    return sorted(value.items(), key=itemgetter(0))


def _read_at(place: int | str, plan: Plan, data: Any) -> Any:
    try:
        return plan.read(data)
    except Mismatch as mismatch:
        mismatch.at(f"[{place!r}]")
        raise


def _union_plan(members: tuple[Any, ...]) -> Plan:
    """Several types. Records among them carry a tag where there are several; the others differ in their shape."""
    plans = [plan_of(member) for member in members if not _is_record(member)]
    records = tuple(member for member in members if _is_record(member))
    if records:
        plans.append(plan_of(records[0]) if len(records) == 1 else _tagged_plan(records))
    readers = {shape: plan.read for plan in plans for shape in plan.shapes}
    writers = {cls: plan.write for plan in plans for cls in plan.classes}
    allowed = " or ".join(_name_of(member) for member in members)
    if len(readers) < sum(len(plan.shapes) for plan in plans):
        raise CodecError(f"rankcore cannot tell apart: {allowed}")

    def convert(value: Any) -> Any:
        if type(value) not in writers:
            raise CodecError(f"{shown(value)} cannot be written: {allowed} is expected")
        return writers[type(value)](value)

    def read(data: Any) -> Any:
        if type(data) not in readers:
            raise _must_be(allowed, data)
        return readers[type(data)](data)

    plain = all(plan.convert is None for plan in plans)
    return Plan(read, None if plain else convert, tuple(writers), tuple(readers))


@cache
def _tagged_plan(members: tuple[Any, ...]) -> Plan:
    """One of several records; "type" says which."""
    plans = {_name_of(member): record_plan(member) for member in members}
    allowed = " or ".join(sorted(plans))

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise _must_be("an object", data)
        fields = dict(data)
        name = fields.pop("type", None)
        if "type" not in data:
            raise Mismatch(f" is missing: {allowed}").at(".type")
        if type(name) is not str or name not in plans:
            raise Mismatch(f" must be {allowed}, got {shown(name)}", unheard=True).at(".type")
        return plans[name].read(fields)

    return Plan(read, write_tagged, members, (dict,))


MISSING: Any = attrs.NOTHING


class Field(NamedTuple):
    """One field of a record.

    Attributes:
        name: In the text.
        argument: The constructor's for it.
        hint: Its type.
        default: What it has where a text does not name it; MISSING: the text has to.
        since: The format that it came with; None: it is older than that is told.
    """

    name: str
    argument: str
    hint: Any
    default: Any
    since: Format | None = None


@cache
def record_plan(kind: Any) -> Plan:
    """A class with fields. Those that have a default may be missing: they are younger than the text."""
    if not _is_record(kind):
        raise CodecError(f"{_name_of(kind)} is no record class: rankcore has no text for it")
    build, title = get_origin(kind) or kind, _name_of(kind)
    fields = fields_of(kind)
    names = tuple(field.name for field in fields)
    plans = [plan_of(field.hint) for field in fields]
    converters = [(field.name, plan.convert) for field, plan in zip(fields, plans, strict=True) if plan.convert]
    readers = [(field.name, field.argument, plan.read) for field, plan in zip(fields, plans, strict=True)]
    required = frozenset(field.name for field in fields if field.default is MISSING)
    young = [(field.name, field.default) for field in fields if field.since is not None]
    # With one name, attrgetter returns the value itself.
    values: Callable[[Any], tuple[Any, ...]] = (
        attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, name) for name in names)
    )

    def convert_all(value: Any) -> Any:
        plain = dict(zip(names, values(value), strict=True))
        for name, to_text in converters:
            plain[name] = to_text(plain[name])
        return plain

    def convert(value: Any) -> Any:
        plain = convert_all(value)
        for name, default in young:
            found = getattr(value, name)
            if type(found) is type(default) and found == default:
                del plain[name]
        return plain

    def read(data: Any) -> Any:
        if type(data) is not dict:
            raise _must_be(f"an object with the fields of {title}", data)
        here = readers
        if data.keys() != known:
            _check_fields(title, data, names, required)
            here = [each for each in readers if each[0] in data]
        arguments = {}
        for name, argument, read_field in here:
            try:
                arguments[argument] = read_field(data[name])
            except Mismatch as mismatch:
                mismatch.at(f".{name}")
                raise
        try:
            return build(**arguments)
        except RankcoreError as error:
            raise Mismatch(f": {error}") from error

    known = frozenset(names)
    return Plan(read, convert if young else convert_all, (build,), (dict,))


def _check_fields(title: str, data: dict[str, Any], names: tuple[str, ...], required: frozenset[str]) -> None:
    unknown = next((name for name in data if name not in names), None)
    if unknown is not None:
        raise Mismatch(f" is unknown: the fields of {title} are {', '.join(names)}", unheard=True).at(f"[{shown(unknown)}]")
    missing = next((name for name in names if name in required and name not in data), None)
    if missing is not None:
        raise Mismatch(" is missing").at(f".{missing}")


def _is_record(kind: Any) -> bool:
    cls = get_origin(kind) or kind
    return isinstance(cls, type) and (attrs.has(cls) or issubclass(cls, msgspec.Struct) or hasattr(cls, "_fields"))


@cache
def fields_of(kind: Any) -> list[Field]:
    """What a text of a record class has. A derived field is not among them: the constructor works it out again."""
    cls = get_origin(kind) or kind
    hints = _hints(cls, get_args(kind))
    if attrs.has(cls):
        return [
            Field(field.name, field.alias or field.name, hints[field.name], field.default, field.metadata.get("since"))
            for field in attrs.fields(cls)
            if field.init
        ]
    if issubclass(cls, msgspec.Struct):
        names, given = cls.__struct_fields__, cls.__struct_defaults__
        defaults = {
            name: MISSING if each is msgspec.NODEFAULT else each
            for name, each in zip(names[-len(given) :], given, strict=False)
        }
    else:
        names, defaults = cls._fields, cls._field_defaults
    return [Field(name, name, hints[name], defaults.get(name, MISSING)) for name in names]


def _hints(cls: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """The annotations of a class and its bases, with `arguments` in place of a generic class's parameters.

    They are taken as they stand, since evaluating them (as `typing.get_type_hints` does) would take `FrozenJson` apart.
    """
    chosen = dict(zip(getattr(cls, "__parameters__", ()), arguments, strict=False))
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        hints.update(getattr(base, "__annotations__", {}))
    return {name: _filled_in(hint, chosen) for name, hint in hints.items()}


def _filled_in(hint: Any, chosen: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return chosen.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(chosen.get(name, name) for name in parameters)] if chosen and parameters else hint


def _name_of(kind: Any) -> str:
    return "null" if kind is NoneType else getattr(kind, "__name__", repr(kind))
