// Two to four runs on one time axis: each decoded as on a page of its own, and what they have in common.

function readTogether(data) {
  const runs = data.runs.map((each, index) => ({ ...readModel({ ...each, rows: [] }), index, letter: each.letter, called: `run ${each.letter}` }));
  const rows = data.rows.map(([letters, ...row], index) => ({
    ...readRow(row, index, data.deployments.map((name) => ({ name }))), letters, only: letters.length < runs.length ? `only ${[...letters].join(", ")}` : "",
  }));
  for (const run of runs) run.deployments.forEach((each, place) => { each.windows = data.runs[run.index].windows[place]; });
  for (const run of runs) run.rows = rows.filter((row) => row.letters.includes(run.letter));
  const deployments = data.deployments.map((name, index) => ({ index, name, runs: runs.map((run) => run.deployments.find((each) => each.name === name) ?? null) }));
  const first = Math.min(...runs.map((run) => run.end));
  for (const { runs: found } of deployments) markDifferent(found.map((each) => each?.lanes ?? []), first);
  markDifferent(runs.map((run) => run.nodeLanes), first);
  const end = Math.max(...runs.map((run) => run.end));
  return { end, runs, deployments, rows, limits: data.limits, controllerOutages: outagesOfAll(runs), leftOut: data.left_out };
}

// Of runs that differ in lanes, the eventful ones are those that differ; where all are the same, they are as on a page of one.
// That one run ended before another, at `first`, is no difference of what was there until then.
function markDifferent(lanesOfRuns, first) {
  const most = Math.max(...lanesOfRuns.map((lanes) => lanes.length)), different = [];
  for (let place = 0; place < most; place++) {
    const looks = new Set(lanesOfRuns.map((lanes) => (lanes[place] ? lookOf(lanes[place], first) : "")));
    different.push(looks.size > 1);
  }
  if (!different.includes(true)) return;
  for (const lanes of lanesOfRuns) lanes.forEach((lane, place) => { lane.eventful = different[place]; });
}

// All that is drawn of a lane, to be compared.
function lookOf(lane, first) {
  const spans = [...(lane.segments ?? lane.stays), ...(lane.gaps ?? lane.outages)];
  return spans.map((span) => [span.since, span.since < first ? Math.min(span.until, first) : span.until, span.replica?.id, span.phase ?? span.kind, span.row].join()).join(";");
}

// Times without a controller in every run: those of some are in their lanes only.
function outagesOfAll([first, ...others]) {
  const has = (run, { since, until }) => run.controllerOutages.some((each) => each.since === since && each.until === until);
  return first.controllerOutages.filter((outage) => others.every((run) => has(run, outage)));
}
