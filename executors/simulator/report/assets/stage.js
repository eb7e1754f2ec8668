// What all panels share: where a time is on the screen, and what goes through all of them.

const PINNED = ["fault", "change", "controller"];
const PIN_LINE_EVERY = 30;

class Stage {
  constructor(model) {
    this.model = model;
    this.view = new View(model.end);
    this.ink = new Ink();
    this.pins = pinsOf(model);
    this.width = 800;
    this.gutter = 64;
    this.margin = 12;
  }

  // Another run on the same axis: with a model and pins of its own, all else is shared.
  beside(model) { return Object.assign(Object.create(this), { model, pins: pinsOf(model) }); }

  resize(width) {
    this.width = width;
    this.gutter = width < 560 ? 40 : 68;
    this.margin = width < 560 ? 6 : 12;
  }

  get right() { return this.width - this.margin; }
  get plot() { return Math.max(10, this.right - this.gutter); }

  x(time) { return this.gutter + ((time - this.view.since) / this.view.span) * this.plot; }
  time(x) { return this.view.since + ((x - this.gutter) / this.plot) * this.view.span; }

  // A span cut to what is visible, as [x0, x1]; null where nothing of it is.
  cut(since, until) {
    if (until < this.view.since || since > this.view.until) return null;
    return [Math.max(this.gutter, this.x(since)), Math.min(this.right, this.x(until))];
  }

  get ticks() {
    const step = tickStep(this.view.span, Math.max(2, Math.floor(this.plot / 92)));
    const times = [], base = wallBase(this.view.since), { since, until } = this.view;
    for (let n = Math.ceil((since + base) / step - 1e-9); n * step - base <= until + 1e-9; n++) times.push(n * step - base);
    return { step, times };
  }

  get pinsInView() {
    return this.pins.filter((row) => row.at >= this.view.since && row.at <= this.view.until);
  }

  // Behind everything: lines of the axis, and times without a controller.
  backdrop(context, top, bottom) {
    context.fillStyle = this.ink.of.line;
    for (const time of this.ticks.times) context.fillRect(Math.round(this.x(time)), top, 1, bottom - top);
    for (const outage of this.model.controllerOutages) {
      const cut = this.cut(outage.since, outage.until);
      if (cut === null) continue;
      const width = Math.max(2, cut[1] - cut[0]);
      faded(context, 0.14, () => {
        context.fillStyle = this.ink.of.controller;
        context.fillRect(cut[0], top, width, bottom - top);
      });
    }
  }

  // Before everything: a fine line at each fault and change, where there are few enough of them.
  pinLines(context, top, bottom) {
    const pins = this.pinsInView;
    if (pins.length > this.plot / PIN_LINE_EVERY) return;
    context.setLineDash([3, 3]);
    context.lineWidth = 1;
    for (const row of pins) {
      context.strokeStyle = pinColour(this.ink, row.group);
      context.beginPath();
      context.moveTo(Math.round(this.x(row.at)) + 0.5, top);
      context.lineTo(Math.round(this.x(row.at)) + 0.5, bottom);
      context.stroke();
    }
    context.setLineDash([]);
  }
}

function pinsOf(model) { return model.rows.filter((row) => PINNED.includes(row.group)); }

function pinColour(ink, group) {
  return { fault: ink.of.bad, change: ink.of.change, controller: ink.of.controller }[group];
}

// A shape for each group, so that colour is not the only difference.
function pinShape(context, group, x, y, size) {
  context.beginPath();
  if (group === "fault") {
    context.moveTo(x - size, y - size * 0.8);
    context.lineTo(x + size, y - size * 0.8);
    context.lineTo(x, y + size);
  } else if (group === "change") {
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
  } else {
    context.rect(x - size * 0.8, y - size * 0.8, size * 1.6, size * 1.6);
  }
  context.closePath();
  context.fill();
}

// The axis: times, and above them a sign for each fault, change and crash of the controller.
class AxisPanel {
  constructor(stage, canvas) {
    this.stage = stage;
    this.canvas = canvas;
    this.height = 44;
  }

  draw() {
    const { stage } = this, { ink } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    const { step, times } = stage.ticks;
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    context.fillStyle = ink.of.soft;
    for (const time of times) {
      const x = stage.x(time), text = tickLabel(time, step), half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(Math.max(x, half + 2), stage.width - half - 2), this.height - 8);
    }
    context.fillStyle = ink.of.line;
    for (const time of times) context.fillRect(Math.round(stage.x(time)), this.height - 5, 1, 5);
    for (const outage of this.stage.model.controllerOutages) this.outage(context, outage);
    for (const row of stage.pinsInView) {
      context.fillStyle = pinColour(ink, row.group);
      pinShape(context, row.group, stage.x(row.at), 12, 5.5);
    }
  }

  outage(context, outage) {
    const cut = this.stage.cut(outage.since, outage.until);
    if (cut === null) return;
    const { ink } = this.stage;
    context.fillStyle = ink.of.controller;
    context.fillRect(cut[0], 10, Math.max(2, cut[1] - cut[0]), 4);
    const text = fitting(context, ["no controller", "no ctl"], cut[1] - cut[0] - 18);
    if (text) {
      context.textAlign = "left";
      context.fillText(text, cut[0] + 10, 25);
      context.textAlign = "center";
    }
  }

  hit(x, y) {
    if (y > 24) return null;
    const near = this.stage.pinsInView.filter((row) => Math.abs(this.stage.x(row.at) - x) <= 8);
    if (!near.length) return null;
    return {
      title: moment(near[0].at, 1),
      lines: near.slice(0, 6).map((row) => [row.only ? `${row.only}: ${row.what}` : row.what, row.text]).concat(near.length > 6 ? [["", `and ${near.length - 6} more`]] : []),
      attributes: { row: near[0].index },
      row: near[0],
    };
  }
}
