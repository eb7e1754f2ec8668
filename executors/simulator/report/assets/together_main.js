// Puts the page of several runs together: their lines in one chart, the difference below it, lanes where they differ.

const RUN_LINES = [[], [9, 3], [3, 3], [9, 3, 2, 3]].map((dash, index) => ({ colour: (ink) => ink.run[index], dash }));

// What is drawn of each deployment: the panel, what it is called, and which series it shows.
const TOGETHER_CHARTS = [
  { name: "running", title: "replicas running" },
  { name: "waiting", title: "requests waiting" },
  { name: "latency", title: "latency", unit: "s" },
  { name: "wait", title: "wait", unit: "s" },
];

function linesOf(stage, deployment, name) {
  return stage.model.runs.flatMap(({ letter, index, end }) => {
    const found = deployment.runs[index]?.series[name];
    return found ? [{ name: letter, series: found, end, ...RUN_LINES[index] }] : [];
  });
}

// One line where all runs want the same, else a dotted one of each.
function sizesOf(stage, deployment) {
  const found = stage.model.runs.flatMap(({ letter, index, end }) => (
    deployment.runs[index] ? [{ name: `world size of ${letter}`, sizes: deployment.runs[index].sizes, end, colour: RUN_LINES[index].colour, dash: [1, 3] }] : []
  ));
  const looks = new Set(found.map(({ sizes }) => JSON.stringify(sizes)));
  return looks.size === 1 ? worldSize(found[0].sizes) : found;
}

function chartsOf(stage, deployment, { name, title, unit = "" }) {
  const canvas = canvasOf(name, deployment.index);
  if (!canvas) return [];
  const lines = linesOf(stage, deployment, name);
  const steps = name === "running" ? sizesOf(stage, deployment) : [];
  const chart = new SeriesPanel(stage, canvas, { title, lines, unit, steps, objective: stage.model.limits[name] ?? null });
  const below = canvasOf(`${name}-difference`, deployment.index);
  if (!below) return [chart];
  const [base, ...others] = lines;
  return [chart, new DifferencePanel(stage, below, { title: `${title}: difference`, base, others, unit })];
}

// A panel of lanes for each run that has a canvas; only the first has one where all are the same.
function lanesOfRuns(stages, name, deployment, make) {
  return stages.flatMap((stage, run) => {
    const canvas = canvasOf(name, deployment, run);
    return canvas ? [make(stage, canvas, run)] : [];
  });
}

function togetherPanels(stage) {
  const stages = stage.model.runs.map((run) => stage.beside(run));
  return [
    ...stage.model.deployments.flatMap((deployment) => [
      ...TOGETHER_CHARTS.flatMap((chart) => chartsOf(stage, deployment, chart)),
      ...windowChartsOf(stage, deployment),
      ...lanesOfRuns(stages, "ranks", deployment.index, (own, canvas, run) => new RankPanel(own, deployment.runs[run], canvas)),
    ]),
    ...lanesOfRuns(stages, "nodes", null, (own, canvas) => new NodePanel(own, canvas)),
  ];
}

const share = (spans) => (model) => model.runs.flatMap((run) => spans(run).map(([since, until, size]) => [since, until, size / model.runs.length]));
const togetherMeasures = [
  {
    name: "requests waiting, mean of the runs", height: 0.95, alpha: 0.55, colour: (ink) => ink.replica[0],
    spans: share((run) => run.deployments.flatMap((each) => each.series.waiting.map((bucket) => [bucket.since, bucket.until, bucket.mean]))),
  },
  {
    name: "ranks unserved, mean of the runs", height: 0.6, alpha: 1, colour: (ink) => ink.of.bad,
    spans: share((run) => run.deployments.flatMap((each) => each.lanes.flatMap((lane) => lane.gaps.map((gap) => [gap.since, gap.until, 1])))),
  },
];

// For tests, and for the console: times in seconds, places in pixels of the window.
function publishTogether(timeline) {
  const { stage, model } = timeline;
  const lanes = (run, deployment) => timeline.panels.find((panel) => panel instanceof RankPanel && panel.stage.model === model.runs[run] && panel.deployment.name === model.deployments[deployment].name);
  window.rankcoreReport = Object.freeze({
    end: model.end,
    runs: model.runs.map((run) => run.letter),
    deployments: model.deployments.map((each) => each.name),
    view: () => ({ since: stage.view.since, until: stage.view.until }),
    show: (since, until) => stage.view.show(since, until),
    reset: () => stage.view.reset(),
    lanes: (run, deployment = 0) => lanes(run, deployment)?.lanes.map((lane) => lane.rank) ?? null,
    segments: (rank, run, deployment = 0) => model.deployments[deployment].runs[run].lanes[rank].segments.map((each) => ({
      replica: each.replica.id, phase: each.phase, since: each.since, until: each.until,
    })),
    place: (rank, time, run, deployment = 0) => {
      const panel = lanes(run, deployment), box = panel.canvas.getBoundingClientRect();
      return { x: box.left + stage.x(time), y: box.top + panel.yOf(model.deployments[deployment].runs[run].lanes[rank]) };
    },
    charts: () => timeline.panels.filter((panel) => panel instanceof SeriesPanel && !(panel instanceof WindowsPanel)).map((panel) => ({
      title: panel.title, lines: panel.lines.map((line) => line.name), objective: panel.objective, top: panel.scale().top, buckets: panel.lines.map((line) => panel.visible(line.series)),
    })),
    differences: () => timeline.panels.filter((panel) => panel instanceof DifferencePanel).map((panel) => ({
      title: panel.title, parts: panel.others.map((other) => panel.between(other)),
    })),
    windows: () => timeline.panels.filter((panel) => panel instanceof WindowsPanel).map((panel) => panel.told),
    axis: () => stage.ticks.times.map((time) => [time, tickLabel(time, stage.ticks.step)]),
    marked: () => timeline.marked?.at ?? null,
  });
}

const data = runData(), timeline = new Timeline(readTogether(data), togetherMeasures, togetherPanels);
openPage(timeline);
offerZones(timeline, data.began);
publishTogether(timeline);
document.documentElement.dataset.ready = "true";
