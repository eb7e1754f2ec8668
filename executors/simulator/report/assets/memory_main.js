// Puts the page of a run of models together, and gives tests and curious people an object to ask: `rankcoreReport`.

const memoryMeasures = [
  {
    name: "requests waiting", height: 0.95, alpha: 0.55, colour: (ink) => ink.replica[0],
    spans: (model) => model.series.waiting.map((bucket) => [bucket.since, bucket.until, bucket.mean]),
  },
  {
    name: "GB on their way to GPUs", height: 0.6, alpha: 1, colour: (ink) => ink.of.moving,
    spans: (model) => model.lanes.flatMap((lane) => lane.segments.filter((each) => each.phase === "loading").map((each) => [each.since, each.until, each.size])),
  },
];

function memoryPanels(stage) {
  const { series } = stage.model;
  return [
    new MemoryPanel(stage, canvasOf("memory")),
    new SeriesPanel(stage, canvasOf("used"), {
      title: "GPU memory of all nodes", unit: "GB",
      lines: [
        { name: "held", series: series.used, colour: (ink) => ink.replica[3] },
        { name: "fragmented", series: series.fragmented, colour: (ink) => ink.of.bad, dash: [5, 2] },
        { name: "in CPU caches", series: series.cached, colour: (ink) => ink.replica[2], dash: [2, 3] },
      ],
    }),
    new SeriesPanel(stage, canvasOf("waiting"), {
      title: "requests waiting", lines: [{ name: "waiting", series: series.waiting, colour: (ink) => ink.replica[0] }],
    }),
    new SeriesPanel(stage, canvasOf("answers"), {
      title: "from a miss to the first answer", unit: "s",
      lines: [{ name: "first answer after", series: series.first_answer, colour: (ink) => ink.replica[0] }],
    }),
  ];
}

// For tests, and for the console: times in seconds, sizes in GB, places in pixels of the window.
function publishMemory(timeline) {
  const { stage, model } = timeline, memory = timeline.panels.find((panel) => panel instanceof MemoryPanel);
  const laneOf = (id) => model.lanes.find((lane) => lane.id === id);
  window.rankcoreReport = Object.freeze({
    end: model.end,
    models: model.deployments.map((each) => each.name),
    view: () => ({ since: stage.view.since, until: stage.view.until }),
    show: (since, until) => stage.view.show(since, until),
    reset: () => stage.view.reset(),
    lanes: () => memory.lanes.map((lane) => lane.id),
    capacity: (lane) => laneOf(lane).capacity,
    spans: (lane) => laneOf(lane).segments.map((each) => ({
      replica: each.replica.id, phase: each.phase, since: each.since, until: each.until, size: each.size, colour: each.replica.model.colour,
    })),
    pieces: (lane) => laneOf(lane).pieces.map(({ since, until, low, high, span }) => ({ since, until, low, high, replica: span.replica.id })),
    place: (lane, time, size) => {
      const box = memory.canvas.getBoundingClientRect(), found = laneOf(lane), height = memory.laneHeight;
      const y = size === undefined ? memory.yOf(found) : memory.yTop(found) + height * (1 - size / found.capacity);
      return { x: box.left + stage.x(time), y: box.top + y };
    },
    marked: () => timeline.marked?.at ?? null,
  });
}

const timeline = new Timeline(readMemoryModel(runData()), memoryMeasures, memoryPanels);
openPage(timeline);
publishMemory(timeline);
document.documentElement.dataset.ready = "true";
