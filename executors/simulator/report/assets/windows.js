// Figures of windows along the time: percentiles of the requests that came in each, limits of objectives as dashed lines, and
// the windows that missed one shaded. A window that had requests and no value is one where it was never: a bar at the top.

// Of each deployment: panels, with series as `SeriesPanel` takes them. Windows without requests are not among them.
function readWindows(raw) {
  return [...raw.panels, ...raw.engine].map((panel) => readWindowPanel({ width: raw.width, at: raw.at, ...panel }));
}

function readWindowPanel(panel) {
  const width = panel.width / 1000;
  return {
    ...panel,
    limits: panel.limits.map((limit) => ({
      ...limit, missed: limit.missed.map(([since, until]) => ({ since: since / 1000, until: until / 1000 })),
    })),
    lines: panel.lines.map((line) => ({
      name: line.name,
      series: panel.at.map((at, i) => ({
        since: at * width, until: (at + 1) * width, low: line.values[i], mean: line.values[i], high: line.values[i],
      })).filter((bucket) => bucket.mean !== null),
      never: panel.of === "requests"
        ? panel.at.filter((_, i) => line.values[i] === null).map((at) => ({ since: at * width, until: (at + 1) * width })) : [],
    })),
    width,
  };
}

class WindowsPanel extends SeriesPanel {
  constructor(stage, canvas, { title, unit, lines, limits, width, of }) {
    const colours = lines.map((_, i) => (ink) => ink.replica[lines.length === 1 ? 3 : [3, 2, 0][i % 3]]);
    super(stage, canvas, { title, unit, lines: lines.map((line, i) => ({ colour: colours[i], ...line })) });
    Object.assign(this, { limits, width, of });
    this.height = 128;
    // A limit is within the scale, unless it is far above all that was ever there.
    const most = Math.max(0, ...this.lines.flatMap((line) => line.series.map((bucket) => bucket.high)));
    this.near = limits.filter((limit) => limit.value <= 4 * most || most === 0);
    const shown = this.near.map((limit) => ({ series: [{ since: 0, until: stage.model.end, high: limit.value * 1.02 }] }));
    this.peers = [this, { lines: shown, steps: [], visible: (series) => series }];
  }

  // A percentile of two windows is not the mean of theirs: neighbours are never joined.
  visible(series) {
    const { view } = this.stage;
    return series.filter((bucket) => bucket.until > view.since && bucket.since <= view.until);
  }

  draw() {
    super.draw();
    const { stage } = this, { ink } = stage, context = this.canvas.getContext("2d");
    const { top } = this.scale();
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    context.fillStyle = ink.of.bad;
    for (const limit of this.limits) faded(context, 0.16, () => this.bars(context, limit.missed, this.top, this.height - this.bottom));
    for (const line of this.lines) this.bars(context, line.never, this.top, this.top + 4);
    if (this.lines.length > 1) this.names(context);
    this.beyond(context);
    this.near.forEach((limit) => this.limit(context, limit, this.y(limit.value, top)));
    context.restore();
  }

  bars(context, spans, top, bottom) {
    for (const { since, until } of spans) {
      const cut = this.stage.cut(since, Math.min(until, this.stage.model.end));
      if (cut !== null) context.fillRect(cut[0], top, Math.max(2, cut[1] - cut[0]), bottom - top);
    }
  }

  // Those that are too far above to be drawn.
  beyond(context) {
    const { ink } = this.stage, far = this.limits.filter((limit) => !this.near.includes(limit));
    context.font = `11px ${ink.sans}`;
    context.fillStyle = ink.of.soft;
    context.textAlign = "right";
    context.textBaseline = "top";
    const text = far.map((limit) => `${limit.text}: ${verdictOn(limit)}, above`).join("; ");
    context.fillText(fitting(context, [text, far.map((limit) => limit.label).join("; ")], this.stage.plot - 110), this.stage.right - 6, this.top + 3);
  }

  // Which line is which, in its colour.
  names(context) {
    const { stage } = this, { ink } = stage;
    context.font = `600 11px ${ink.sans}`;
    context.textAlign = "left";
    context.textBaseline = "top";
    let x = stage.gutter + 6;
    for (const line of this.lines) {
      const width = context.measureText(line.name).width;
      context.fillStyle = ink.of.card;
      faded(context, 0.8, () => context.fillRect(x - 2, this.top + 2, width + 4, 13));
      context.fillStyle = line.colour(ink);
      context.fillText(line.name, x, this.top + 3);
      x += width + 10;
    }
  }

  limit(context, limit, y) {
    const { stage } = this, { ink } = stage;
    context.strokeStyle = context.fillStyle = limit.held ? ink.of.good : ink.of.bad;
    context.lineWidth = 1.5;
    context.setLineDash([7, 4]);
    context.beginPath();
    context.moveTo(stage.gutter, Math.round(y) + 0.5);
    context.lineTo(stage.right, Math.round(y) + 0.5);
    context.stroke();
    context.setLineDash([]);
    context.font = `11px ${ink.sans}`;
    context.textAlign = "right";
    context.textBaseline = y > this.top + 16 ? "bottom" : "top";
    const text = fitting(context, [`${limit.text}: ${verdictOn(limit)}`, limit.label], stage.plot - 12);
    const half = context.measureText(text).width, above = context.textBaseline === "bottom";
    faded(context, 0.8, () => {
      const ground = ink.of.card, before = context.fillStyle;
      context.fillStyle = ground;
      context.fillRect(stage.right - 8 - half, above ? y - 15 : y + 2, half + 4, 13);
      context.fillStyle = before;
    });
    context.fillText(text, stage.right - 6, above ? y - 2 : y + 3);
  }

  hit(x) {
    const time = this.stage.time(x), found = (spans) => spans.find((each) => each.since <= time && each.until > time);
    const lines = [];
    let window = null;
    for (const line of this.lines) {
      const bucket = found(line.series), never = bucket ? null : found(line.never);
      if (bucket || never) lines.push([line.name, bucket ? `${amount(bucket.mean)} ${this.unit}`.trim() : "never"]);
      window ??= bucket ?? never;
    }
    for (const limit of this.limits) {
      const missed = limit.missed.filter((each) => each.since <= time && each.until > time);
      if (missed.length) lines.push([["missed", ...missed.map((each) => each.letter ?? "")].join(" ").trim(), limit.text]);
    }
    const when = window === null ? "" : `${moment(window.since)} to ${moment(window.until)}`;
    const nothing = this.of === "requests" ? "no requests came then" : "nothing ran then";
    const note = window === null ? nothing : this.of === "requests" ? `of requests that came ${when}` : when;
    return { title: this.title, subtitle: "", lines: lines.concat([["", note]]), attributes: { chart: this.title } };
  }

  // For tests, and for the console.
  get told() {
    return {
      title: this.title, limits: this.limits,
      lines: this.lines.map((line) => ({ name: line.name, never: line.never.length, values: line.series.map((bucket) => [bucket.since, bucket.mean]) })),
    };
  }
}

// Of an objective, in one run or, with their letters, in several.
function verdictOn(limit) { return limit.verdict ?? (limit.held ? "held" : "missed"); }

function windowPanelsOf(stage, index, raw) {
  return readWindows(raw).map((panel) => new WindowsPanel(stage, canvasOf(`window-${panel.name}`, index), panel));
}
