// One lane for each rank, coloured by the replica that holds it.

const LANE_HEIGHT = { min: 1, max: 22, budget: 420, most: 2400 };

function laneHeight(count, stretch, { min, max, budget, most }) {
  const height = Math.max(min, Math.min(max, budget / Math.max(1, count))) * stretch;
  return Math.min(height, Math.max(min, most / Math.max(1, count)));
}

class RankPanel {
  constructor(stage, deployment, canvas) {
    this.stage = stage;
    this.deployment = deployment;
    this.canvas = canvas;
    this.stretch = 1;
    this.top = 4;
    this.only(false);
  }

  // Show all lanes, or those only where something happened.
  only(eventful) {
    this.lanes = this.deployment.lanes.filter((lane) => !eventful || lane.eventful);
  }

  get laneHeight() { return laneHeight(this.lanes.length, this.stretch, LANE_HEIGHT); }
  get height() { return this.top + Math.max(12, this.lanes.length * this.laneHeight) + 4; }

  // Where the lanes of the ranks below a world size end.
  boundary(size) {
    const index = this.lanes.findIndex((lane) => lane.rank >= size);
    return this.top + (index < 0 ? this.lanes.length : index) * this.laneHeight;
  }

  draw() {
    const { stage } = this, { ink, view } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    this.wanted(context);
    stage.backdrop(context, this.top, this.height - 4);
    const height = this.laneHeight, inset = height >= 10 ? 1.5 : height >= 5 ? 0.5 : 0;
    this.lanes.forEach((lane, index) => {
      const y = this.top + index * height + inset, h = Math.max(0.8, height - 2 * inset);
      for (const gap of lane.gaps) if (gap.until >= view.since && gap.since <= view.until) this.gap(context, lane, gap, y, h);
      let covered = -1;
      for (let i = firstReaching(lane.segments, view.since, lane.longest); i < lane.segments.length; i++) {
        const segment = lane.segments[i];
        if (segment.since > view.until) break;
        covered = this.segment(context, segment, y, h, covered);
      }
      for (const gap of lane.gaps) if (gap.until >= view.since && gap.since <= view.until) this.gapFrame(context, gap, y, h);
    });
    this.boundaryLine(context);
    stage.pinLines(context, this.top, this.height - 4);
    context.restore();
    this.labels(context, height);
  }

  wanted(context) {
    const { sizes } = this.deployment, { ink } = this.stage;
    context.fillStyle = ink.of.lane;
    sizes.forEach((step, index) => {
      const cut = this.stage.cut(step.since, sizes[index + 1]?.since ?? this.stage.model.end);
      if (cut) context.fillRect(cut[0], this.top, cut[1] - cut[0], this.boundary(step.size) - this.top);
    });
  }

