"""`rankcore simulate`: its arguments and its help."""

from pathlib import Path
from typing import Annotated

import typer

from executors.checking import Checking
from executors.cli.commands.checking_option import CheckingOption
from executors.cli.commands.slo_options import SloOption, SloWindowOption

SEED_MAX = 2**63 - 1


def simulate(
    scenario: Annotated[
        Path | None,
        typer.Argument(
            help="A scenario file; examples/ has some. Or give --from.",
            metavar="SCENARIO",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=SEED_MAX, help="Of all randomness. [default: the scenario's]")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value than the file's, as for `sweep`; repeatable."),
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="JOURNAL", help="Fork a recorded run, with --at and --fault.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When the fork begins: 120s, 2m, 1h30m, 0:02:00; where a trace has times of day, 2023-11-16T18:40Z.",
        ),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="WORDS", help="What happens in the fork, such as 'node n2 lost for 60s'; repeatable."),
    ] = None,
    traces: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --from: where the traces are. [default: where they were]")
    ] = None,
    slo: SloOption = None,
    slo_window: SloWindowOption = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write the figures as JSON; - prints them instead of the table."),
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every event, command and note, for replay, explain and --from.")
    ] = None,
    requests: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write what became of each request, for calibrate and fidelity.", show_default=False),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the page goes. [default: <scenario>.report.html, in this directory]"),
    ] = None,
    must_heal: Annotated[
        bool, typer.Option("--must-heal", help="Demand that all is well again at the end of the run, as `swarm` does.")
    ] = False,
    checking: CheckingOption = Checking.EACH,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """What happens to my ranks, my requests and my GPUs if ...?

    Runs a scenario in a simulated world with the very core that decides in production, prints a table and writes a page
    with the timeline of ranks. The same scenario and seed give the same run, to the byte.

    With --from, a recorded run is made again up to --at, checked line by line; then the faults come, and the answer
    stands beside that of the run as it was recorded. A journal of another executor, such as Ray's, goes on from --at in a
    simulated world that is made of what it says; --seed and --set are for these.

    A scenario with `residency` asks another question: whose weights are on GPUs, in CPU memory or on disk when they do not all
    fit, and what does a request wait for? Its page shows the memory of each GPU along the time.

    \b
      rankcore simulate examples/node-failure-at-peak.yaml
      rankcore simulate examples/node-failure-at-peak.yaml --seed 7 --report seed-7.html
      rankcore simulate examples/node-failure-at-peak.yaml --set target_replicas=14 --journal run.jsonl
      rankcore simulate examples/node-failure-at-peak.yaml --json - | jq .deployments[0].requests
      rankcore simulate examples/node-failure-at-peak.yaml --slo 'p95 wait_s < 2 @ 99%' --slo-window 60s
      rankcore simulate examples/residency-23-models.yaml --set node_list.cpu_cache_share=0.5
      rankcore simulate --from run.jsonl --at 120s --fault 'node node-2 lost for 5m' --fault 'controller crashes for 5s'

    \b
    GOAL  [p50|p95|p99|share] FIGURE < VALUE [@ P%] [of DEPLOYMENT], as `rankcore optimize --help` has it
          without @: of the whole run; with it: in so many of the windows of --slo-window. A window is about the requests
          that came in it, however they ended; one without requests counts neither as held nor as missed.
          What was missed is said, and shaded in the page; the exit status is that of the promises.

    \b
    Faults in words, each of which may end in: at TIME
      node N lost [for TIME]                    node N partitioned [for TIME]
      replica ID crashes                        rank K of NAME crashes
      a replica of NAME crashes                 rank K of NAME hangs [for TIME]
      controller crashes for TIME               rank K of NAME is unready [for TIME]
      bundle 3 of GROUP lost [for TIME]         rank K of NAME 3 times slower [for TIME]
      placement group GROUP removed
      next 2 starts of NAME fail                starts of NAME fail for TIME
      starts of NAME 5 times slower [for TIME]  starts on node N 5 times slower [for TIME]
      node N cordoned [for TIME]                node N drained [within TIME] [for TIME]
      node N preempted in TIME [for TIME]       NAME restarted
      replicas of NAME [of version V] die TIME after ready [for TIME]
      NAME refuses user_config JSON [for TIME]  NAME given user_config JSON
      NAME scaled to 4                          NAME updated to VERSION [from rank K on]
      NAME deleted

    \b
    And where weights may be COLD:
      node N lost [for TIME]                    a replica of NAME crashes
      next 2 loads of NAME fail                 GPUs of N shrink to 60 GB
      controller crashes for TIME               NAME scaled to 2
      NAME updated to VERSION                   NAME deleted
      NAME evicted [to WARM]

    Exit status: 0 all promises held, 1 one was broken, 2 bad input, 130 interrupted.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    of_files = (
        ("must-heal", must_heal),
        ("check", checking is not Checking.EACH),
        ("requests", requests is not None),
        ("slo", bool(slo)),
        ("slo-window", slo_window is not None),
    )
    for name, is_asked in of_files:
        if recorded is not None and is_asked:
            raise typer.BadParameter("expected a scenario file, found --from", param_hint=f"'--{name}'")
    from executors.cli.simulate_asked import SimulateAsked

    files = (json_file, journal, report)
    asked = SimulateAsked(
        scenario,
        recorded,
        seed,
        settings or (),
        at,
        faults or (),
        traces,
        *files,
        quiet,
        must_heal,
        checking,
        requests,
        slo or (),
        slo_window,
    )
    if recorded is not None:
        from executors.cli.fork import run
    else:
        from executors.cli.simulate import run
    run(asked)
