// One lane for each GPU, as high as its memory: who held how much of it when. Below those of a node, its CPU cache.

const MEMORY_HEIGHT = { min: 2, max: 34, budget: 1100, most: 3200 };
const NODE_GAP = 7;
const MEMORY_WORDS = {
  loading: "loading: its weights are on their way",
  hot: "HOT: answers requests",
  leaving: "leaving: finishes what it has, takes nothing new",
  warm: "WARM: a copy of its weights",
};

class MemoryPanel {
  constructor(stage, canvas) {
    this.stage = stage;
    this.canvas = canvas;
    this.stretch = 1;
    this.top = 4;
    this.only(false);
  }

  // Show all lanes, or those only where something happened.
  only(eventful) {
    this.lanes = this.stage.model.lanes.filter((lane) => !eventful || lane.eventful);
    this.offsets = new Map();
    let gaps = 0;
    this.lanes.forEach((lane, index) => {
      if (index > 0 && this.lanes[index - 1].node !== lane.node) gaps++;
      this.offsets.set(lane, { index, gaps });
    });
    this.gaps = gaps;
  }

  get laneHeight() { return laneHeightOf(this.lanes.length, this.stretch); }
  get height() { return this.top + Math.max(12, this.lanes.length * this.laneHeight + this.gaps * NODE_GAP) + 4; }

  yTop(lane) {
    const { index, gaps } = this.offsets.get(lane);
    return this.top + index * this.laneHeight + gaps * NODE_GAP;
  }

  yOf(lane) { return this.yTop(lane) + this.laneHeight / 2; }

  draw() {
    const { stage } = this, { ink } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    const height = this.laneHeight, inset = height >= 8 ? 1 : height >= 4 ? 0.5 : 0;
    context.fillStyle = ink.of.lane;
    for (const lane of this.lanes) context.fillRect(stage.gutter, this.yTop(lane) + inset, stage.plot, height - 2 * inset);
    stage.backdrop(context, this.top, this.height - 4);
    for (const lane of this.lanes) this.lane(context, lane, this.yTop(lane) + inset, height - 2 * inset);
    stage.pinLines(context, this.top, this.height - 4);
    context.restore();
    this.labels(context, height);
  }

  lane(context, lane, y, h) {
    const { view } = this.stage, { pieces } = lane;
    for (let i = firstReaching(pieces, view.since, lane.longest); i < pieces.length && pieces[i].since <= view.until; i++) {
      this.piece(context, lane, pieces[i], y, h);
    }
    for (const outage of lane.gaps) this.outage(context, outage, y, h);
  }

  piece(context, lane, piece, y, h) {
    const cut = this.stage.cut(piece.since, piece.until);
    if (cut === null) return;
    const { ink } = this.stage, { span } = piece, colour = ink.replica[span.replica.model.colour];
    const high = y + h - (Math.min(piece.high, lane.capacity) / lane.capacity) * h, low = y + h - (piece.low / lane.capacity) * h;
    const width = Math.max(0.7, cut[1] - cut[0]), tall = Math.max(0.7, low - high - (low - high > 5 ? 1 : 0));
    if (span.phase === "hot") {
      context.fillStyle = colour;
      context.fillRect(cut[0], high, width, tall);
    } else {
      faded(context, { loading: 0.22, leaving: 0.45, warm: 0.4 }[span.phase], () => {
        context.fillStyle = colour;
        context.fillRect(cut[0], high, width, tall);
      });
      if (span.phase !== "warm" && width >= 4 && tall >= 3) {
        faded(context, 0.8, () => {
          context.fillStyle = ink.stripes(context, span.phase === "leaving" ? ink.of.card : colour, null, 6, 2, span.phase === "leaving");
          context.fillRect(cut[0], high, width, tall);
        });
      }
    }
    if (tall < 11 || width < 26) return;
    const text = fitting(context, [span.replica.id, span.replica.model.name], width - 10);
    context.fillStyle = span.phase === "hot" ? ink.on(colour) : ink.of.ink;
    if (text) context.fillText(text, cut[0] + 5, high + tall / 2 + 0.5);
  }

