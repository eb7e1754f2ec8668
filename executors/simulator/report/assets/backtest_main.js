// Puts the page of a backtest together: for each policy its replicas and its queue, all on one axis and to one scale.

const backtestMeasures = [
  {
    name: "requests waiting", height: 0.95, alpha: 0.55, colour: (ink) => ink.replica[0],
    spans: (model) => model.deployments.flatMap((each) => each.series.waiting.map((bucket) => [bucket.since, bucket.until, bucket.mean])),
  },
];

function backtestPanels(stage) {
  const running = stage.model.deployments.map(({ name, index, sizes, series }) => new SeriesPanel(stage, canvasOf("running", index), {
    title: `${name}: replicas running`, steps: worldSize(sizes),
    lines: [{ name: "running", series: series.running, colour: (ink) => ink.replica[3] }],
  }));
  const waiting = stage.model.deployments.map(({ name, index, series }) => new SeriesPanel(stage, canvasOf("waiting", index), {
    title: `${name}: requests waiting`,
    lines: [{ name: "waiting", series: series.waiting, colour: (ink) => ink.replica[0] }],
  }));
  for (const panels of [running, waiting]) for (const panel of panels) panel.peers = panels;
  return running.flatMap((panel, index) => [panel, waiting[index]]);
}

const timeline = new Timeline(readModel(runData()), backtestMeasures, backtestPanels);
openPage(timeline);
window.rankcoreReport = Object.freeze({
  end: timeline.model.end,
  policies: timeline.model.deployments.map((each) => each.name),
  view: () => ({ since: timeline.stage.view.since, until: timeline.stage.view.until }),
  scales: () => timeline.panels.filter((panel) => panel instanceof SeriesPanel).map((panel) => [panel.title, panel.scale().top]),
});
document.documentElement.dataset.ready = "true";
