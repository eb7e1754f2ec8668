"""Slurm: each replica is a batch job of one task, and its end is what Slurm and a lease say together.

`folder` has the races, and the file that stands against each; `scheduler` the calls to Slurm; `errands` the thread for them;
`standing` what a job's state means; `executor` turns commands into errands and lines, and what comes of them into events;
`replica` is what runs in the job. docs/slurm.md is for users.
"""

from executors.slurm.executor import SlurmExecutor
from executors.slurm.options import SlurmError, SlurmOptions

__all__ = ["SlurmError", "SlurmExecutor", "SlurmOptions"]
