"""All that this package publishes, read back from Ray's endpoints: one page for whoever cannot reach each node's."""

import asyncio
import urllib.request

import ray

from executors.ray_gpu.metrics.catalogue import CATALOGUE

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ANSWER_S = 5.0
OURS = frozenset(series for metric in CATALOGUE for series in metric.series)


async def scrape() -> tuple[bytes, str]:
    """The page, and its content type. A node that does not answer within seconds is left out."""
    pages = await asyncio.gather(*(asyncio.to_thread(_page, url) for url in await asyncio.to_thread(endpoints)))
    return merged(pages).encode(), CONTENT_TYPE


def endpoints() -> list[str]:
    """Where the nodes that are alive have their metrics. Blocks for a round trip."""
    return [
        f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        for node in ray.nodes()
        if node["Alive"] and node.get("MetricsExportPort")
    ]


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_S) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def merged(pages: list[str]) -> str:
    """The series of ours in these pages, those of one name together, as Prometheus wants them."""
    about: dict[str, list[str]] = {}
    series: dict[str, list[str]] = {}
    for page in pages:
        for line in page.splitlines():
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                if name in OURS and len(about.setdefault(name, [])) < 2:
                    about[name].append(line)
            elif (name := line.partition("{")[0].partition(" ")[0]) in OURS:
                series.setdefault(name, []).append(line)
    return "".join(f"{line}\n" for name in sorted(series) for line in (*about.get(name, ()), *series[name]))
