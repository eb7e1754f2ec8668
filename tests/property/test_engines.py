"""W1: the engine that leaps equals the loop token by token in every time, count and peak; W5: what every iteration keeps."""

import itertools
from random import Random

import attrs
import pytest

from executors.simulator.engines.replay import EngineRequest, Hang, Troubles, serve
from executors.simulator.engines.spec import Curve, Engine, StepTime
from executors.simulator.fields import FieldProblem
from tests.property.engine_oracle import serve_by_token


def some_engine(draw: Random) -> Engine:
    block_size = draw.choice([1, 4, 16])
    seqs = draw.randint(1, 12)
    chunked = draw.random() < 0.6
    blocks = draw.randint(6, 60)
    kv_cache_tokens = blocks * block_size + draw.randrange(block_size)
    longest = draw.choice([None, max(1, kv_cache_tokens // 2)])
    batched = draw.randint(seqs, 4 * seqs + 40) if chunked else max(seqs, longest or kv_cache_tokens)
    base = Curve(tuple((b, 1_000 + 37 * b + draw.randrange(50)) for b in sorted(draw.sample(range(1, 13), draw.randint(1, 4)))))
    prompt = Curve(((0, 0), (32, draw.randint(0, 5_000)), (64, draw.randint(0, 9_000))))
    step_time = StepTime(base, prompt, draw.choice([0, 1, 7]), draw.choice([0, 3]))
    policy = draw.choice(["preempt", "reserve"])
    return Engine(step_time, kv_cache_tokens, seqs, batched, chunked, block_size, policy, longest)


def some_requests(draw: Random, engine: Engine) -> list[EngineRequest]:
    at_ps, requests = 0, list[EngineRequest]()
    gap_ps = draw.choice([0, 2_000, 30_000])
    impatient = draw.choice([0.0, 0.0, 0.3])
    longest = engine.longest + 2
    for _ in range(draw.randint(1, 25)):
        at_ps += draw.randint(0, gap_ps)
        expires_ps = at_ps + draw.randint(1, 200_000) if draw.random() < impatient else None
        requests.append(
            EngineRequest(at_ps, draw.randint(1, max(1, longest // 2)), draw.randint(1, max(1, longest // 2)), expires_ps)
        )
    return requests


def with_cached(draw: Random, requests: list[EngineRequest]) -> list[EngineRequest]:
    return [attrs.evolve(each, cached=draw.choice([0, each.prompt // 2, each.prompt - 1])) for each in requests]


def some_troubles(draw: Random) -> Troubles:
    hangs, at_ps = list[Hang](), 0
    for _ in range(draw.choice([0, 0, 1, 3])):
        at_ps += draw.randint(0, 60_000)
        hangs.append(Hang(at_ps, draw.randint(1, 20_000)))
        at_ps += hangs[-1].for_ps
    crash_ps = draw.choice([None, None, draw.randint(0, 400_000)])
    return Troubles(tuple(hangs), crash_ps, draw.choice([None, None, draw.randint(0, 200_000)]))


def hold_equal(engine: Engine, requests: list[EngineRequest], troubles: Troubles) -> tuple[int, int]:
    """Compare the two and check W5; says how many iterations and preemptions there were."""
    expected, log = serve_by_token(engine, requests, troubles)
    served = serve(engine, requests, troubles)
    assert served == expected, (engine, requests, troubles)
    first_come = list[int]()
    for iteration in log:
        assert iteration.blocks <= engine.blocks
        assert sum(iteration.tokens.values()) <= engine.max_num_batched_tokens
        assert len(iteration.batch) <= engine.max_num_seqs
        assert iteration.tokens, "an iteration without work"
        assert not iteration.evicted or iteration.batch[0] not in iteration.evicted
        first_come += [who for who in iteration.tokens if who not in first_come]
    assert first_come == sorted(first_come)
    for asked, answer in zip(requests, served.answers, strict=True):
        assert answer.outcome
        assert (answer.tokens == asked.output) == (answer.outcome == "finished")
    return len(log), sum(answer.preemptions for answer in served.answers)


def hold_equal_at_random(seeds: range) -> None:
    iterations = preemptions = 0
    for seed in seeds:
        draw = Random(seed)
        engine = some_engine(draw)
        requests = some_requests(draw, engine)
        if seed % 3 == 0:
            requests = with_cached(draw, requests)
        more, evicted = hold_equal(engine, requests, some_troubles(draw))
        iterations, preemptions = iterations + more, preemptions + evicted
    assert iterations > 30 * len(seeds)
    assert preemptions > len(seeds)


def test_w1_leaps_equal_the_loop_token_by_token() -> None:
    hold_equal_at_random(range(150))


@pytest.mark.night
def test_w1_two_thousand_engines() -> None:
    hold_equal_at_random(range(1_000, 3_000))


def small_worlds(counts: range) -> int:
    """A part of W6: chunked engines, prompts of 1 or 3, outputs of 1 or 4, arrivals together or 17 ps apart; says how many."""
    step_time = StepTime(Curve(((1, 10), (2, 13))), Curve(((0, 0), (1, 5))), 1, 1)
    engines = [
        Engine(step_time, blocks, seqs, 8, True, 1, policy)
        for blocks in range(3, 9)
        for seqs in (1, 2, 3)
        for policy in ("preempt", "reserve")
    ]
    worlds = 0
    for count in counts:
        for shapes in itertools.product(itertools.product((1, 3), (1, 4)), repeat=count):
            for gap_ps, crash_ps in itertools.product((0, 17), (None, 40)):
                requests = [EngineRequest(at * gap_ps, prompt, output) for at, (prompt, output) in enumerate(shapes)]
                for engine in engines:
                    hold_equal(engine, requests, Troubles((), crash_ps))
                    worlds += 1
    return worlds


def test_w6_smallest_worlds() -> None:
    assert small_worlds(range(1, 3)) == 2_880


@pytest.mark.night
def test_w6_small_worlds() -> None:
    assert small_worlds(range(3, 5)) == 46_080


def test_many_decode_steps_are_one_event() -> None:
    """A million tokens of one request in the time of a few events; the closed form to the picosecond."""
    engine = Engine(StepTime(Curve(((1, 1_000),)), Curve(((0, 0), (1, 10))), 7), 2_000_000)
    served = serve(engine, [EngineRequest(5, 10, 1_000_001)])
    steps = 1_000_000
    assert served.answers[0].first_ps == 5 + 1_000 + 100
    assert served.answers[0].ended_ps == 1_105 + steps * (1_000 + 7 * 11) + 7 * steps * (steps - 1) // 2
    assert served.iterations == steps + 1


STEP_TIME = StepTime(Curve(((1, 1),)), Curve(((0, 0), (1, 1))))


@pytest.mark.parametrize(
    ("fields", "keys", "allowed"),
    [
        ({"kv_cache_tokens": 15}, ("kv_cache_tokens",), "at least 16 (block_size)"),
        ({"max_num_seqs": 65_537}, ("max_num_seqs",), "an integer from 1 to 65536"),
        ({"max_num_batched_tokens": 100}, ("max_num_batched_tokens",), "at least 128 (max_num_seqs)"),
        ({"chunked_prefill": False}, ("max_num_batched_tokens",), "at least 4096 (max_model_len, as chunked_prefill is false)"),
        ({"kv_policy": "swap"}, ("kv_policy",), "one of preempt, reserve"),
    ],
)
def test_a_wrong_field_is_named_with_what_is_allowed(fields: dict[str, object], keys: tuple[str, ...], allowed: str) -> None:
    given: dict[str, object] = {"kv_cache_tokens": 4_096, **fields}
    with pytest.raises(FieldProblem) as caught:
        Engine(STEP_TIME, **given)  # type: ignore[arg-type]
    assert caught.value.keys == keys
    assert caught.value.allowed == allowed


@pytest.mark.parametrize("knots", [(), ((1, 1), (1, 2)), ((2, 1), (1, 2)), ((1, -1),)])
def test_a_curve_needs_ascending_knots(knots: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(FieldProblem, match="x ascending"):
        Curve(knots)


def test_a_curve_is_linear_between_and_beyond_its_knots() -> None:
    curve = Curve(((2, 10), (4, 20), (8, 20)))
    assert [curve.at(x) for x in (0, 1, 2, 3, 4, 6, 8, 12)] == [0, 5, 10, 15, 20, 20, 20, 20]


TEN_PS = StepTime(Curve(((1, 10),)), Curve(((0, 0),)))


@pytest.mark.parametrize(
    ("requests", "troubles", "outcome", "ended_ps"),
    [
        ([EngineRequest(0, 1, 5, 20)], Troubles(), "expired", 20),
        ([EngineRequest(0, 1, 5, 50)], Troubles(), "finished", 50),
        ([EngineRequest(0, 1, 5)], Troubles(crash_ps=50), "finished", 50),
        ([EngineRequest(0, 1, 5)], Troubles(crash_ps=49), "lost", 49),
        ([EngineRequest(7, 1, 1)], Troubles(drain_ps=7), "finished", 17),
        ([EngineRequest(8, 1, 1)], Troubles(drain_ps=7), "refused", 8),
        ([EngineRequest(0, 1, 5)], Troubles((Hang(20, 4),)), "finished", 54),
        ([EngineRequest(0, 1, 100), EngineRequest(25, 1, 1, 40)], Troubles(), "expired", 40),
        ([EngineRequest(0, 1, 5)], Troubles((Hang(25, 100),), crash_ps=50), "lost", 50),
    ],
    ids=[
        "expiry at a boundary",
        "finish before expiry",
        "end before crash",
        "crash within",
        "drain at arrival",
        "drain before",
        "hang at a boundary",
        "expiry in a full queue",
        "crash of one that hangs",
    ],
)
def test_what_happens_at_one_instant(requests: list[EngineRequest], troubles: Troubles, outcome: str, ended_ps: int) -> None:
    engine = Engine(TEN_PS, 1_000, max_num_seqs=1)
    hold_equal(engine, requests, troubles)
    answer = serve(engine, requests, troubles).answers[-1]
    assert (answer.outcome, answer.ended_ps) == (outcome, ended_ps)
