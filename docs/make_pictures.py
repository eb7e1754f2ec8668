"""Write the pictures of docs/tutorial.md from runs of the examples: SVG files in docs/pictures/.

python docs/make_pictures.py                 write all of them
python docs/make_pictures.py NAME...         write some
python docs/make_pictures.py --check NAME... say whether they are current (exit status 1 if not); without names, all
"""

import sys
from collections.abc import Callable
from pathlib import Path

from executors.simulator.load.sources import read_source
from executors.simulator.questions.cells import Cell, in_this_process
from executors.simulator.questions.settings import parse_variation
from executors.simulator.questions.statistics import estimate
from executors.simulator.questions.sweeping import sources_of
from executors.simulator.report.chart import Chart, Point
from executors.simulator.report.stills import NodesDown, RankLanes, Running, Waiting, render_charts, render_still
from executors.simulator.run import RunResult, simulate

FOLDER = Path(__file__).with_name("pictures")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str) -> RunResult:
    """An example, as it is."""
    source = read_source(EXAMPLES / f"{name}.yaml")
    scenario = source.scenario()
    return simulate(scenario, source.arrivals(scenario))


def node_lost() -> str:
    """The ranks and the queue around the busiest minute."""
    return render_still(
        run("node-failure-at-peak"),
        [RankLanes("llama-70b"), Waiting("llama-70b")],
        title="A node is lost in the busiest minute: 15 replicas on 8 nodes",
        since=900,
        until=1680,
    )


def spare_or_replica() -> str:
    """How the number of replicas on the same nodes changes what is waited for."""
    source = read_source(EXAMPLES / "node-failure-at-peak.yaml")
    targets = parse_variation("--vary", "target_replicas=13,14,15,16")
    seeds = range(1, 6)
    grid, _ = sources_of(source, [targets])
    cells = [Cell(each, seed) for each in grid for seed in seeds]
    figures = [outcome.figures["llama-70b"] for _, outcome in in_this_process(cells)]

    def chart(title: str, key: str) -> Chart:
        points = []
        for place in range(len(grid)):
            rows = figures[place * len(seeds) : (place + 1) * len(seeds)]
            point = Point.of(place, estimate([row[key] for row in rows if row[key] is not None]))
            points += [] if point is None else [point]
        return Chart(title, tuple(each.text for each in targets), ("",), (tuple(points),))

    return render_charts(
        "More replicas, or a spare place? The node failure with 13 to 16 replicas on the same 16 places",
        [
            chart("requests that waited over 1 s", "requests.waited_over_1_s"),
            chart("longest gap of a rank [s]", "longest_gap_s"),
        ],
        "below each chart: target_replicas; a mark is the mean of 5 runs, its 95 % interval mostly narrower than the mark",
    )


def update() -> str:
    """The same two updates with two replicas out of service at a time, and with four."""
    panels = []
    for name in ("two-at-a-time", "four-at-a-time"):
        panels += [RankLanes(name, f"ranks of {name}"), Waiting(name, f"requests of {name} waiting", scale=150)]
    title = "Version 2 at 0:05:00, version 3 a minute later, before version 2 is everywhere"
    return render_still(run("rolling-update"), panels, title=title, since=290, until=530)


def downscale() -> str:
    """Who is disturbed when 24 replicas become 14."""
    titles = {"any": "victims: any", "newest": "victims: newest", "highest-rank": "victims: highest_rank"}
    panels = [RankLanes(name, title) for name, title in titles.items()]
    title = "24 replicas become 14: yellow stripes are survivors that get another rank"
    return render_still(run("downscale-policies"), panels, title=title, since=298, until=310)


def controller_gone() -> str:
    """Ranks that close up while the controller is away and messages are lost."""
    title = "16 replicas become 9, three messages in ten are lost, and the controller crashes in the middle"
    return render_still(run("controller-crash-mid-compaction"), [RankLanes("trainer")], title=title, since=196, until=272)


def sixty_days() -> str:
    """How many nodes were down, beside how many are spare."""
    panel = NodesDown("nodes down, of 400; dashed: the 20 that are spare when 380 replicas take a node each", spare=20)
    return render_still(run("fault-trace-60-days"), [panel], title="Sixty days of real node faults")


def spot() -> str:
    """Ranks, replicas and queue while nodes come and go."""
    return render_still(
        run("spot-nodes"),
        [RankLanes("llm"), Running("llm"), Waiting("llm")],
        title="Twelve replicas on spot nodes, as a cloud gave and took them",
    )


def unnoticed() -> str:
    """The same update with start-ups after their predecessors' ends, and before."""
    titles = {"none": "hand_over: none", "prepared": "hand_over: prepared"}
    panels = [RankLanes(name, title) for name, title in titles.items()]
    title = "Version 2 comes at 0:05:00: a red frame is a rank that nobody serves"
    return render_still(run("make-before-break"), panels, title=title, since=290, until=720)


PICTURES: dict[str, Callable[[], str]] = {
    "node-lost": node_lost,
    "spare-or-replica": spare_or_replica,
    "update": update,
    "downscale": downscale,
    "controller-gone": controller_gone,
    "sixty-days": sixty_days,
    "spot": spot,
    "unnoticed": unnoticed,
}


def main(arguments: list[str]) -> int:
    """What the command line asks for; its exit status."""
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or list(PICTURES)
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        print(f"no picture {', '.join(unknown)}: there are {', '.join(PICTURES)}")
        return 2
    stale = False
    for name in names:
        path, drawn = FOLDER / f"{name}.svg", PICTURES[name]()
        if check:
            current = path.exists() and path.read_bytes() == drawn.encode()
            stale = stale or not current
            print(f"{path.name} is {'current' if current else 'out of date: run make docs'}")
        else:
            FOLDER.mkdir(exist_ok=True)
            path.write_bytes(drawn.encode())
            print(f"wrote pictures/{path.name}, {len(drawn):,} bytes")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
