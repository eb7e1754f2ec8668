"""`rankcore executors`: its arguments and its help."""

from executors.cli.backends import AsJson


def executors(as_json: AsJson = False) -> None:
    """Which executors are installed: name, distribution, version, api, and whether they can run here.

    An executor is what replicas are made of: `ray` and `local` come with rankcore, and others with distributions of their own,
    which name them in the group of entry points `rankcore.executors`. `rankcore run --executor NAME` uses one, and `rankcore
    conform NAME` tries whether it keeps the contract. docs/executors.md says how to write one.

    One that is broken is shown, with why: it cannot be imported, speaks another api, or two distributions have its name.

    \b
      rankcore executors
      rankcore executors --json | jq '.[] | select(.problem == null) | .name'

    Exit status: 0, whatever there is.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.executors import executors

    executors(as_json)
