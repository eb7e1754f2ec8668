// Figures of windows of several runs: the highest percentile of each run in one chart, objectives once, and the difference.

function windowChartsOf(stage, deployment) {
  const runs = stage.model.runs.map((run) => ({ run, panels: readWindows(deployment.runs[run.index]?.windows ?? { panels: [], engine: [] }) }));
  const names = new Set(runs.flatMap(({ panels }) => panels.map((panel) => panel.name)));
  return [...names].flatMap((name) => {
    const own = runs.flatMap(({ run, panels }) => panels.filter((panel) => panel.name === name).map((panel) => ({ run, panel })));
    return windowChart(stage, deployment, name, own);
  });
}

function windowChart(stage, deployment, name, own) {
  const [{ panel: first }] = own;
  const lines = own.map(({ run, panel }) => {
    const line = panel.lines[panel.lines.length - 1];
    return { ...line, name: run.letter, end: run.end, ...RUN_LINES[run.index] };
  });
  const chart = new WindowsPanel(stage, canvasOf(`window-${name}`, deployment.index), { ...first, lines, limits: limitsOf(own) });
  const below = canvasOf(`window-${name}-difference`, deployment.index);
  if (!below) return [chart];
  const [base, ...others] = lines, inView = (series) => chart.visible(series);
  return [chart, new DifferencePanel(stage, below, { title: `${first.title}: difference`, base, others, unit: first.unit, inView })];
}

// An objective is one line, whatever it came to in each run; a window that missed it says in which.
function limitsOf(own) {
  return own[0].panel.limits.map((limit, place) => {
    const each = own.map(({ run, panel }) => ({ run, limit: panel.limits[place] })).filter((found) => found.limit);
    return {
      ...limit,
      held: each.every((found) => found.limit.held),
      verdict: each.map((found) => `${found.run.letter} ${found.limit.held ? "held" : "missed"}`).join(", "),
      missed: each.flatMap((found) => found.limit.missed.map((span) => ({ ...span, letter: found.run.letter }))),
    };
  });
}
