"""How a replica or a proxy logs: the options, with the names that they have in Ray Serve."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from executors.ray_gpu.config_objects import config_of
from executors.ray_gpu.errors import InvalidDeploymentError

TEXT, JSON = "TEXT", "JSON"
STANDARD_ATTRS = tuple(sorted({*vars(logging.makeLogRecord({})), "asctime", "message"}))
"""What Python knows of each record."""


def _level(given: int | str) -> str:
    """A level's name, as in Ray Serve: numbers that have one are taken too."""
    names = logging.getLevelNamesMapping()
    found = logging.getLevelName(given) if type(given) is int else given
    if type(found) is not str or found not in names:
        raise InvalidDeploymentError(f"LoggingConfig.log_level must be one of {', '.join(names)}, got {given!r:.80}")
    return found


def _encoding(given: Any) -> str:
    found = getattr(given, "value", given)  # Ray Serve's is an enum
    if found not in (TEXT, JSON):
        raise InvalidDeploymentError(f"LoggingConfig.encoding must be {TEXT} or {JSON}, got {given!r:.80}")
    return str(found)


def _attributes(given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidDeploymentError(
            f"LoggingConfig.additional_log_standard_attrs must be a list of names of attributes, got {given!r:.80}"
        )
    found = tuple(sorted(set(given)))
    for each in found:
        if each not in STANDARD_ATTRS:
            allowed = ", ".join(STANDARD_ATTRS)
            raise InvalidDeploymentError(
                f"LoggingConfig.additional_log_standard_attrs may have {allowed}; {each!r:.80} is none of them"
            )
    return found


def _of_type(kind: type, allowed: str) -> Any:
    def check(_: Any, field: "attrs.Attribute[Any]", found: object) -> None:
        if not isinstance(found, kind):
            raise InvalidDeploymentError(f"LoggingConfig.{field.name} must be {allowed}, got {found!r:.80}")

    return check


@attrs.frozen(kw_only=True)
class LoggingConfig:
    """How a replica or a proxy logs.

    Attributes:
        encoding: "TEXT", or "JSON": one object a line.
        log_level: What is less than that is left out: "DEBUG", "INFO", ...
        logs_dir: Where the files go; None: to `rankcore` among the logs of Ray's session.
        enable_access_log: Whether each request has a line of its own.
        additional_log_standard_attrs: Attributes of Python's log records that each line has too.

    Raises:
        InvalidDeploymentError: One of them is not what it may be.
    """

    encoding: str = attrs.field(default=TEXT, converter=_encoding)
    log_level: str = attrs.field(default="INFO", converter=_level)
    logs_dir: str | None = attrs.field(default=None, validator=attrs.validators.optional(_of_type(str, "a folder's path")))
    enable_access_log: bool = attrs.field(default=True, validator=_of_type(bool, "True or False"))
    additional_log_standard_attrs: tuple[str, ...] = attrs.field(default=(), converter=_attributes)


UNASKED = LoggingConfig(enable_access_log=False)
"""Where nobody has said how to log: a line for each request takes time, so that it is written where it is asked for."""


def logging_config_of(given: object) -> LoggingConfig | None:
    """What a user gives, as `config_of` takes it."""
    return config_of(LoggingConfig, "logging_config", given)


def as_plain(config: LoggingConfig | None) -> dict[str, Any] | None:
    """What travels to other processes, which may be of another release, also as JSON; `from_plain` reads it."""
    if config is None:
        return None
    return {name: list(each) if isinstance(each, tuple) else each for name, each in attrs.asdict(config).items()}


def from_plain(fields: Mapping[str, Any] | None) -> LoggingConfig | None:
    """The config again; what is unknown here is left out."""
    known = {field.name for field in attrs.fields(LoggingConfig)}
    return LoggingConfig(**{name: each for name, each in fields.items() if name in known}) if fields is not None else None
