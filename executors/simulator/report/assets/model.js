// What a run was, decoded into lanes of segments. Times are seconds from here on.

const SERVING = new Set(["running", "moving", "reconfiguring"]);

function readModel(data) {
  const model = {
    end: Math.max(data.end / 1000, 0.001),
    busiest: data.busiest === null ? null : data.busiest / 1000,
    nodes: data.nodes,
    deployments: data.deployments.map((each, index) => readDeployment(each, index, data)),
    outages: data.outages.map(([node, kind, since, until]) => ({
      node, kind: ["down", "partition", "controller down"][kind], since: since / 1000, until: until / 1000,
    })),
    rows: data.rows.map((row, index) => readRow(row, index, data.deployments)),
    leftOut: data.left_out,
  };
  model.controllerOutages = model.outages.filter((outage) => outage.kind === "controller down");
  model.nodeLanes = nodeLanes(model);
  return model;
}

function readDeployment(raw, index, data) {
  const replicas = raw.replicas.map((short, number) => ({
    id: short.startsWith("#") ? raw.name + short : short,
    label: short.startsWith("#") ? short.slice(1) : short,
    node: raw.places[number],
    colour: 0,
  }));
  const lanes = raw.holds.map((flat, rank) => readLane(flat, raw.gaps[rank], rank, replicas, data.phases));
  colourReplicas(lanes, replicas);
  return {
    index, name: raw.name, replicas, lanes,
    sizes: raw.sizes.map(([since, size]) => ({ since: since / 1000, size })),
    series: Object.fromEntries(Object.entries(raw.series).map(([name, columns]) => [name, readSeries(columns)])),
    leftOut: raw.left_out,
  };
}

function readLane(flat, flatGaps, rank, replicas, phases) {
  const segments = [], gaps = [];
  for (let i = 0, end = 0; i < flat.length; i += 4) {
    const since = end + flat[i];
    end = since + flat[i + 1];
    const phase = phases[flat[i + 3]];
    segments.push({
      rank, since: since / 1000, until: end / 1000, replica: replicas[flat[i + 2]], phase,
      serving: SERVING.has(phase), beside: false,
    });
  }
  for (let i = 0, end = 0; i < flatGaps.length; i += 2) {
    const since = end + flatGaps[i];
    end = since + flatGaps[i + 1];
    gaps.push({ rank, since: since / 1000, until: end / 1000 });
  }
  segments.sort((a, b) => a.since - b.since || a.until - b.until);
  markBeside(segments);
  const changed = segments.some((segment) => segment.replica !== segments[0].replica || segment.phase === "moving");
  return { rank, segments, gaps, longest: longestOf(segments), eventful: changed || gaps.length > 0 };
}

// Who starts or drains while another serves the same rank is drawn in the lower part of the lane.
function markBeside(segments) {
  let servedUntil = -1;
  for (const segment of segments) {
    if (segment.serving) servedUntil = Math.max(servedUntil, segment.until);
    else if (segment.since < servedUntil - 1e-6) segment.beside = true;
  }
  let servedFrom = Infinity;
  for (const segment of [...segments].reverse()) {
    if (segment.serving) servedFrom = segment.since;
    else if (segment.until > servedFrom + 1e-6) segment.beside = true;
  }
}

// A replica keeps its colour wherever it goes; whoever follows on a lane, or runs beside it, has another one if possible.
function colourReplicas(lanes, replicas) {
  const first = new Map();
  for (const lane of lanes) for (const segment of lane.segments) {
    const known = first.get(segment.replica);
    if (known === undefined || segment.since < known.since) first.set(segment.replica, segment);
  }
  const last = [];
  for (const segment of [...first.values()].sort((a, b) => a.since - b.since || a.rank - b.rank)) {
    const taken = new Set([last[segment.rank], last[segment.rank - 1], last[segment.rank + 1]]);
    let colour = segment.rank % COLOURS;
    for (let tries = 0; tries < COLOURS && taken.has(colour); tries++) colour = (colour + 1) % COLOURS;
    segment.replica.colour = last[segment.rank] = colour;
  }
}

// What stood on each node, replica by replica, in as many rows as there were replicas at once.
function nodeLanes(model) {
  const lanes = model.nodes.map((id, node) => ({ id, node, stays: [], rows: 0, outages: [], eventful: false }));
  for (const outage of model.outages) if (outage.node >= 0) lanes[outage.node].outages.push(outage);
  for (const stay of staysOf(model)) lanes[stay.replica.node].stays.push(stay);
  for (const lane of lanes) {
    lane.stays.sort((a, b) => a.since - b.since || (a.replica.id < b.replica.id ? -1 : 1));
    const rowsFree = [];
    for (const stay of lane.stays) {
      let row = rowsFree.findIndex((free) => free <= stay.since + 1e-6);
      if (row < 0) row = rowsFree.length;
      rowsFree[row] = stay.until;
      stay.row = row;
    }
    lane.rows = rowsFree.length;
    lane.eventful = lane.outages.length > 0;
  }
  return lanes;
}

function staysOf(model) {
  const stays = new Map();
  for (const deployment of model.deployments) for (const lane of deployment.lanes) for (const segment of lane.segments) {
    if (segment.replica.node < 0 || segment.phase === "waiting for room") continue;
    const stay = stays.get(segment.replica);
    if (stay === undefined) {
      stays.set(segment.replica, { deployment, replica: segment.replica, since: segment.since, until: segment.until, parts: [segment] });
    } else {
      stay.since = Math.min(stay.since, segment.since);
      stay.until = Math.max(stay.until, segment.until);
      stay.parts.push(segment);
    }
  }
  return stays.values();
}
