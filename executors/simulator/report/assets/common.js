// What the models of all pages are decoded with. Times are seconds from here on.

const GROUPS = {
  fault: "faults",
  change: "changes",
  controller: "controller",
  status: "status",
  decision: "decisions",
  routine: "what follows",
};
const COLOURS = 6;

function runData() { return JSON.parse(document.getElementById("run-data").textContent); }

function readRow([at, until, group, deployment, what, whom, ranks, text, rule], index, deployments) {
  return {
    index, at: at / 1000, until: until === null ? null : until / 1000, group, deployment,
    name: deployment < 0 ? "" : deployments[deployment].name, what, whom, ranks, text, rule,
  };
}

function readSeries(columns) {
  const width = columns.width / 1000;
  return columns.at.map((at, i) => ({
    since: at * width, until: (at + 1) * width,
    low: columns.low[i], mean: columns.mean[i], high: columns.high[i], count: columns.count[i],
  }));
}

function longestOf(segments) {
  return segments.reduce((most, segment) => Math.max(most, segment.until - segment.since), 0);
}

// The first of some spans, sorted by `since`, that may reach beyond a time; `longest` bounds how far back it can begin.
function firstReaching(spans, time, longest) {
  let low = 0, high = spans.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].since < time - longest) low = middle + 1;
    else high = middle;
  }
  return low;
}

function sizeAt(deployment, time) {
  let size = 0;
  for (const step of deployment.sizes) if (step.since <= time) size = step.size;
  return size;
}

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}
