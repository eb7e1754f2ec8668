"""`rankcore schema`: its arguments and its help."""


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors.

    An editor with a YAML language server then completes keys and underlines mistakes in every scenario whose first line is
    a comment that names the file:

    \b
      rankcore schema > scenario.schema.json
      # yaml-language-server: $schema=scenario.schema.json

    Exit status: 0.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.schema import run

    run()
