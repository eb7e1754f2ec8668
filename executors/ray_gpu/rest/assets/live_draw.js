// Lanes and curves of one deployment: what was, up to now, and right of now what is predicted.

const LANE = { min: 3, max: 24, all: 360 };
const CURVE = 74;
const YOUNG_S = 30;
const SECONDS_A_DAY = 86400;

function clock(time, step = 1) {
  const local = time - new Date(time * 1000).getTimezoneOffset() * 60;
  return moment(((local % SECONDS_A_DAY) + SECONDS_A_DAY) % SECONDS_A_DAY, step);
}

// The time that all pictures show: so long before now, and as far as something is predicted.
class LiveView {
  constructor(model, ink) {
    Object.assign(this, { model, ink });
    this.back = 180;
    this.prediction = null;  // { at, horizon, shown, lanes: name -> { then, without } }
    this.width = 600;
  }

  resize(width) {
    this.width = width;
    this.gutter = width < 480 ? 44 : 64;
    this.right = width - (width < 480 ? 4 : 8);
  }

  get now() { return this.model.now ?? Date.now() / 1000; }
  // A server that has not looked for so long yet has less to show: no room is left empty for what nobody knows.
  get since() { return Math.max(this.now - this.back, Math.min(this.model.first ?? this.now, this.now - YOUNG_S)); }
  get until() { return Math.max(this.now + this.back * 0.02, this.prediction ? this.prediction.at + this.prediction.horizon : 0); }
  get plot() { return Math.max(10, this.right - this.gutter); }
  x(time) { return this.gutter + ((time - this.since) / (this.until - this.since)) * this.plot; }
  time(x) { return this.since + ((x - this.gutter) / this.plot) * (this.until - this.since); }

  cut(since, until, least = this.since, most = this.until) {
    const from = Math.max(since, least), to = Math.min(until, most);
    return to <= from ? null : [this.x(from), this.x(to)];
  }

  get ticks() {
    const step = tickStep(this.until - this.since, Math.max(2, Math.floor(this.plot / 96))), zone = new Date(this.now * 1000).getTimezoneOffset() * 60;
    const times = [];
    for (let n = Math.ceil((this.since - zone) / step); n * step + zone <= this.until; n++) times.push(n * step + zone);
    return { step, times };
  }

  of(deployment) { return this.prediction?.lanes[deployment.name] === undefined ? null : this.prediction; }

  backdrop(context, top, bottom, predicted) {
    context.fillStyle = this.ink.of.line;
    for (const time of this.ticks.times) context.fillRect(Math.round(this.x(time)), top, 1, bottom - top);
    for (const outage of this.model.outages) {
      const cut = this.cut(outage.since, outage.until ?? this.now);
      if (cut === null) continue;
      faded(context, 0.14, () => {
        context.fillStyle = this.ink.of.controller;
        context.fillRect(cut[0], top, Math.max(2, cut[1] - cut[0]), bottom - top);
      });
    }
    if (predicted) {
      const x = this.x(this.now);
      faded(context, 0.5, () => {
        context.fillStyle = this.ink.stripes(context, this.ink.of.line, null, 9, 1.5);
        context.fillRect(x, top, this.right - x, bottom - top);
      });
    }
  }

  nowLine(context, top, bottom) {
    context.fillStyle = this.ink.of.ink;
    context.fillRect(Math.round(this.x(this.now)), top, 1.5, bottom - top);
  }
}

function drawAxis(view, canvas, predicted) {
  const height = 34, { ink } = view, context = prepare(canvas, view.width, height), { step, times } = view.ticks;
  context.font = `11px ${ink.sans}`;
  context.textAlign = "center";
  context.fillStyle = ink.of.soft;
  for (const time of times) {
    const x = view.x(time), text = clock(time, step), half = context.measureText(text).width / 2;
    if (x - half < view.gutter - 8) continue;
    context.fillText(text, Math.min(x, view.width - half - 1), height - 4);
  }
  const x = view.x(view.now), word = view.prediction ? "now" : "";
  context.fillStyle = ink.of.ink;
  context.font = `600 11px ${ink.sans}`;
  context.textAlign = "right";
  if (word) context.fillText(word, x - 5, 12);
  context.textAlign = "left";
  const ahead = predicted ? ["predicted \u2192", "pred. \u2192"] : ["not predicted"];
  if (word) context.fillText(fitting(context, ahead, view.right - x - 6), x + 6, 12);
}

