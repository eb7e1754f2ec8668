"""The one error that reading a scenario raises."""


class ScenarioError(ValueError):
    """A scenario cannot be used: one line that names file, line and key path, what was found and what is allowed."""
