// What a run was, decoded into lanes of memory. Times are seconds, sizes GB from here on.

function readMemoryModel(data) {
  const models = data.deployments.map((each, index) => ({ ...each, index }));
  const replicas = data.replicas.map(([short, model]) => ({
    id: /^[#@]/.test(short) ? models[model].name + short : short, model: models[model],
  }));
  const outages = data.outages.map(([node, since, until]) => ({ node, since: since / 1000, until: until / 1000 }));
  const nodes = data.nodes.map(([id, kind, gpus, cpu], index) => ({ id, kind, gpus, cpu, outages: outages.filter((each) => each.node === index) }));
  return {
    end: Math.max(data.end / 1000, 0.001),
    busiest: data.busiest === null ? null : data.busiest / 1000,
    deployments: models,
    nodes,
    lanes: nodes.flatMap((node, index) => lanesOf(node, data.spans[index], replicas, data.phases)),
    controllerOutages: outages.filter((each) => each.node === -1),
    series: Object.fromEntries(Object.entries(data.series).map(([name, columns]) => [name, readSeries(columns)])),
    rows: data.rows.map((row, index) => readRow(row, index, data.deployments)),
    leftOut: data.left_out,
  };
}

// A lane for each GPU, and one for the CPU cache if there is any.
function lanesOf(node, spans, replicas, phases) {
  const sizes = [...node.gpus, node.cpu];
  return sizes.flatMap((size, gpu) => {
    const cache = gpu === node.gpus.length;
    if (cache && size === 0) return [];
    const segments = readSpans(spans[gpu], replicas, phases);
    return [{
      id: `${node.id} ${cache ? "CPU" : `GPU ${gpu}`}`, node, gpu, cache, capacity: size / 1000, segments, gaps: node.outages,
      pieces: stacked(segments), longest: 0, eventful: segments.length > 1 || node.outages.length > 0, first: gpu === 0,
    }];
  }).map((lane) => ({ ...lane, longest: longestOf(lane.pieces) }));
}

function readSpans(flat, replicas, phases) {
  const found = [];
  for (let i = 0; i < flat.length; i += 5) {
    const [since, length, replica, megabytes, phase] = flat.slice(i, i + 5);
    found.push({ since: since / 1000, until: (since + length) / 1000, replica: replicas[replica], size: megabytes / 1000, phase: phases[phase] });
  }
  return found;
}

// One on top of the other, in the order in which they came; who leaves lets those above come down. A piece is a span as long
// as it lies at one height: [low, high] in GB.
function stacked(spans) {
  const changes = [...new Set(spans.flatMap((span) => [span.since, span.until]))].sort((a, b) => a - b);
  const pieces = [], open = new Map();
  let next = 0, there = [];
  for (const time of changes) {
    there = there.filter((span) => span.until > time);
    for (; next < spans.length && spans[next].since <= time; next++) if (spans[next].until > time) there = joined(there, spans[next]);
    let low = 0;
    const still = new Set();
    for (const span of there) {
      const piece = open.get(span.replica);
      if (piece === undefined || piece.low !== low || piece.span !== span) {
        if (piece !== undefined) piece.until = time;
        const begun = { since: time, until: span.until, low, high: low + span.size, span };
        open.set(span.replica, begun);
        pieces.push(begun);
      }
      still.add(span.replica);
      low += span.size;
    }
    for (const [replica, piece] of open) if (!still.has(replica)) { piece.until = Math.min(piece.until, time); open.delete(replica); }
  }
  return pieces.filter((piece) => piece.until > piece.since);
}

// Who changes only what it does stays where it is.
function joined(there, span) {
  const before = there.findIndex((each) => each.replica === span.replica);
  return before < 0 ? [...there, span] : there.map((each, place) => (place === before ? span : each));
}