class LivePicture {
  constructor(view, deployment, canvases, tooltip) {
    Object.assign(this, { view, deployment, canvases, tooltip });
    const ranks = canvases.ranks;
    ranks.addEventListener("pointermove", (event) => this.point(event));
    ranks.addEventListener("pointerleave", () => tooltip.hide());
  }

  get predicted() { return this.view.of(this.deployment); }

  get shown() {
    const predicted = this.predicted;
    return predicted === null ? null : predicted.lanes[this.deployment.name][predicted.shown];
  }

  get ranks() {
    const shown = this.shown;
    return this.deployment.ranks(shown === null ? 0 : shown.holds.reduce((most, hold) => Math.max(most, hold[0] + 1), 0));
  }

  get laneHeight() { return Math.max(LANE.min, Math.min(LANE.max, LANE.all / Math.max(1, this.ranks.length))); }

  draw() {
    this.drawRanks();
    const { view } = this, points = this.deployment.points, ink = view.ink.of;
    this.curve("waiting", [{ key: "waiting", colour: ink.bad, fill: true }], "", points);
    this.curve("latency", [{ key: "p99", colour: ink.controller }, { key: "p50", colour: ink.good, dash: [5, 3] }], " s", points);
    this.curve("rate", [{ key: "rate", colour: ink.change, fill: true }], "/s", points);
    drawAxis(view, this.canvases.axis, this.predicted !== null);
  }