  outage(context, outage, y, h) {
    const cut = this.stage.cut(outage.since, outage.until);
    if (cut === null) return;
    const { ink } = this.stage, width = Math.max(2, cut[1] - cut[0]);
    faded(context, 0.24, () => {
      context.fillStyle = ink.of.bad;
      context.fillRect(cut[0], y, width, h);
    });
    faded(context, 0.8, () => {
      context.fillStyle = width < 5 || h < 3 ? ink.of.bad : ink.stripes(context, ink.of.bad, null, 8, 2);
      context.fillRect(cut[0], y, width, h);
    });
  }

  // The name of a node at its first lane, and the number of each GPU where there is room.
  labels(context, height) {
    const { ink, gutter } = this.stage;
    context.textAlign = "right";
    this.lanes.forEach((lane, index) => {
      const first = index === 0 || this.lanes[index - 1].node !== lane.node, y = this.yOf(lane) + 0.5;
      if (height < 9 && !first) return;
      const name = lane.cache ? "CPU" : String(lane.gpu);
      context.fillStyle = lane.cache ? ink.of.faint : ink.of.soft;
      if (height >= 9) context.fillText(name, gutter - 8, y);
      if (!first) return;
      context.fillStyle = ink.of.ink;
      const { id } = lane.node, tail = /[^-_.\s]*$/.exec(id)[0];
      const text = fitting(context, [id, `\u2026${id.slice(-6)}`, tail, `\u2026${id.slice(-4)}`], gutter - (height >= 9 ? 24 : 10));
      context.fillText(text, gutter - (height >= 9 ? 20 : 8), y);
    });
    context.textAlign = "left";
    if (!this.lanes.length) context.fillText("nothing happened on any GPU", gutter + 8, this.height / 2);
  }

  laneAt(y) { return this.lanes.find((lane) => y >= this.yTop(lane) && y < this.yTop(lane) + this.laneHeight) ?? null; }

  hit(x, y) {
    const lane = this.laneAt(y);
    if (lane === null) return null;
    const height = this.laneHeight, at = (1 - (y - this.yTop(lane)) / height) * lane.capacity;
    return this.tell(lane, this.stage.time(x), at);
  }

  // What there is to say of a lane at a time: the piece that is pointed at first, or the one that holds most.
  tell(lane, time, at = null) {
    const there = lane.pieces.filter((piece) => piece.since <= time && piece.until > time);
    const used = there.reduce((sum, piece) => sum + piece.span.size, 0);
    const pointed = there.find((piece) => at !== null && piece.low <= at && piece.high > at);
    const order = [...there].sort((a, b) => Number(b === pointed) - Number(a === pointed) || b.span.size - a.span.size);
    const down = lane.gaps.find((outage) => outage.since <= time && outage.until > time);
    const lines = [[lane.cache ? "kept" : "held", `${gigabytes(used)} of ${gigabytes(lane.capacity)}`]];
    if (down) lines.unshift(["down", `${moment(down.since)} to ${moment(down.until)}`]);
    for (const { span } of order.slice(0, 8)) lines.push([gigabytes(span.size), `${span.replica.id}, ${span.phase}`]);
    if (order.length > 8) lines.push(["", `and ${order.length - 8} more`]);
    const first = order[0]?.span;
    if (first) {
      lines.push(["", `${first.replica.id} is ${MEMORY_WORDS[first.phase]}, from ${moment(first.since)} to ${moment(first.until)} (${duration(first.until - first.since)})`]);
    }
    return {
      title: lane.id, subtitle: lane.node.kind, lines, lane,
      attributes: {
        lane: lane.id, node: lane.node.id, used: used.toFixed(3), replica: first?.replica.id ?? "", phase: first?.phase ?? "",
        replicas: there.map((piece) => piece.span.replica.id).join(" "), down: down !== undefined,
      },
    };
  }
}

function laneHeightOf(count, stretch) {
  const { min, max, budget, most } = MEMORY_HEIGHT;
  const height = Math.max(min, Math.min(max, budget / Math.max(1, count))) * stretch;
  return Math.min(height, Math.max(min, most / Math.max(1, count)));
}

function gigabytes(size) {
  return size >= 1000 ? `${(size / 1000).toFixed(1)} TB` : size >= 10 ? `${size.toFixed(0)} GB` : `${size.toFixed(2)} GB`;
}
