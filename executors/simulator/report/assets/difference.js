// A strip below a chart of several runs: what each other run has more, or less, than the first one.

class DifferencePanel {
  // base: the line of the first run; others: lines of the others, as of a SeriesPanel; inView: which buckets are on the
  // screen, at least so wide.
  constructor(stage, canvas, { title, base, others, unit = "", inView = (series, least) => bucketsInView(stage, series, least) }) {
    Object.assign(this, { stage, canvas, title, base, others, unit, inView });
    this.height = 54;
    this.top = 5;
    this.bottom = 5;
  }

  // Of each stretch of time in which both have a value, the difference of the means.
  between(other) {
    const { base } = this, least = Math.max(widthOf(base.series), widthOf(other.series));
    const before = new Map(this.inView(base.series, least).map((bucket) => [bucket.since, bucket]));
    const end = Math.min(base.end, other.end);
    return this.inView(other.series, least).filter((bucket) => before.get(bucket.since)?.until === bucket.until).map((bucket) => {
      const { mean } = before.get(bucket.since), value = bucket.mean - mean;
      const nothing = Math.abs(value) <= 1e-9 * Math.max(Math.abs(mean), Math.abs(bucket.mean));
      return { since: bucket.since, until: Math.min(bucket.until, end), value: nothing ? 0 : value };
    });
  }

  y(value, most) { return this.top + ((this.height - this.top - this.bottom) * (1 - value / most)) / 2; }

  draw() {
    const { stage } = this, { ink } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    const found = this.others.map((other) => ({ other, parts: this.between(other) }));
    const most = found.reduce((high, { parts }) => parts.reduce((best, part) => Math.max(best, Math.abs(part.value)), high), 0);
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.fillStyle = ink.of.lane;
    context.fillRect(stage.gutter, this.top, stage.plot, this.height - this.top - this.bottom);
    this.scale(context, most);
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    stage.backdrop(context, this.top, this.height - this.bottom);
    context.fillStyle = ink.of.faint;
    context.fillRect(stage.gutter, Math.round(this.y(0, 1)), stage.plot, 1);
    if (most > 0) for (const { other, parts } of found) this.area(context, other, parts, most);
    stage.pinLines(context, this.top, this.height - this.bottom);
    context.restore();
    context.fillStyle = ink.of.soft;
    if (!most) context.fillText(this.nothing(found), stage.gutter + 8, this.y(0, 1) - 10);
  }

  scale(context, most) {
    const { stage } = this, { ink } = stage;
    context.textAlign = "right";
    context.fillStyle = ink.of.soft;
    const marks = most > 0 ? [[most, 5], [0, 0], [-most, -5]] : [[0, 0]];
    const right = stage.gutter - (stage.gutter < 60 ? 3 : 10);
    for (const [value, lower] of marks) {
      const text = signed(+value.toPrecision(2));
      context.fillText(fitting(context, [text, text.replace("0.", ".")], right), right, this.y(value, most || 1) + lower);
    }
    context.textAlign = "left";
  }

  nothing(found) {
    return found.some(({ parts }) => parts.length) ? "no difference here" : "nothing to compare here";
  }

  area(context, other, parts, most) {
    const { stage } = this, zero = this.y(0, most);
    context.fillStyle = context.strokeStyle = other.colour(stage.ink);
    context.lineWidth = 1.3;
    context.setLineDash(this.others.length > 1 ? other.dash : []);
    context.beginPath();
    let last = null;
    for (const part of parts) {
      const x0 = Math.round(stage.x(part.since)), x1 = Math.round(stage.x(part.until)), y = this.y(part.value, most);
      if (part.value) faded(context, 0.35 / this.others.length, () => context.fillRect(x0, Math.min(y, zero), x1 - x0, Math.abs(y - zero)));
      if (last === part.since) context.lineTo(x0, y);
      else context.moveTo(x0, y);
      context.lineTo(x1, y);
      last = part.until;
    }
    context.stroke();
    context.setLineDash([]);
  }

  hit(x) {
    const time = this.stage.time(x), lines = [];
    for (const other of this.others) {
      const part = this.between(other).find((each) => each.since <= time && each.until > time);
      lines.push([`${other.name} - ${this.base.name}`, part ? `${signed(part.value)}${this.unit && ` ${this.unit}`}` : "nothing to compare"]);
    }
    return { title: this.title, subtitle: "", lines, attributes: { chart: this.title } };
  }
}

function signed(value) { return value > 0 ? `+${amount(value)}` : amount(value).replace("-", "\u2212"); }
