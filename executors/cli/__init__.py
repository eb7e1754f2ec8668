"""The `rankcore` command. Importing this package is cheap and needs no extra; `main` imports what it runs."""

import sys

EXTRAS = {
    "typer": "sim",
    "rich": "sim",
    "yaml": "sim",
    "cattrs": "sim",
    "click": "sim",
    "scipy": "sim",
    "ray": "ray",
    "watchfiles": "ray",
    "torch": "torch",
}


def main() -> None:
    """Entry point of `rankcore`: exit status 0 done, 1 a promise or comparison failed, 2 bad input, 130 stopped."""
    import executors

    if "Driver" not in getattr(executors, "__all__", ()):
        sys.stderr.write(
            f"rankcore: error: {executors.__file__} is of another project, which has taken the place of rankcore's "
            "package `executors`: install rankcore where that is not\n"
        )
        sys.exit(2)
    from executors.cli.ending import exit_status_of

    sys.exit(exit_status_of(_run))


def _run() -> None:
    try:
        from executors.cli.app import app

        app(prog_name="rankcore")
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(_missing(str(error.name), extra))


def _missing(module: str, extra: str) -> int:
    sys.stderr.write(f"rankcore: error: this command needs {module}: pip install 'rankcore[{extra}]'\n")
    return 2
