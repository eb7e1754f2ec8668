"""Engines of a scenario: how replicas serve requests that share their iterations, by the GPUs that they run on."""

from collections.abc import Iterable

import attrs

from executors.simulator.engines.spec import TOKENS_MAX, Curve, Engine, StepTime
from executors.simulator.fields import (
    FieldProblem,
    FileProblem,
    Missing,
    choice,
    flag,
    integer,
    is_number,
    name,
    number,
    optional,
)
from executors.simulator.scenario.hardware import NodeGroup

TP_MAX = 1024
KNOTS_MAX = 1_000
MS_MAX = 1e6
NS_MAX = 1e9
GB = 10**9
REFUSED = ("disaggregation", "speculative", "pipeline_parallel")
"""What engines do elsewhere and not here: taken silently, figures would be of another engine."""

Knots = tuple[tuple[float, float], ...]


@attrs.frozen(kw_only=True)
class EngineTable:
    """How long an iteration takes on GPUs of a type.

    It is base_ms(decoding sequences) + kv_ns x their context + prompt_ms(prompt tokens) + pair_ns x pairs. Between points, and
    beyond them, it is linear; one point is a constant. Each value is rounded once, to a picosecond.

    Attributes:
        gpu_type: As `gpu_type` of the nodes.
        tp: How many GPUs of it: `gpus_per_replica` of the deployment.
        base_ms: Points [sequences that decode, ms].
        prompt_ms: Points [prompt tokens of the iteration, ms]; without any prompt token it is 0.
        kv_ns: Of each token of context that a decoding sequence attends to.
        pair_ns: Of each pair of a prompt token and a token that it attends to.
    """

    gpu_type: str = attrs.field(validator=name)
    tp: int = attrs.field(default=1, validator=integer(1, TP_MAX))
    base_ms: Knots
    prompt_ms: Knots
    kv_ns: float = attrs.field(default=0.0, validator=number(least=0.0, most=NS_MAX))
    pair_ns: float = attrs.field(default=0.0, validator=number(least=0.0, most=NS_MAX))

    def __attrs_post_init__(self) -> None:
        _ = self.step_time

    @property
    def step_time(self) -> StepTime:
        """The same in whole picoseconds."""
        base, prompt = (_curve(key, getattr(self, key)) for key in ("base_ms", "prompt_ms"))
        return StepTime(base, prompt, round(self.kv_ns * 1_000), round(self.pair_ns * 1_000))

    def __str__(self) -> str:
        return f"{self.gpu_type} TP {self.tp}"


def _curve(key: str, knots: Knots) -> Curve:
    allowed = f"1 to {KNOTS_MAX} points [tokens or sequences, ms], the first ascending from 0, ms from 0 to {MS_MAX:g}"
    if not 1 <= len(knots) <= KNOTS_MAX:
        raise FieldProblem((key,), list(knots), allowed)
    last = -1.0
    for index, knot in enumerate(knots):
        fits = len(knot) == 2 and all(map(is_number, knot)) and 0 <= knot[1] <= MS_MAX
        if not fits or knot[0] != int(knot[0]) or not last < knot[0] <= TOKENS_MAX:
            raise FieldProblem((key, index), list(knot), allowed)
        last = knot[0]
    return Curve(tuple((int(x), round(ms * 10**9)) for x, ms in knots))


