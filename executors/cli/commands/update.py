"""`rankcore update`: its arguments and its help."""

from typing import Annotated, Any

import typer

from executors.cli.backends import RAY, Address, AsJson, Executor, Namespace, choose


def _setting(text: str) -> tuple[str, Any]:
    from executors.simulator.scenario.errors import ScenarioError
    from executors.simulator.scenario.yamlfile import parse

    option, equals, value = text.partition("=")
    if not equals or not option.isidentifier():
        raise typer.BadParameter(f"expected OPTION=VALUE, found {text[:40]!r}")
    try:
        return option, parse(f"value: {value}", option)[0]["value"]
    except ScenarioError as error:
        raise typer.BadParameter(str(error)) from None


def update(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of a deployment, APP/DEPLOYMENT or bare.", show_default=False)],
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="OPTION=VALUE...", help="Options of a deployment; the values are YAML.", parser=_setting, show_default=False
        ),
    ],
    namespace: Namespace = None,
    address: Address = None,
    executor: Executor = RAY,
    as_json: AsJson = False,
) -> None:
    """Change options of a deployment in place: user_config, num_replicas, max_unavailable, time-outs, ...

    Its code stays, and replicas too, unless an option says otherwise. The command does not wait for what it sets going. The
    next deploy of the application says all of its options anew.

    \b
      rankcore update my_app/Model 'user_config={threshold: 0.7}'
      rankcore update my_app/Model max_surge=25% max_ongoing_requests=16

    Exit status: 0 taken, 2 bad input, nothing has that name, several deployments have it, or nothing runs.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(executor, address)
    from executors.cli.asked import BAD_INPUT, end
    from executors.cli.verbs import Said, of_deployment

    options: dict[str, Any] = {}
    said: Any = settings  # pairs, by the parser
    for option, value in said:
        if option in options:
            end(f"expected {option}=VALUE once, found it again", BAD_INPUT)
        if option in ("name", "namespace"):  # arguments of the function that is asked
            end(f"expected an option of a deployment that can be changed, found {option!r}", BAD_INPUT)
        options[option] = value
    of_deployment(Said(namespace, executor, as_json), "update", name, **options)
