"""What is derived from the books of a planner, so that no step has to scan them."""

from msgspec import Struct


class Index(Struct, frozen=True, gc=False):
    """Who is where, room by size, and what falls due when."""