@attrs.frozen(kw_only=True)
class ScenarioEngine:
    """An engine with continuous batching, as vLLM has it: each iteration serves all running sequences, and prompts of new ones.

    Attributes:
        name: What `engine` of a deployment calls it.
        max_num_seqs: Sequences in a batch.
        max_num_batched_tokens: Tokens of one iteration.
        chunked_prefill: False: whole prompts, in iterations of their own, before decodes.
        block_size: Tokens of a block of the KV cache.
        kv_policy: `preempt`: the newest sequence is evicted and recomputes prompt and output so far; `reserve`: nothing is
            admitted without room for all of it.
        max_model_len: Prompt and output together: longer ones are turned away; None: as many as the KV cache holds.
        kv_cache_tokens: Of the KV cache of a replica; None: what is left of `gpu_gb` of its GPUs.
        gpu_memory_utilization, weight_gb, working_gb, kv_cache_bytes_per_token: Without `kv_cache_tokens`: the share of
            `gpu_gb` that is used, what of it is no KV cache, and how much a token takes.
        tables: How long an iteration takes, by type and number of GPUs.
    """

    name: str = attrs.field(validator=name)
    max_num_seqs: int = attrs.field(default=128, validator=integer(1, 65_536))
    max_num_batched_tokens: int = attrs.field(default=2048, validator=integer(1, TOKENS_MAX))
    chunked_prefill: bool = attrs.field(default=True, validator=flag)
    block_size: int = attrs.field(default=16, validator=integer(1, TOKENS_MAX))
    kv_policy: str = attrs.field(default="preempt", validator=choice("preempt", "reserve"))
    max_model_len: int | None = attrs.field(default=None, validator=optional(integer(1, TOKENS_MAX)))
    kv_cache_tokens: int | None = attrs.field(default=None, validator=optional(integer(1, TOKENS_MAX)))
    gpu_memory_utilization: float = attrs.field(default=0.9, validator=number(above=0.0, most=1.0))
    weight_gb: float | None = attrs.field(default=None, validator=optional(number(least=0.0, most=1e6)))
    working_gb: float = attrs.field(default=0.0, validator=number(least=0.0, most=1e6))
    kv_cache_bytes_per_token: float | None = attrs.field(default=None, validator=optional(number(above=0.0, most=1e9)))
    tables: tuple[EngineTable, ...]

    def __attrs_post_init__(self) -> None:
        if not self.tables:
            raise FieldProblem(("tables",), [], "at least one table")
        seen: set[str] = set()
        for index, table in enumerate(self.tables):
            if str(table) in seen:
                raise FieldProblem(("tables", index), str(table), "a type and number of GPUs that no other table has")
            seen.add(str(table))
        if self.kv_cache_tokens is not None:
            self._with(self.tables[0], self.kv_cache_tokens)
            return
        for key in ("weight_gb", "kv_cache_bytes_per_token"):
            if getattr(self, key) is None:
                raise FieldProblem(("kv_cache_tokens",), Missing(), f"tokens of the KV cache, as there is no {key}")

    def on(self, group: NodeGroup, tp: int) -> Engine:
        """The engine of a replica with so many GPUs of a node.

        Raises:
            FieldProblem: It has no table for these, or they have no room for its KV cache.
        """
        table = next((each for each in self.tables if (each.gpu_type, each.tp) == (group.gpu_type, tp)), None)
        if table is None:
            has = f"it has {', '.join(map(str, self.tables))}"
            wanted = f"{group.gpu_type} TP {tp}" if group.gpu_type is not None else f"nodes {group.name}, without gpu_type"
            raise FileProblem((), self.name, f"engine {self.name!r} has no table for {wanted}; {has}")
        return self._with(table, self._kv_cache_tokens(group, tp))

    def _kv_cache_tokens(self, group: NodeGroup, tp: int) -> int:
        if self.kv_cache_tokens is not None:
            return self.kv_cache_tokens
        assert self.weight_gb is not None, "asked for without kv_cache_tokens"
        assert self.kv_cache_bytes_per_token is not None, "likewise"
        if group.gpu_gb is None:
            problem = f"engine {self.name!r} has no kv_cache_tokens, and nodes {group.name} no gpu_gb to compute them from"
            raise FileProblem((), self.name, problem)
        left_gb = group.gpu_gb * self.gpu_memory_utilization * tp - self.weight_gb - self.working_gb
        tokens = int(max(left_gb, 0.0) * GB / self.kv_cache_bytes_per_token)
        if tokens < self.block_size:
            problem = f"engine {self.name!r} has no room for a KV cache on {group.gpu_type} TP {tp}: {left_gb:.3g} GB are left"
            raise FileProblem((), self.name, problem)
        return min(tokens, TOKENS_MAX)

    def _with(self, table: EngineTable, kv_cache_tokens: int) -> Engine:
        return Engine(
            table.step_time,
            kv_cache_tokens,
            self.max_num_seqs,
            self.max_num_batched_tokens,
            self.chunked_prefill,
            self.block_size,
            self.kv_policy,
            self.max_model_len,
        )


@attrs.frozen(kw_only=True)
class RequestSlo:
    """What a request is to meet to count as good: all of these that are given.

    Attributes:
        ttft_s: From its arrival to its first token.
        tpot_s: Of each further token, on average: a request of one token has none, and is not good.
        e2e_s: From its arrival to its end.
    """

    ttft_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    tpot_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))
    e2e_s: float | None = attrs.field(default=None, validator=optional(number(above=0.0)))

    def is_met(self, ttft_s: float, tpot_s: float | None, e2e_s: float) -> bool:
        """Whether a request that is done is good."""
        if self.tpot_s is not None and (tpot_s is None or tpot_s > self.tpot_s):
            return False
        return (self.ttft_s is None or ttft_s <= self.ttft_s) and (self.e2e_s is None or e2e_s <= self.e2e_s)


def engines_by_node(engine: ScenarioEngine, groups: Iterable[NodeGroup], tp: int) -> dict[str, Engine]:
    """The engine of a replica on each node of these groups.

    Raises:
        FieldProblem: There is none.
    """
    found: dict[str, Engine] = {}
    for group in groups:
        found.update(dict.fromkeys(group.node_ids, engine.on(group, tp)))
    return found