  boundaryLine(context) {
    const { sizes } = this.deployment, { ink } = this.stage;
    context.strokeStyle = context.fillStyle = ink.of.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    sizes.forEach((step, index) => {
      const x = this.stage.x(step.since), y = this.boundary(step.size) + 1;
      if (index === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
      context.lineTo(this.stage.x(sizes[index + 1]?.since ?? this.stage.model.end), y);
    });
    context.stroke();
  }

  gap(context, lane, gap, y, h) {
    const { ink } = this.stage;
    const cut = this.stage.cut(gap.since, gap.until);
    const x = Math.min(cut[0], this.stage.right - 2), width = Math.max(2, cut[1] - cut[0]);
    context.fillStyle = ink.of.bad;
    if (width < 5 || h < 4) {
      context.fillRect(x, y, width, h);
      return;
    }
    faded(context, 0.24, () => context.fillRect(x, y, width, h));
    const next = lane.segments.find((segment) => segment.since >= gap.since - 1e-6 && !segment.serving);
    const free = next === undefined || next.since > gap.until ? width : this.stage.x(next.since) - x;
    if (h >= 11) {
      const text = fitting(context, [`vacant for ${duration(gap.until - gap.since)}`, "vacant"], Math.min(width, free) - 12);
      context.fillText(text, x + 7, y + h / 2 + 0.5);
    }
  }

  // Over what is there: who starts on a vacant rank does not make it served.
  gapFrame(context, gap, y, h) {
    const [x, end] = this.stage.cut(gap.since, gap.until);
    if (end - x < 5 || h < 4) return;
    context.fillStyle = this.stage.ink.of.bad;
    const line = h >= 9 ? 2 : 1;
    context.fillRect(x, y, end - x, line);
    context.fillRect(x, y + h - line, end - x, line);
    context.fillRect(x, y, 2, h);
  }

  // Returns up to which x the lane is painted: what would be less than half a pixel beside that is skipped.
  segment(context, segment, y, h, covered) {
    const cut = this.stage.cut(segment.since, segment.until);
    if (cut === null) return covered;
    const width = cut[1] - cut[0];
    if (width < 0.5 && cut[1] < covered + 0.5) return covered;
    if (segment.beside) { y += h * 0.6; h *= 0.4; }
    const colour = this.stage.ink.replica[segment.replica.colour];
    if (width < 3 || h < 2.5) {
      context.fillStyle = colour;
      faded(context, segment.serving ? 1 : 0.4, () => context.fillRect(cut[0], y, Math.max(0.7, width), h));
    } else {
      paintPhase(context, this.stage.ink, segment, colour, cut[0], y, width - (width > 8 ? 1 : 0), h);
    }
    return Math.max(covered, cut[1]);
  }

  labels(context, height) {
    const { ink } = this.stage;
    context.fillStyle = ink.of.soft;
    context.textAlign = "right";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * height >= 12) ?? 1000;
    this.lanes.forEach((lane, index) => {
      if ((this.lanes.length === this.deployment.lanes.length ? lane.rank : index) % every) return;
      context.fillText(String(lane.rank), this.stage.gutter - 10, this.top + (index + 0.5) * height + 0.5);
    });
    context.textAlign = "left";
    if (!this.lanes.length) context.fillText(this.stage.model.called ? "no rank that differs" : "nothing happened to any rank", this.stage.gutter + 8, this.height / 2);
  }

  laneAt(y) {
    return this.lanes[Math.floor((y - this.top) / this.laneHeight)] ?? null;
  }

  yOf(lane) {
    return this.top + (this.lanes.indexOf(lane) + 0.5) * this.laneHeight;
  }

  hit(x, y) {
    const lane = this.laneAt(y);
    const time = this.stage.time(x), slack = (this.stage.view.span / this.stage.plot) * 1.5;
    return lane === null ? null : this.tell(lane, time, slack);
  }

  // What there is to say of a lane at a time; the shortest of what is within reach of the pointer comes first.
  tell(lane, time, slack = 0) {
    const near = (span) => span.since <= time + slack && span.until >= time - slack;
    const length = (span) => Math.max(span.until - span.since, slack);
    const found = lane.segments.filter(near).sort((a, b) => Number(b.serving) - Number(a.serving) || length(a) - length(b));
    const gap = lane.gaps.filter(near).sort((a, b) => length(a) - length(b))[0];
    const segment = gap === undefined ? found[0] : found.find((each) => !each.serving && each.until >= gap.since) ?? null;
    const lines = [];
    if (gap !== undefined) lines.push(["vacant", `${moment(gap.since)} to ${moment(gap.until)}, ${duration(gap.until - gap.since)}`]);
    if (segment) lines.push(...this.describe(segment));
    else if (gap === undefined) lines.push(["", lane.rank < sizeAt(this.deployment, time) ? "nobody yet" : "not wanted then"]);
    return {
      title: `rank ${lane.rank}`, subtitle: [this.stage.model.called, this.deployment.name].filter(Boolean).join(", "), lines, segment, gap, lane,
      attributes: {
        rank: lane.rank, deployment: this.deployment.name, replica: segment?.replica.id ?? "",
        phase: segment ? segment.phase : gap ? "vacant" : "", node: segment ? this.node(segment) : "",
      },
    };
  }

  node(segment) {
    return segment.replica.node < 0 || segment.phase === "waiting for room" ? "" : this.stage.model.nodes[segment.replica.node];
  }

  describe(segment) {
    const node = this.node(segment);
    return [
      ["replica", segment.replica.id],
      ["state", PHASE_WORDS[segment.phase] ?? segment.phase],
      ...(node ? [["node", node]] : []),
      ["since", moment(segment.since)],
      ["until", `${moment(segment.until)} (${duration(segment.until - segment.since)})`],
    ];
  }
}
