// What the stream has said so far: who held which rank, numbers along the time, nodes, notes. Times are wall seconds.

const KEPT_S = 600;
const NOTES_KEPT = 300;
const SERVES = new Set(["running", "moving", "reconfiguring"]);

class LiveModel {
  constructor() { this.reset(); }

  reset() {
    this.now = null;
    this.first = null;  // when the oldest sample was taken
    this.problem = null;
    this.deployments = new Map();
    this.nodes = [];
    this.gone = new Map();  // nodes that were there: id -> { since, node }
    this.outages = [];      // the controller did not answer: { since, until }
    this.notes = [];
    this.nodesChanged = true;
  }

  past({ samples }) {
    this.reset();
    for (const sample of samples) this.apply(sample);
  }

  apply(sample) {
    const at = sample.at;
    this.problem = sample.problem;
    const outage = this.outages[this.outages.length - 1];
    if (sample.problem !== null) {
      if (outage !== undefined && outage.until === null) outage.last = at;
      else this.outages.push({ since: this.now ?? at, until: null, last: at });
    } else {
      if (outage !== undefined) outage.until ??= at;
      for (const [name, said] of Object.entries(sample.deployments)) this.deployment(name).apply(said, at);
      for (const [name, deployment] of this.deployments) if (!(name in sample.deployments)) deployment.leave(at);
    }
    if (sample.nodes !== undefined) this.applyNodes(sample.nodes, at);
    for (const note of sample.notes ?? []) this.notes.push({ ...note, seen: at });
    if (sample.missed) this.notes.push({ seen: at, missed: sample.missed });
    if (this.notes.length > NOTES_KEPT) this.notes.splice(0, this.notes.length - NOTES_KEPT);
    this.first ??= at;
    this.now = at;
    this.forget(at - KEPT_S);
  }

  deployment(name) {
    if (!this.deployments.has(name)) this.deployments.set(name, new LiveDeployment(name));
    return this.deployments.get(name);
  }

  applyNodes(nodes, at) {
    const there = new Set(nodes.map((node) => node.id));
    for (const node of this.nodes) if (!there.has(node.id)) this.gone.set(node.id, { since: at, node });
    for (const id of there) this.gone.delete(id);
    this.nodes = nodes;
    this.nodesChanged = true;
  }

  forget(before) {
    for (const [name, deployment] of this.deployments) {
      deployment.forget(before);
      if (deployment.left !== null && deployment.left < before) this.deployments.delete(name);
    }
    for (const [id, { since }] of this.gone) if (since < before) this.gone.delete(id);
    this.outages = this.outages.filter((outage) => (outage.until ?? outage.last) >= before);
  }

  get there() {
    return [...this.deployments.values()].filter((each) => each.left === null).sort((a, b) => a.name.localeCompare(b.name));
  }
}

class LiveDeployment {
  constructor(name) {
    this.name = name;
    this.said = null;
    this.left = null;      // when it was gone
    this.replicas = [];
    this.workers = [];
    this.lanes = new Map();  // rank -> segments
    this.open = new Map();   // replica id -> its segment that goes on
    this.gaps = new Map();   // rank -> spans without a replica that serves
    this.colours = new Map();
    this.points = [];
    this.changed = true;
  }

  apply(said, at) {
    this.left = null;
    this.said = said;
    if (said.replicas !== undefined) this.hold(said.replicas, at);
    if (said.workers !== undefined) this.workers = said.workers;
    if (said.replicas !== undefined || said.workers !== undefined) this.changed = true;
    const { waiting, in_flight, rate, p50, p99, target } = said;
    this.points.push({ t: at, waiting, in_flight, rate, p50, p99, target });
    this.judge(at);
  }

  hold(replicas, at) {
    this.replicas = replicas;
    const ranked = new Map(replicas.filter((each) => each[0] !== null).map((each) => [each[1], each]));
    for (const [id, segment] of this.open) {
      const each = ranked.get(id);
      if (each !== undefined && each[0] === segment.rank && each[2] === segment.node && each[3] === segment.phase) continue;
      segment.until = at;
      this.open.delete(id);
    }
    for (const [id, [rank, , node, phase, message]] of ranked) {
      if (this.open.has(id)) continue;
      const segment = { rank, node, phase, message, since: at, until: null, serving: SERVES.has(phase), replica: this.replica(id, rank) };
      this.open.set(id, segment);
      this.lane(rank).push(segment);
    }
    for (const lane of this.lanes.values()) this.besides(lane);
  }

  // Of two replicas with one rank at once, the one that does not serve is drawn below the other.
  besides(lane) {
    const open = lane.filter((segment) => segment.until === null);
    for (const segment of open) segment.beside = open.length > 1 && !segment.serving && open.some((each) => each.serving);
  }

  lane(rank) {
    if (!this.lanes.has(rank)) this.lanes.set(rank, []);
    return this.lanes.get(rank);
  }

  replica(id, rank) {
    if (!this.colours.has(id)) {
      const lane = this.lane(rank), before = lane.length ? lane[lane.length - 1].replica.colour : rank - 1;
      this.colours.set(id, (before + 1 + COLOURS) % COLOURS);
    }
    return { id, label: id.slice(id.lastIndexOf("#") + 1), colour: this.colours.get(id) };
  }

  judge(at) {
    const served = new Set([...this.open.values()].filter((each) => each.serving).map((each) => each.rank));
    const size = this.said.target;
    for (let rank = 0; rank < size; rank++) if (!served.has(rank)) this.vacant(rank, at);
    for (const [rank, gaps] of this.gaps) {
      const last = gaps[gaps.length - 1];
      if (last.until === null && (served.has(rank) || rank >= size)) last.until = at;
    }
    this.served = [...served].filter((rank) => rank < size).length;
  }

  vacant(rank, at) {
    if (!this.gaps.has(rank)) this.gaps.set(rank, []);
    const gaps = this.gaps.get(rank);
    if (!gaps.length || gaps[gaps.length - 1].until !== null) gaps.push({ since: at, until: null });
  }

  leave(at) {
    if (this.left !== null) return;
    this.left = at;
    this.hold([], at);
    for (const gaps of this.gaps.values()) for (const gap of gaps) gap.until ??= at;
  }

  forget(before) {
    for (const [rank, lane] of this.lanes) {
      const kept = lane.filter((segment) => segment.until === null || segment.until >= before);
      if (kept.length) this.lanes.set(rank, kept);
      else this.lanes.delete(rank);
    }
    for (const [rank, gaps] of this.gaps) {
      const kept = gaps.filter((gap) => gap.until === null || gap.until >= before);
      if (kept.length) this.gaps.set(rank, kept);
      else this.gaps.delete(rank);
    }
    const first = this.points.findIndex((point) => point.t >= before);
    if (first > 0) this.points.splice(0, first);
    const there = new Set([...this.lanes.values()].flatMap((lane) => lane.map((segment) => segment.replica.id)));
    for (const id of this.colours.keys()) if (!there.has(id)) this.colours.delete(id);
  }

  // The ranks that have a lane, wanted ones first; a prediction may bring more.
  ranks(more = 0) {
    const found = new Set(this.lanes.keys());
    for (let rank = 0; rank < Math.max(this.said?.target ?? 0, more); rank++) found.add(rank);
    return [...found].sort((a, b) => a - b);
  }

  holderOf(rank) {
    const open = [...this.open.values()].filter((each) => each.rank === rank);
    return open.find((each) => each.serving) ?? open[0] ?? null;
  }
}
