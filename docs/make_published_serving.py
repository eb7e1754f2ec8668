"""Write docs/published-serving.md: what others measured, and what an engine says that is fitted to it.

python docs/make_published_serving.py           write the page
python docs/make_published_serving.py --check   say whether it is current (exit status 1 if not)
"""

import csv
import sys
from collections.abc import Mapping
from pathlib import Path

from executors.cli.engine_fit import Limits, fitted
from executors.simulator.engines.fit import Fit

PAGE = Path(__file__).with_name("published-serving.md")
DATA = Path(__file__).parents[1] / "data" / "published_serving.csv"

HEAD = """\
# What engines are checked against

Written by `make docs` from [data/published_serving.csv](../data/published_serving.csv); a test checks that it is current.
The measurements are those of their publishers; each fitted figure comes from
[an engine](simulating.md#engines-under-load) in a closed loop, with the numbers that `rankcore engine fit` finds in the rows of
one system. MAPE is the mean of absolute relative errors; "left out": of each row, predicted by a fit without it, on the same
KV cache. A fit says how well the model can describe a system, not how well it predicts another one.
"""
NIM = """\
NVIDIA's NIM LLM benchmarking guide, 1.0.0 (1, 5 and 25 users) and 1.8.0. Five numbers are fitted: two of `base`, those of
prompt and context, and the size of the KV cache, with `kv_policy: reserve` and 8,192 tokens in an iteration.
"""
VULTR = """\
The Vultr cookbook, vLLM 0.16; the inter-token latency is its TPOT. The model is no good here: the time to first token of one
user (362 ms, of a warm-up) is above that of eight, and iterations grow less than in a line with the batch.
"""
SYSTEMS: tuple[tuple[str, Mapping[str, str], Limits, str], ...] = (
    (
        "Llama-3.3-70B FP8 on two H100, 5000 prompt and 500 output tokens",
        {"model": "Llama-3.3-70B FP8"},
        Limits(kv_cache_tokens=473_808, kv_policy="reserve", max_num_seqs=512, max_num_batched_tokens=8192),
        NIM,
    ),
    (
        "Nemotron Nano 30B FP8 on two B200, 2048 prompt and 512 output tokens",
        {"model": "Nemotron Nano 30B FP8"},
        Limits(kv_cache_tokens=10_000_000, kv_policy="preempt", max_num_seqs=512, max_num_batched_tokens=8192),
        VULTR,
    ),
)
REST = """\
## Not fitted

Qwen3-32B on an H100 (GPUStack lab, vLLM 0.11): 500 requests of 2000 and 100 tokens, sent at once, took 328 s, with a mean time
to first token of 163.9 s and a mean TPOT of 86.6 ms. That is no closed loop; the row is kept for whoever wants to compare it.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(*each) for each in SYSTEMS), REST])


def _section(title: str, where: Mapping[str, str], limits: Limits, about: str) -> str:
    fit = fitted(DATA, limits, where)
    with DATA.open(encoding="utf-8") as file:
        users = [row["concurrency"] for row in csv.DictReader(file) if all(row[key] == text for key, text in where.items())]
    head = "| users | TTFT, ms | fitted | ITL, ms | fitted | tokens/s | fitted |\n|---:|---:|---:|---:|---:|---:|---:|"
    rows = [
        f"| {each} | "
        + " | ".join(f"{was:,g} | {_shown(said)}" for was, said in zip(row.measured, row.fitted, strict=True))
        + " |"
        for each, row in zip(users, fit.rows, strict=True)
    ]
    return "\n".join([f"## {title}\n", about, head, *rows, _errors(fit), "", _numbers(fit), ""])


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def _errors(fit: Fit) -> str:
    cells = (f"{fit.mape[name]:.1%} | left out: {fit.left_out_mape[name]:.1%}" for name in fit.figures)
    return f"| MAPE | {' | '.join(cells)} |"


def _numbers(fit: Fit) -> str:
    base = ", ".join(f"{ms:.4g} ms with {x}" for x, ms in fit.base_ms)
    tokens, prompt_ms = fit.prompt_ms[-1]
    prompt = f"{prompt_ms / tokens * 1000:.4g} us a prompt token, {fit.kv_ns:.4g} ns a token of context"
    return f"An iteration takes {base} sequences that decode, {prompt}; {fit.kv_cache_tokens:,} tokens of KV cache."


def main() -> int:
    if "--check" in sys.argv[1:]:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print(f"{PAGE.name} is {'current' if current else 'out of date: run make docs'}")
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
