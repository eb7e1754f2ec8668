"""`rankcore deploy`: its arguments and its help."""

import os
from pathlib import Path
from typing import Annotated

import typer

from executors.cli.backends import RAY, REST_ADDRESS, Address, choose
from executors.cli.import_option import ImportTimeout, limit_of


def deploy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:NAME",
            help="A file of applications (apps.yaml), or where applications are: package.module:apps or path/file.py:apps.",
            show_default=False,
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="For NAME, where it is a function that returns an application.", show_default=False
        ),
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option(
            "--prune/--no-prune",
            help="Delete all applications that are not named here. [default: where FILE is given]",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option(help="Return when all of it is healthy.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace deployments of other classes that have the same names.")] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the application of MODULE:NAME. [default: as its last deployment]")
    ] = None,
    route_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="/PATH|none",
            help="Of the application of MODULE:NAME; none: no HTTP. [default: /; of several applications: /NAME]",
        ),
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, help="Of each application of MODULE:NAME. [default: as the code says]")
    ] = None,
    expect: Annotated[
        str,
        typer.Option(
            metavar="REVISION",
            help="Change nothing where another one is in force (`rankcore status`). [default: the one that the plan is of]",
            show_default=False,
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print plan and revision as JSON.")] = False,
    runtime_env: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ray's environment for MODULE:NAME, as YAML.", show_default=False)
    ] = None,
    runtime_env_json: Annotated[str | None, typer.Option(metavar="JSON", help="The same, as JSON.", show_default=False)] = None,
    working_dir: Annotated[
        str | None, typer.Option(metavar="DIR|URI", help="Its working_dir: a folder, or the URI of a .zip.", show_default=False)
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
    import_timeout_s: ImportTimeout = None,
) -> None:
    """Bring applications on a running Ray cluster to what is wanted, as one request: all of it is taken, or nothing.

    The plan is printed first: what starts, stops, gets another rank or another user_config; --dry-run ends there. If another
    writer comes in between, nothing is changed, and the error says which revision is in force.

    NAME is what `bind` returned, a function that returns it, or a list of some. FILE has Ray Serve's config schema, and what is
    ours (`rankcore schema apps` prints it):

    \b
      http_options: {port: 8000}
      applications:
        - name: shop
          route_prefix: /shop
          import_path: my_package.models:app
          deployments:
            - name: Chat
              num_replicas: 2
            - name: Tiny
              residency: {weights: /models/tiny.safetensors, priority: 3}

    Deploying the same again changes nothing. What an application no longer has is deleted, and so are applications that FILE
    does not name, unless --no-prune is given; where MODULE:NAME is given, others stay, unless --prune is. Without --wait the
    command returns as soon as the request is stored. A REST server imports code
    itself, within a limit of its own.

    \b
      ray start --head
      rankcore deploy apps.yaml --dry-run
      rankcore deploy apps.yaml --wait
      rankcore deploy my_models.py:models
      rankcore status

    Exit status: 0 taken (with --wait: and healthy), 1 it did not come up or another writer came first, 2 bad input, or there is
    no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(RAY, address)
    if import_timeout_s is not None and os.environ.get(REST_ADDRESS):
        raise typer.BadParameter("--import-timeout is for a Ray cluster: a REST server imports the code, and has its own limit")
    from executors.cli.deploy import DeployAsked, deploy
    from executors.cli.run_options import args_of, environment_of

    environment = environment_of(runtime_env, runtime_env_json, working_dir)
    args = args_of(arguments or ())
    deploy(
        DeployAsked(
            target=target,
            name=name,
            replicas=replicas,
            replace=replace,
            prune=prune,
            dry_run=dry_run,
            wait=wait,
            expect=expect,
            as_json=as_json,
            namespace=namespace,
            args=args,
            runtime_env=environment,
            route_prefix=route_prefix,
            import_timeout_s=limit_of(import_timeout_s),
        )
    )
