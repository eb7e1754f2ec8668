"""What each command is called, takes and says in `--help`.

These modules import nothing but typer at their top, and what they run inside their function: `rankcore --help` and
completion then cost a tenth of a second, however much the commands need for their work.
"""
