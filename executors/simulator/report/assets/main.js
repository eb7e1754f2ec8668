// Puts the page together, and gives tests and curious people an object to ask: `rankcoreReport`.

function panelsOf(stage, deployment) {
  const { series, index, sizes } = deployment;
  const canvas = (name) => canvasOf(name, index);
  const panels = [new RankPanel(stage, deployment, canvas("ranks"))];
  panels.push(new SeriesPanel(stage, canvas("running"), {
    title: "replicas running", steps: worldSize(sizes),
    lines: [{ name: "running", series: series.running, colour: (ink) => ink.replica[3] }],
  }));
  if (!canvas("waiting")) return panels;
  panels.push(new SeriesPanel(stage, canvas("waiting"), {
    title: "requests waiting",
    lines: [{ name: "waiting", series: series.waiting, colour: (ink) => ink.replica[0] }],
  }));
  panels.push(new SeriesPanel(stage, canvas("latency"), {
    title: "requests that ended", unit: "s",
    lines: [
      { name: "latency", series: series.latency, colour: (ink) => ink.replica[2] },
      { name: "wait", series: series.wait, colour: (ink) => ink.replica[0], dash: [5, 2] },
    ],
  }));
  return panels;
}

// What the strip of the whole run shows: how many ranks were unserved and how many requests waited.
const measures = [
  {
    name: "requests waiting", height: 0.95, alpha: 0.55, colour: (ink) => ink.replica[0],
    spans: (model) => model.deployments.flatMap((deployment) => deployment.series.waiting.map((bucket) => [bucket.since, bucket.until, bucket.mean])),
  },
  {
    name: "ranks unserved", height: 0.6, alpha: 1, colour: (ink) => ink.of.bad,
    spans: (model) => model.deployments.flatMap((deployment) => deployment.lanes.flatMap((lane) => lane.gaps.map((gap) => [gap.since, gap.until, 1]))),
  },
];

// For tests, and for the console: times in seconds, places in pixels of the window.
function publish(timeline) {
  const { stage, model } = timeline;
  const ranks = timeline.panels.filter((panel) => panel instanceof RankPanel);
  const nodes = timeline.panels.find((panel) => panel instanceof NodePanel);
  const at = (panel, lane, time) => {
    const box = panel.canvas.getBoundingClientRect();
    return { x: box.left + stage.x(time), y: box.top + panel.yOf(lane) };
  };
  window.rankcoreReport = Object.freeze({
    end: model.end,
    deployments: model.deployments.map((each) => each.name),
    nodes: [...model.nodes],
    view: () => ({ since: stage.view.since, until: stage.view.until }),
    show: (since, until) => stage.view.show(since, until),
    reset: () => stage.view.reset(),
    lanes: (deployment = 0) => ranks[deployment].lanes.map((lane) => lane.rank),
    segments: (rank, deployment = 0) => model.deployments[deployment].lanes[rank].segments.map((each) => ({
      replica: each.replica.id, phase: each.phase, since: each.since, until: each.until, colour: each.replica.colour,
    })),
    gaps: (rank, deployment = 0) => model.deployments[deployment].lanes[rank].gaps.map(({ since, until }) => ({ since, until })),
    place: (rank, time, deployment = 0) => at(ranks[deployment], model.deployments[deployment].lanes[rank], time),
    nodePlace: (node, time) => at(nodes, nodes.lanes.find((lane) => lane.id === node), time),
    marked: () => timeline.marked?.at ?? null,
    axis: () => stage.ticks.times.map((time) => [time, tickLabel(time, stage.ticks.step)]),
    windows: () => timeline.panels.filter((panel) => panel instanceof WindowsPanel).map((panel) => panel.told),
  });
}

const data = runData(), { windows, began } = data;
const timeline = new Timeline(readModel(data), measures, (stage) => [
  ...stage.model.deployments.flatMap((each) => [...panelsOf(stage, each), ...windowPanelsOf(stage, each.index, windows[each.index])]),
  new NodePanel(stage, canvasOf("nodes")),
]);
openPage(timeline);
offerZones(timeline, began);
publish(timeline);
document.documentElement.dataset.ready = "true";
