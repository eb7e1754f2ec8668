"""A spec as plain values, with every field of it: a stored text leaves newer fields out while they are at their defaults."""

from collections.abc import Iterable

from rankcore import DeploymentSpec
from rankcore.codec import Plain, to_plain


def fields_of(spec: DeploymentSpec, names: Iterable[str]) -> Plain:
    """These fields of a spec, as a scenario has them."""
    written = to_plain(spec)
    return {name: written[name] if name in written else getattr(spec, name) for name in names}