  drawRanks() {
    const { view, deployment } = this, { ink } = view, ranks = this.ranks, lane = this.laneHeight;
    const height = 4 + Math.max(16, ranks.length * lane) + 4, context = prepare(this.canvases.ranks, view.width, height);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.fillStyle = ink.of.lane;
    context.fillRect(view.gutter, 4, view.plot, height - 8);
    context.save();
    context.beginPath();
    context.rect(view.gutter, 0, view.plot, height);
    context.clip();
    view.backdrop(context, 4, height - 4, this.shown !== null);
    ranks.forEach((rank, index) => {
      const inset = lane >= 10 ? 1.5 : 0.5, y = 4 + index * lane + inset, h = lane - 2 * inset;
      for (const gap of deployment.gaps.get(rank) ?? []) this.gap(context, gap.since, gap.until ?? view.now, y, h, -Infinity, view.now);
      for (const segment of deployment.lanes.get(rank) ?? []) this.segment(context, segment, segment.since, segment.until ?? view.now, y, h);
      this.ahead(context, rank, y, h);
    });
    view.nowLine(context, 0, height);
    context.restore();
    context.fillStyle = ink.of.soft;
    context.textAlign = "right";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * lane >= 12) ?? 1000;
    ranks.forEach((rank, index) => { if (index % every === 0) context.fillText(String(rank), view.gutter - 8, 4 + (index + 0.5) * lane); });
    context.textAlign = "left";
    if (!ranks.length) context.fillText("no rank is wanted, and nobody has one", view.gutter + 8, height / 2);
    this.canvases.ranks.setAttribute("aria-label", this.inWords());
  }

  inWords() {
    const { name, said, served } = this.deployment;
    const predicted = this.predicted === null ? "" : ` ${this.predicted.answer}`;
    return `ranks of ${name}: ${served} of ${said.target} are served.${predicted} The table below says who has which.`;
  }

  segment(context, segment, since, until, y, h, least, most) {
    const cut = this.view.cut(since, until, least, most);
    if (cut === null) return;
    if (segment.beside) { y += h * 0.6; h *= 0.4; }
    const colour = this.view.ink.replica[segment.replica.colour], width = cut[1] - cut[0];
    if (width < 3 || h < 2.5) {
      context.fillStyle = colour;
      faded(context, segment.serving ? 1 : 0.4, () => context.fillRect(cut[0], y, Math.max(1, width), h));
    } else {
      paintPhase(context, this.view.ink, segment, colour, cut[0], y, width - (width > 8 ? 1 : 0), h);
    }
  }

  gap(context, since, until, y, h, least, most) {
    const cut = this.view.cut(since, until, Math.max(this.view.since, least), most);
    if (cut === null) return;
    const { ink } = this.view, width = Math.max(2, cut[1] - cut[0]);
    context.fillStyle = ink.of.bad;
    faded(context, 0.24, () => context.fillRect(cut[0], y, width, h));
    const line = h >= 9 ? 2 : 1;
    context.fillRect(cut[0], y, width, line);
    context.fillRect(cut[0], y + h - line, width, line);
  }

  // What is predicted, hatched, from now on.
  ahead(context, rank, y, h) {
    const { view } = this, shown = this.shown, predicted = this.predicted;
    if (shown === null) return;
    const { at } = predicted;
    for (const [of, since, until] of shown.gaps) if (of === rank) this.gap(context, at + since, at + until, y, h, view.now, view.until);
    for (const [of, id, node, phase, since, until] of shown.holds) {
      if (of !== rank) continue;
      const segment = { rank, node, phase, serving: SERVES.has(phase), replica: this.future(id, rank) };
      const cut = view.cut(at + since, at + until, view.now);
      if (cut === null) continue;
      faded(context, 0.72, () => this.segment(context, segment, at + since, at + until, y, h, view.now));
      context.fillStyle = view.ink.stripes(context, view.ink.of.card, null, 7, 2.2);
      context.fillRect(cut[0], y, cut[1] - cut[0], h);
      if (h >= 12) this.name(context, segment, cut[0], y, cut[1] - cut[0], h);
    }
  }

  // Letters on a ground of their own: nobody reads through hatches.
  name(context, { replica, phase }, x, y, width, h) {
    const { ink } = this.view, text = fitting(context, phase === "running" ? [replica.label] : [`${replica.label} ${phase}`, replica.label], width - 14);
    if (!text) return;
    context.fillStyle = ink.of.card;
    context.fillRect(x + 4, y + 2, context.measureText(text).width + 8, h - 4);
    context.fillStyle = ink.of.ink;
    context.fillText(text, x + 8, y + h / 2 + 0.5);
  }

  future(id, rank) {
    const known = this.deployment.colours.get(id), predicted = this.predicted;
    if (known === undefined && !predicted.colours.has(id)) predicted.colours.set(id, (rank + 3 + predicted.colours.size) % COLOURS);
    return { id, label: id.slice(id.lastIndexOf("#") + 1), colour: known ?? predicted.colours.get(id) };
  }

  curve(name, lines, unit, points) {
    const { view } = this, { ink } = view, predicted = this.predicted, context = prepare(this.canvases[name], view.width, CURVE);
    const ahead = predicted === null ? [] : ["then", "without"].map((which) => ({
      which, points: predicted.lanes[this.deployment.name][which].points.map((point) => ({ ...point, t: predicted.at + point.t })).filter((point) => point.t >= view.now),
    }));
    const seen = points.filter((point) => point.t >= view.since);
    let high = 0;
    for (const { key } of lines) for (const point of [...seen, ...ahead.flatMap((each) => each.points)]) high = Math.max(high, point[key] ?? 0);
    const top = niceTop(high), y = (value) => 6 + (CURVE - 12) * (1 - value / top);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of [0, top / 2, top]) {
      context.fillStyle = ink.of.line;
      context.fillRect(view.gutter, Math.round(y(value)), view.plot, 1);
      context.fillStyle = ink.of.soft;
      if (value !== top / 2) context.fillText(`${amount(value)}`, view.gutter - 8, y(value));
    }
    context.save();
    context.beginPath();
    context.rect(view.gutter, 0, view.plot, CURVE);
    context.clip();
    view.backdrop(context, 4, CURVE - 4, predicted !== null);
    for (const line of lines) {
      this.trace(context, seen, line, y, 1.8, line.dash ?? []);
      for (const { which, points: future } of ahead) {
        if (which === predicted.shown) this.trace(context, future, { ...line, fill: false }, y, 1.8, [2, 3]);
        else faded(context, 0.4, () => this.trace(context, future, { ...line, fill: false }, y, 1, [1, 3]));
      }
    }
    view.nowLine(context, 0, CURVE);
    context.restore();
    const last = points[points.length - 1];
    const words = lines.map(({ key }) => `${lines.length > 1 ? `${key} ` : ""}${last?.[key] === null || last === undefined ? "none" : amount(last[key]) + unit}`);
    this.canvases[name].setAttribute("aria-label", `${this.canvases[name].dataset.what} of ${this.deployment.name}: ${words.join(", ")} now`);
  }

  // A line with breaks where nothing was measured.
  trace(context, points, { key, colour, fill }, y, width, dash) {
    const { view } = this, runs = [];
    let before = null;
    for (const point of points) {
      if (point[key] === null || point[key] === undefined) { before = null; continue; }
      if (before === null || point.t - before > 15 + view.back / 60) runs.push([]);
      runs[runs.length - 1].push([view.x(point.t), y(point[key])]);
      before = point.t;
    }
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    for (const run of runs) {
      if (fill && run.length > 1) {
        faded(context, 0.16, () => {
          context.beginPath();
          context.moveTo(run[0][0], y(0));
          for (const [px, py] of run) context.lineTo(px, py);
          context.lineTo(run[run.length - 1][0], y(0));
          context.fill();
        });
      }
      context.setLineDash(dash);
      context.beginPath();
      run.forEach(([px, py], index) => (index ? context.lineTo(px, py) : context.moveTo(px, py)));
      context.stroke();
      context.setLineDash([]);
      if (run.length === 1) context.fillRect(run[0][0] - 1.5, run[0][1] - 1.5, 3, 3);
    }
  }

  point(event) {
    const box = this.canvases.ranks.getBoundingClientRect(), { view, deployment } = this;
    const time = view.time(event.clientX - box.left), rank = this.ranks[Math.floor((event.clientY - box.top - 4) / this.laneHeight)];
    if (rank === undefined || time < view.since || time > view.until) return this.tooltip.hide();
    const found = time <= view.now ? this.wasThere(rank, time) : this.willBe(rank, time);
    this.tooltip.show({
      title: `rank ${rank}`, subtitle: `${deployment.name} at ${clock(time)}${time > view.now ? ", predicted" : ""}`,
      lines: found ?? [["", rank < deployment.said.target ? "nobody" : "not wanted"]], attributes: { rank },
    }, event.clientX, event.clientY);
  }

  wasThere(rank, time) {
    const there = (this.deployment.lanes.get(rank) ?? []).filter((each) => each.since <= time && (each.until ?? Infinity) >= time);
    if (!there.length) return null;
    return there.flatMap((each) => [["replica", each.replica.id], ["state", each.phase], ["node", (each.node ?? "none").slice(0, 12)]]);
  }

  willBe(rank, time) {
    const t = time - (this.predicted?.at ?? 0);
    const there = (this.shown?.holds ?? []).filter((each) => each[0] === rank && each[4] <= t && each[5] >= t);
    return there.length ? there.flatMap((each) => [["replica", each[1]], ["state", each[3]], ["node", (each[2] ?? "none").slice(0, 12)]]) : null;
  }
}

function niceTop(high) {
  if (high <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(high));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((factor) => factor * unit).find((each) => each >= high * 0.999);
}
