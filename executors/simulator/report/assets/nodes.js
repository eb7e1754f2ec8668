// One lane for each node: what stood there, and when it was away.

const NODE_HEIGHT = { min: 2, max: 26, budget: 260, most: 1600 };

class NodePanel {
  constructor(stage, canvas) {
    this.stage = stage;
    this.canvas = canvas;
    this.stretch = 1;
    this.top = 4;
    this.only(false);
  }

  only(eventful) {
    this.lanes = this.stage.model.nodeLanes.filter((lane) => !eventful || lane.eventful);
    this.most = Math.max(1, ...this.lanes.map((lane) => lane.rows));
  }

  get laneHeight() { return laneHeight(this.lanes.length, this.stretch, NODE_HEIGHT); }
  get height() { return this.top + Math.max(12, this.lanes.length * this.laneHeight) + 4; }

  draw() {
    const { stage } = this, { ink } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    const height = this.laneHeight, inset = height >= 8 ? 1.5 : height >= 4 ? 0.5 : 0;
    context.fillStyle = ink.of.lane;
    this.lanes.forEach((_, index) => {
      context.fillRect(stage.gutter, this.top + index * height + inset, stage.plot, height - 2 * inset);
    });
    stage.backdrop(context, this.top, this.height - 4);
    this.lanes.forEach((lane, index) => this.lane(context, lane, this.top + index * height + inset, height - 2 * inset));
    stage.pinLines(context, this.top, this.height - 4);
    context.restore();
    this.labels(context, height);
  }

  lane(context, lane, y, h) {
    const row = h / this.most;
    for (const stay of lane.stays) {
      const cut = this.stage.cut(stay.since, stay.until);
      if (cut === null) continue;
      context.fillStyle = this.stage.ink.replica[stay.replica.colour];
      const width = Math.max(0.7, cut[1] - cut[0] - (cut[1] - cut[0] > 6 ? 1 : 0));
      if (row >= 2) context.fillRect(cut[0], y + stay.row * row, width, row - (row >= 4 ? 1 : 0));
      else faded(context, 0.8 / Math.sqrt(this.most), () => context.fillRect(cut[0], y, width, h));
    }
    for (const outage of lane.outages) this.outage(context, outage, y, h);
  }

  outage(context, outage, y, h) {
    const cut = this.stage.cut(outage.since, outage.until);
    if (cut === null) return;
    const { ink } = this.stage, down = outage.kind === "down";
    const colour = down ? ink.of.bad : ink.of.moving;
    const x = Math.min(cut[0], this.stage.right - 2), width = Math.max(2, cut[1] - cut[0]);
    context.fillStyle = colour;
    if (width < 5 || h < 3) {
      context.fillRect(x, y, width, h);
      return;
    }
    faded(context, down ? 0.2 : 0.28, () => context.fillRect(x, y, width, h));
    faded(context, 0.8, () => {
      context.fillStyle = ink.stripes(context, colour, null, down ? 8 : 6, down ? 2 : 1.2, !down);
      context.fillRect(x, y, width, h);
    });
    context.fillStyle = colour;
    context.fillRect(x, y, 2, h);
    const text = h >= 12 ? fitting(context, [`${down ? "down" : "cut off"} for ${duration(outage.until - outage.since)}`, down ? "down" : "cut off"], width - 16) : "";
    if (!text) return;
    context.fillStyle = ink.of.card;
    context.fillRect(x + 5, y + h / 2 - 7, context.measureText(text).width + 8, 14);
    context.fillStyle = ink.of.ink;
    context.fillText(text, x + 9, y + h / 2 + 0.5);
  }

  labels(context, height) {
    const { ink, gutter } = this.stage;
    context.fillStyle = ink.of.soft;
    context.textAlign = "right";
    const every = [1, 2, 5, 10, 20, 50, 100].find((step) => step * height >= 12) ?? 200;
    this.lanes.forEach((lane, index) => {
      if (index % every) return;
      const tail = /[^-_.\s]*$/.exec(lane.id)[0];
      const text = fitting(context, [lane.id, `\u2026${lane.id.slice(-6)}`, tail], gutter - 14);
      context.fillText(text, gutter - 10, this.top + (index + 0.5) * height + 0.5);
    });
    context.textAlign = "left";
    if (!this.lanes.length) context.fillText(this.stage.model.called ? "no node that differs" : "nothing happened to any node", gutter + 8, this.height / 2);
  }

  laneAt(y) { return this.lanes[Math.floor((y - this.top) / this.laneHeight)] ?? null; }
  yOf(lane) { return this.top + (this.lanes.indexOf(lane) + 0.5) * this.laneHeight; }

  hit(x, y) {
    const lane = this.laneAt(y);
    if (lane === null) return null;
    return this.tell(lane, this.stage.time(x), (this.stage.view.span / this.stage.plot) * 1.5);
  }

  tell(lane, time, slack = 0) {
    const lines = [];
    for (const outage of lane.outages) {
      if (outage.since > time + slack || outage.until < time - slack) continue;
      lines.push([outage.kind === "down" ? "down" : "cut off", `${moment(outage.since)} to ${moment(outage.until)}, ${duration(outage.until - outage.since)}`]);
    }
    const there = lane.stays.filter((stay) => stay.since <= time && stay.until > time);
    for (const stay of there.slice(0, 8)) {
      const part = stay.parts.find((segment) => segment.since <= time && segment.until > time);
      lines.push([stay.replica.id, part ? `rank ${part.rank}, ${part.phase}` : ""]);
    }
    if (there.length > 8) lines.push(["", `and ${there.length - 8} more`]);
    if (!lines.length) lines.push(["", "empty"]);
    return {
      title: lane.id, subtitle: [this.stage.model.called, "node"].filter(Boolean).join(", "), lines, lane,
      attributes: { node: lane.id, replica: there.map((stay) => stay.replica.id).join(" "), down: lines[0][0] === "down" },
    };
  }
}
