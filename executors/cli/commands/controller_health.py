"""`rankcore controller-health`: its arguments and its help."""

from executors.cli.backends import RAY, Address, AsJson, Namespace, choose


def controller_health(namespace: Namespace = None, address: Address = None, as_json: AsJson = False) -> None:
    """Print how the controller keeps up, as YAML, in the fields of Ray Serve's.

    A control loop is a step of the machine that decides, which is taken when something happens. event_loop_delay_s says how
    late a sleep of one second has ended: more than some tenths mean that the controller has no moment to spare, or its node
    has none. What Serve measures of parts that a step does not have is null.

    \b
      rankcore controller-health
      rankcore controller-health --json | jq .event_loop_delay_s

    Exit status: 0 printed, 2 nothing runs, or it cannot be reached.
    """  # noqa: D301 (a real backspace: it keeps the lines of a paragraph apart)
    choose(RAY, address)
    from executors.cli.controller_health import controller_health

    controller_health(namespace, as_json)
