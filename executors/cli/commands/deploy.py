"""`rankcore deploy`: its arguments and its help."""

from typing import Annotated

import typer

from executors.cli.backends import Address, choose_cluster


def deploy(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|MODULE:NAME",
            help="A file of applications (apps.yaml), or where applications are: package.module:apps or path/file.py:apps.",
            show_default=False,
        ),
    ],
    prune: Annotated[bool, typer.Option(help="Delete all applications that are not named here.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print what would change, and change nothing.")] = False,
    wait: Annotated[bool, typer.Option(help="Return when all of it is healthy.")] = False,
    replace: Annotated[bool, typer.Option(help="Replace deployments of other classes that have the same names.")] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the application of MODULE:NAME. [default: as its last deployment]")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(min=0, help="Of each application of MODULE:NAME. [default: as the code says]")
    ] = None,
    namespace: Annotated[str | None, typer.Option(help="Of the controller. [default: $RANKCORE_NAMESPACE or rankcore]")] = None,
    address: Address = None,
) -> None:
    """Bring applications on a running Ray cluster to what is wanted, as one request: all of it is taken, or nothing.

    NAME is what `bind` returned, a function that returns it, or a list of some. FILE has Ray Serve's config schema, and
    `residency` of deployments:

    \b
      applications:
        - name: shop
          route_prefix: /shop
          import_path: my_package.models:app
          deployments:
            - name: Chat
              num_replicas: 2
            - name: Tiny
              residency: {weights: /models/tiny.safetensors, priority: 3}

    Deploying the same again changes nothing. What an application no longer has is deleted; other applications stay, unless
    --prune is given: then all of them go, where FILE has `applications: []`. Without --wait the command returns as soon as the
    request is stored.

    \b
      ray start --head
      rankcore deploy apps.yaml --dry-run
      rankcore deploy apps.yaml --prune --wait
      rankcore deploy my_models.py:models
      rankcore status

    Exit status: 0 taken (with --wait: and healthy), 1 it did not come up, 2 bad input, or there is no cluster.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose_cluster(address)
    from executors.cli.deploy import deploy

    deploy(target, name=name, replicas=replicas, replace=replace, prune=prune, dry_run=dry_run, wait=wait, namespace=namespace)
