"""One replica with an engine, token by token: no leap, no counts carried along; blocks are counted anew whenever asked for.

It shares with `executors.simulator.engines` the values it takes and the time of one iteration, and no rule. Beside what
became of the requests it says what every iteration held, so that invariants can be read off.
"""

import attrs

from executors.simulator.engines.gaps import class_of
from executors.simulator.engines.replay import Answered, EngineRequest, Served, Troubles
from executors.simulator.engines.spec import Engine


@attrs.frozen
class Iteration:
    """What one iteration held: tokens by request, requests in the batch by admission, blocks in use, and who still waits."""

    tokens: dict[int, int]
    batch: tuple[int, ...]
    blocks: int
    waiting: tuple[int, ...]
    evicted: tuple[int, ...]


def serve_by_token(engine: Engine, requests: list[EngineRequest], troubles: Troubles) -> tuple[Served, list[Iteration]]:
    """What `serve` says, and each iteration."""
    answers = [Answered() for _ in requests]
    served, log = Served(answers), list[Iteration]()
    cached: dict[int, int] = {}  # in the batch, in the order of admission: tokens in the KV cache
    queue: list[int] = []
    todo = list(range(len(requests)))
    newest: dict[int, int] = {}  # when each had its last token
    now = 0

    def size(who: int, tokens: int) -> int:
        if engine.kv_policy == "reserve":
            tokens = requests[who].prompt + requests[who].output
        return len(range(0, tokens, engine.block_size))

    def used(planned: dict[int, int]) -> int:
        return sum(size(who, cached[who] + planned.get(who, 0)) for who in cached)

    def stop(who: int, outcome: str, at: int) -> None:
        answers[who].outcome, answers[who].ended_ps = outcome, at
        cached.pop(who, None)
        if who in queue:
            queue.remove(who)

    def arrive(by: int) -> None:
        while todo and requests[todo[0]].arrived_ps <= by:
            who = todo.pop(0)
            asked = requests[who]
            if troubles.drain_ps is not None and asked.arrived_ps > troubles.drain_ps:
                stop(who, "refused", asked.arrived_ps)
            elif asked.prompt + asked.output > engine.longest:
                stop(who, "too_long", asked.arrived_ps)
            else:
                queue.append(who)

    def total(who: int) -> int:
        return requests[who].prompt + answers[who].tokens

    def admit(planned: dict[int, int], budget: int) -> None:
        while queue and len(cached) < engine.max_num_seqs and sum(planned.values()) < budget:
            who = queue[0]
            prefix = requests[who].cached
            chunk = min(total(who) - prefix, budget - sum(planned.values()))
            if prefix + chunk < total(who) and not engine.chunked_prefill:
                break
            if used(planned) + size(who, prefix + chunk) > engine.blocks:
                break
            queue.pop(0)
            cached[who] = prefix
            planned[who] = chunk

    def continue_running(planned: dict[int, int], budget: int) -> list[int]:
        evicted: list[int] = []
        for who in list(cached):
            chunk = min(total(who) - cached.get(who, 0), budget - sum(planned.values()))
            if who not in cached or not chunk:
                break
            while who in cached and used({**planned, who: chunk}) > engine.blocks:
                newest = list(cached)[-1]
                del cached[newest]
                queue.insert(0, newest)
                answers[newest].preemptions += 1
                evicted.append(newest)
            if who in cached:
                planned[who] = chunk
        return evicted

    while True:
        for hang in troubles.hangs:
            if hang.at_ps <= now < hang.at_ps + hang.for_ps:
                now = hang.at_ps + hang.for_ps
        if troubles.crash_ps is not None and now >= troubles.crash_ps:
            arrive(troubles.crash_ps)
            for who in [*cached, *queue]:
                stop(who, "lost", troubles.crash_ps)
            for who in todo:
                stop(who, "lost", requests[who].arrived_ps)
            return served, log
        arrive(now)
        for who in [*cached, *queue]:
            expires = requests[who].expires_ps
            if expires is not None and expires <= now:
                stop(who, "expired", now)
        if not cached and not queue:
            if not todo:
                return served, log
            now = requests[todo[0]].arrived_ps
            continue
        planned: dict[int, int] = {}
        evicted: list[int] = []
        if not engine.chunked_prefill:
            admit(planned, engine.max_num_batched_tokens)
        if not planned:
            evicted = continue_running(planned, engine.max_num_batched_tokens)
            if engine.chunked_prefill and not evicted:
                admit(planned, engine.max_num_batched_tokens)
        blocks = used(planned)
        log.append(Iteration(dict(planned), tuple(cached), blocks, tuple(queue), tuple(evicted)))
        served.kv_peak = max(served.kv_peak, blocks)
        decoding = [who for who in planned if answers[who].tokens and cached[who] + 1 == total(who)]
        prompts = [who for who in planned if who not in decoding]
        pairs = sum(cached[who] + nth for who in prompts for nth in range(1, planned[who] + 1))
        context = sum(total(who) for who in decoding)
        took = engine.step_time.of(len(decoding), context, sum(planned[who] for who in prompts), pairs)
        for who in planned:
            if answers[who].begun_ps is None:
                answers[who].begun_ps = now
        end = now + took
        for hang in troubles.hangs:
            if now <= hang.at_ps < end:
                end += hang.for_ps
        if troubles.crash_ps is not None and end > troubles.crash_ps:
            now = troubles.crash_ps
            continue
        now = end
        served.iterations += 1
        served.busy_ps += took
        served.decoded += len(decoding)
        for who, chunk in planned.items():
            cached[who] += chunk
            if cached[who] == total(who):
                answers[who].tokens += 1
                if who in newest:
                    number = class_of(now - newest[who])
                    served.gaps[number] = served.gaps.get(number, 0) + 1
                newest[who] = now
                if answers[who].first_ps is None:
                    answers[who].first_ps = now
                if answers[who].tokens == requests[who].output:
                    stop(who, "finished", now)
