"""All that this package publishes, read back from Ray's endpoints: one page for whoever cannot reach each node's."""

import asyncio
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from http.client import HTTPException

import ray

from executors.ray_gpu.metrics.catalogue import CATALOGUE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ANSWER_S = 5.0
AT_ONCE = 16
_SERIES = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})? +[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|Inf|NaN)(?: +[0-9]+)?")
_ABOUT = re.compile(r"# (?:HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) .*")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Nodes are asked themselves, whatever proxy the environment has for the world outside."""
OURS = frozenset(series for metric in CATALOGUE for series in metric.series)


async def scrape() -> tuple[bytes, str]:
    """The page, and its content type. A node that does not answer within seconds, or not with such a page, is left out."""
    loop, urls = asyncio.get_running_loop(), await asyncio.to_thread(endpoints)
    pages = await asyncio.gather(*(loop.run_in_executor(_threads(), _page, url) for url in urls))
    return merged(pages).encode(), CONTENT_TYPE


def endpoints() -> list[str]:
    """Where the nodes that are alive have their metrics. Blocks for a round trip."""
    return [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()
        if node["Alive"] and node.get("MetricsExportPort")
    ]


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Of their own: many nodes that do not answer keep nothing else waiting."""
    return ThreadPoolExecutor(AT_ONCE, "scrape")


def _page(url: str) -> str:
    try:
        with _DIRECT.open(url, timeout=ANSWER_S) as answer:
            text: str = answer.read().decode()
            return text
    except (OSError, HTTPException, UnicodeDecodeError):
        return ""


def merged(pages: list[str]) -> str:
    """The series of ours in these pages, those of one name together, as Prometheus wants them, without lines that are none."""
    about: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for page in pages:
        for line in page.splitlines():
            if (of := _ABOUT.fullmatch(line)) is not None:
                if of[1] in OURS and len(about.setdefault(of[1], [])) < 2:
                    about[of[1]].append(line)
            elif (one := _SERIES.fullmatch(line)) is not None and one[1] in OURS:
                series.setdefault(one[1], []).append(line)
    return "".join(f"{line}\n" for name in sorted(series) for line in (*about.get(name, ()), *series[name]))
