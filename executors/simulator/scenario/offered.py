"""What is offered to engines, and what they could do of it at best: warnings before anything runs.

`too_long`: more than a hundredth of the requests can never be held. `overload`: a lower bound of the work of all others is more
than all replicas can do from the first arrival to the last. The bound: prompts and output tokens in iterations of the cheapest
size, no context. Below it a queue may still grow; above it one grows whatever happens.
"""

from collections.abc import Iterator, Mapping

from executors.simulator.engines.spec import PS_PER_S, Curve, Engine
from executors.simulator.load.arrivals import Arrivals
from executors.simulator.scenario.model import Scenario

TOO_LONG_SHARE = 0.01
LEAST = 100
"""Of fewer requests nobody can say how often they come."""


def warnings_of(scenario: Scenario, arrivals: Mapping[str, Arrivals]) -> tuple[str, ...]:
    """In words, one line each."""
    return tuple(line for name, found in arrivals.items() for line in _of(scenario, name, found))


def _of(scenario: Scenario, name: str, arrivals: Arrivals) -> Iterator[str]:
    deployment = next(each for each in scenario.deployments if each.spec.name == name)
    engines = set(scenario.engines_of(deployment).values())
    if not engines or not arrivals.total:
        return
    lengths = list(zip(arrivals.prompt, arrivals.output, strict=True))
    longest = max(engine.longest for engine in engines)
    long = sum(prompt + output > longest for prompt, output in lengths)
    if long > TOO_LONG_SHARE * len(lengths):
        share = long / len(lengths)
        yield f"too_long: {share:.1%} of the requests of {name} have more than the {longest:,} tokens that a replica can hold"
    if len(arrivals) < LEAST or not (lasts_s := arrivals.at_s[-1] - arrivals.at_s[0]):
        return  # users who wait for answers offer no more than can be done
    replicas = deployment.most_replicas
    fits = [(prompt, output) for prompt, output in lengths if prompt + output <= longest]
    prompts = sum(prompt for prompt, _ in fits) - sum(arrivals.cached or ())
    outputs = sum(output for _, output in fits)
    batch = deployment.max_ongoing_requests
    load = min(_least_s(engine, batch, max(prompts, 0), outputs) for engine in engines) / lasts_s / max(replicas, 1)
    if replicas and load > 1:
        yield f"overload: {name} is offered at least {load:.2f} times what {replicas} replicas can do: its queue grows"


def _least_s(engine: Engine, batch: int, prompts: int, outputs: int) -> float:
    """Seconds of one replica that these tokens take at least, with so many requests at once at most."""
    step_time = engine.step_time
    each_prompt = _least_each(step_time.prompt, engine.max_num_batched_tokens)
    return (prompts * each_prompt + outputs * _least_each(step_time.base, min(batch, engine.max_num_seqs))) / PS_PER_S


def _least_each(curve: Curve, most: int) -> float:
    """What each of up to so many takes at least together: between knots it has no minimum."""
    return min(curve.at(x) / x for x in (1, most, *(x for x, _ in curve.knots if 1 <= x <= most)))
