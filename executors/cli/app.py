"""The command line: which commands there are. Each has a light module in `commands`, and one that does the work beside this."""

from typing import Annotated

import typer

from executors.cli.commands.autoscale_backtest import autoscale_backtest
from executors.cli.commands.build import build
from executors.cli.commands.calibrate import calibrate
from executors.cli.commands.check import check
from executors.cli.commands.compare import compare
from executors.cli.commands.config import config
from executors.cli.commands.conform import conform
from executors.cli.commands.controller_health import controller_health
from executors.cli.commands.dashboard import dashboard
from executors.cli.commands.defragment import defragment
from executors.cli.commands.delete import delete
from executors.cli.commands.deploy import deploy
from executors.cli.commands.engine import engine
from executors.cli.commands.evict import evict
from executors.cli.commands.executors import executors
from executors.cli.commands.explain import explain
from executors.cli.commands.fidelity import fidelity
from executors.cli.commands.fork import fork
from executors.cli.commands.gang import gang
from executors.cli.commands.logs import logs
from executors.cli.commands.nodes import cordon, drain, replace, stop, uncordon
from executors.cli.commands.notes import notes
from executors.cli.commands.optimize import optimize
from executors.cli.commands.plan import plan
from executors.cli.commands.record import record
from executors.cli.commands.replay import replay
from executors.cli.commands.requests import cancel, requests
from executors.cli.commands.rest import rest
from executors.cli.commands.rollouts import pause, promote, restart, resume, retry, rollback
from executors.cli.commands.run import run
from executors.cli.commands.scale import scale
from executors.cli.commands.schema import schema
from executors.cli.commands.shutdown import shutdown
from executors.cli.commands.simulate import simulate
from executors.cli.commands.start import start
from executors.cli.commands.status import status
from executors.cli.commands.swarm import swarm
from executors.cli.commands.sweep import sweep
from executors.cli.commands.trace import trace
from executors.cli.commands.update import update
from executors.cli.commands.upgrade import upgrade
from executors.cli.commands.where import where
from executors.cli.oneline import OneLineGroup

REPOSITORY = "https://github.com/rankcore/rankcore"
WHERE = f"Files named examples/... and docs/... are at {REPOSITORY}"
"""Below every help: who has installed the command from a package has none of them."""

app = typer.Typer(
    epilog=WHERE,
    name="rankcore",
    cls=OneLineGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain errors: one line each, also where there is no terminal
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
COMMANDS = (
    *(simulate, fork, compare, sweep, optimize, autoscale_backtest, trace, explain, plan, replay, check, swarm, schema),
    *(record, calibrate, fidelity),
    *(start, run, build, deploy, config, rest, dashboard, status, controller_health, logs, notes),
    *(scale, update, evict, defragment, delete, shutdown, where, upgrade),
    *(restart, pause, promote, resume, rollback, retry),
    *(cordon, uncordon, drain, replace, stop),
    *(requests, cancel),
    *(executors, conform),
)
NUMBERS = {"ignore_unknown_options": True}
"""Of commands that take a number: -1 is one, though a wrong one, and no option."""
for command in COMMANDS:
    settings = NUMBERS if command is scale else None
    app.command(command.__name__.replace("_", "-"), epilog=WHERE, context_settings=settings)(command)
app.add_typer(gang, name="gang", epilog=WHERE)
app.add_typer(engine, epilog=WHERE)


def _show_version(wanted: bool) -> None:
    if wanted:
        from rankcore import __version__

        typer.echo(f"rankcore {__version__}")
        raise typer.Exit


@app.callback()
def rankcore(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Ranks of replicas under change and failure: ask what would happen, and look at what did.

    \b
    What if a node is lost in the busiest minute of a real trace?
      rankcore simulate examples/node-failure-at-peak.yaml --journal run.jsonl

    \b
    Why does rank 3 change hands, and what if a second node is lost a minute later?
      rankcore explain run.jsonl --rank 3
      rankcore fork run.jsonl --at 0:17:15 --fault 'node node-5 lost'

    \b
    What would a change bring, what does it depend on, and which of two is better?
      rankcore plan examples/node-failure-at-peak.yaml --target 12
      rankcore sweep examples/node-failure-at-peak.yaml --vary target_replicas=14,15,16
      rankcore compare examples/node-failure-at-peak.yaml mine.yaml

    \b
    What is the cheapest that meets an objective?
      rankcore optimize examples/node-failure-at-peak.yaml --vary target_replicas=10..16 --slo 'p99 latency_s < 30'

    \b
    What would these autoscaling policies have made of a recorded day?
      rankcore autoscale-backtest examples/data/azure_llm_2023_code.csv --policy a.yaml --policy b.yaml

    \b
    Who is on the GPUs when not all models fit? Simulated, and on a Ray cluster:
      rankcore simulate examples/residency-23-models.yaml
      rankcore deploy apps.yaml
      rankcore status

    \b
    Does the core still decide the same?
      rankcore replay run.jsonl

    \b
    Can any order of events break a promise? Does any random world?
      rankcore check
      rankcore swarm --seeds 1000 --jobs 2
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
