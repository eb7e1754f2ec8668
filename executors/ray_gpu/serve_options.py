"""Options of a rollout that Ray Serve calls otherwise, in our words.

`rolling_update_percentage` is a fraction there, rounded down to whole replicas and at least one, as `max_unavailable="n%"` is
here; `max_surge_percent` is rounded up, as `max_surge="n%"` is. So each number of replicas is the same as in Serve.
"""

from collections.abc import Callable, Mapping
from typing import Any

from executors.ray_gpu.errors import InvalidDeploymentError


def _share_of_fraction(found: object) -> str | None:
    if type(found) not in (int, float) or not 0 < found <= 1:  # type: ignore[operator]
        return None
    percent = round(float(found) * 100, 9)  # type: ignore[arg-type]
    return f"{int(percent)}%" if percent == int(percent) else None


def _share_of_percent(found: object) -> str | None:
    return f"{found}%" if type(found) is int and 0 <= found <= 100 else None


SERVE_OPTIONS: dict[str, tuple[str, Callable[[object], str | None], str]] = {
    "rolling_update_percentage": ("max_unavailable", _share_of_fraction, "a fraction above 0 and up to 1, of whole percents"),
    "max_surge_percent": ("max_surge", _share_of_percent, "an integer from 0 to 100"),
}
"""By Serve's name: ours, what a value of Serve's is here, and which values there are."""


def in_our_words(settings: Mapping[str, Any]) -> dict[str, Any]:
    """These options, those of Ray Serve under the names they have here.

    Raises:
        InvalidDeploymentError: A value is none that Serve takes, or the option is given under both names.
    """
    ours = {option: value for option, value in settings.items() if option not in SERVE_OPTIONS}
    for option, (name, share_of, allowed) in SERVE_OPTIONS.items():
        if option not in settings:
            continue
        found = settings[option]
        if name in settings:
            raise InvalidDeploymentError(f"{option} cannot be had with {name}, which it is called here: leave one of them out")
        share = share_of(found)
        if share is None:
            raise InvalidDeploymentError(f"{option} must be {allowed}, got {found!r:.80}")
        ours[name] = share
    return ours
