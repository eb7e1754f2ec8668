"""`python -m executors.cli`, the same as `rankcore`."""

from executors.cli import main

main()
