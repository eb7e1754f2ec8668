"""`rankcore run`: its arguments and its help."""

import re
from pathlib import Path
from typing import Annotated

import typer

from executors.cli.backends import RAY, RayAddress, choose_cluster, default_namespace
from executors.cli.import_option import ImportTimeout, limit_of


def _node(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,12}", text):
        raise typer.BadParameter(f"expected up to 12 letters, digits, - and _, found {text[:40]!r}")
    return text


def run(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:APP",
            help="A file of applications (apps.yaml), or where one is: package.module:app or path/file.py:app.",
            show_default=False,
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="For APP, where it is a function that returns an application.", show_default=False
        ),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What replicas are: actors of a Ray cluster (ray), processes of this machine (local), or what another "
            "executor makes: `rankcore executors` lists them.",
        ),
    ] = RAY,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the executor; repeatable; not of ray.", show_default=False),
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every event, command and note, for `rankcore replay`; go on where one ends."),
    ] = None,
    blocking: Annotated[
        bool,
        typer.Option(
            "--blocking/--non-blocking",
            help="Stay until Ctrl-C, and stop it then; or return when it is healthy, and leave it running (ray only).",
        ),
    ] = True,
    detach: Annotated[bool, typer.Option("--detach", help="The same as --non-blocking.")] = False,
    replace: Annotated[
        bool, typer.Option(help="Replace deployments of other classes that have the same names in this application; ray only.")
    ] = False,
    route_prefix: Annotated[
        str | None,
        typer.Option(metavar="/PATH|none", help="Serve HTTP under this path, or not at all; ray only. [default: /]"),
    ] = None,
    http_port: Annotated[int | None, typer.Option(metavar="PORT", help="For HTTP, instead of 8000; ray only.")] = None,
    address: RayAddress = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of the application, which replaces the one that has it. [default: MODULE:APP; local: default]"),
    ] = None,
    runtime_env: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ray's environment for it, as YAML; ray only.", show_default=False),
    ] = None,
    runtime_env_json: Annotated[
        str | None, typer.Option(metavar="JSON", help="The same, as JSON; ray only.", show_default=False)
    ] = None,
    working_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URI",
            help="Its working_dir: a folder, or the URI of a .zip; ray only.",
            show_default=False,
        ),
    ] = None,
    app_dir: Annotated[
        Path | None,
        typer.Option(
            "--app-dir", "-d", metavar="DIR", help="Where modules are looked for first. [default: here]", show_default=False
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload",
            "-r",
            help="Deploy anew, without an outage, what changes in the working_dir, else in --app-dir, or here; ray only.",
        ),
    ] = False,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NODE",
            help="A part of this machine, to be cordoned and drained; repeatable; local only, where it is the option `nodes`. "
            "[default: local]",
            parser=_node,
            show_default=False,
        ),
    ] = None,
    import_timeout_s: ImportTimeout = None,
) -> None:
    """Deploy an application, and show its ranks, nodes and states until Ctrl-C stops it.

    APP is what `bind` returned, or a function that returns it. Such a function takes a dict of the KEY=VALUE that are given, or
    the pydantic model that its argument is annotated with.

    With `--executor ray` it runs in the cluster that RAY_ADDRESS names, else in the one on this machine; where there is none,
    one is started that can be reached from this machine alone. What an earlier version of APP deployed, and this one does not
    have, is deleted. What another application deployed is never taken from it.

    FILE is what `rankcore deploy` takes: its applications are deployed and shown, and Ctrl-C deletes them. Applications that it
    does not name go on.

    With --reload a `working_dir` that is a folder is uploaded again when something changes in it.

    With `--executor local` each replica is a process of this machine, and nothing needs Ray. APP is one deployment: its class
    is built, reconfigured and checked for health as on Ray, with its ranks in the context and in RANK, LOCAL_RANK, GROUP_RANK
    and WORLD_SIZE; there are no handles, and no resources are reserved. `rankcore status`, `scale`, `restart`, `drain` and the
    like reach it with `--executor local`; nodes are those that --node names. If this command is killed, its replicas live on
    for 10 minutes, and the same command takes them over. What --executor local is told here holds for every other executor
    that is installed, but for what its replicas are.

    \b
      rankcore run examples/sharded_embedding.py:app
      rankcore run my_package.models:app --detach && rankcore status
      rankcore run examples/streaming_llm.py:app --route-prefix /llm --http-port 8080
      rankcore run my_package.models:app --executor local --node a --node b
      rankcore run my_package.models:app --executor slurm --option partition=gpu
      rankcore run apps.yaml
      rankcore run my_package.models:build size=large replicas=2 --reload

    Exit status: 0 stopped as asked, 1 it did not come up, 2 bad input, 130 interrupted while stopping.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    from executors.cli.run_options import app_dir_first, args_of, environment_of

    detach = detach or not blocking
    args = args_of(arguments or ())
    app_dir_first(app_dir)
    environment = environment_of(runtime_env, runtime_env_json, working_dir)
    if executor != RAY:
        from executors.apps.file import FILES

        if Path(target).suffix in FILES:
            raise typer.BadParameter("FILE is for --executor ray: a command with another executor runs one deployment")
        if detach or replace:
            raise typer.BadParameter(
                "--non-blocking and --replace are for --executor ray: the controller of any other executor is this command"
            )
        if route_prefix is not None or http_port is not None:
            raise typer.BadParameter(
                "--route-prefix and --http-port are for --executor ray: replicas of other executors take no requests"
            )
        if environment is not None or reload:
            raise typer.BadParameter("--runtime-env, --working-dir and --reload are for --executor ray")
        from executors.cli.run_here import RunHere, run_here

        said = [*(option or ()), *([f"nodes={','.join(dict.fromkeys(nodes))}"] if nodes else ())]
        where, limit_s = namespace or default_namespace(), limit_of(import_timeout_s)
        return run_here(RunHere(executor, tuple(said), target, where, journal, name, args, limit_s))
    if option:
        from executors.cli.asked import asked
        from executors.plugin import named, options_of

        asked(lambda: options_of(executor, named(executor)[1], option))
    if nodes:
        raise typer.BadParameter("--node is for --executor local: the nodes of a cluster are those that Ray has")
    if reload and detach:
        raise typer.BadParameter("--reload is for a command that stays: leave --non-blocking and --detach out")
    folder = str((environment or {}).get("working_dir", ""))
    if reload and "://" in folder:
        raise typer.BadParameter(
            f"--reload: expected a folder as working_dir, found {folder[:80]!r}, which nothing here changes"
        )
    choose_cluster(address)
    from executors.cli.run import RunAsked, run

    run(
        RunAsked(
            target=target,
            args=args,
            namespace=namespace,
            journal=journal,
            detach=detach,
            replace=replace,
            route_prefix=route_prefix,
            http_port=http_port,
            name=name,
            runtime_env=environment,
            reload_of=(Path(folder) if folder else app_dir or Path()) if reload else None,
            import_timeout_s=limit_of(import_timeout_s),
        )
    )
