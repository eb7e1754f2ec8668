// What was measured along the run, on the same axis as the lanes.

const BUCKET_PIXELS = 4;
const LIMIT_REACH = 3;  // a limit that is more times as high as all values would flatten them, and is not drawn

// Buckets that are on the screen; neighbours together where they are too narrow there to be told apart, or than `least`
// seconds: still exact, and calmer to look at.
function bucketsInView(stage, series, least = 0) {
  const { view } = stage, width = widthOf(series);
  const from = Math.max(0, firstReaching(series, view.since, width) - 1), found = [];
  for (let i = from; i < series.length && series[i].since <= view.until; i++) found.push(series[i]);
  const wanted = Math.max(least, (view.span / stage.plot) * BUCKET_PIXELS);
  const by = 2 ** Math.max(0, Math.ceil(Math.log2(wanted / width) - 1e-9));
  return by === 1 ? found : coarser(found, width * by);
}

function widthOf(series) { return series.length ? series[0].until - series[0].since : 0; }

function coarser(buckets, width) {
  const found = [];
  for (const bucket of buckets) {
    const since = Math.floor(bucket.since / width + 1e-6) * width, last = found[found.length - 1];
    if (last?.since !== since) {
      found.push({ ...bucket, since, until: since + width });
      continue;
    }
    last.low = Math.min(last.low, bucket.low);
    last.high = Math.max(last.high, bucket.high);
    last.mean = (last.mean * last.count + bucket.mean * bucket.count) / (last.count + bucket.count);
    last.count += bucket.count;
  }
  return found;
}

// The step line of a deployment's world size.
function worldSize(sizes) {
  return [{ name: "world size", sizes, colour: (ink) => ink.of.ink, dash: [5, 3] }];
}

class SeriesPanel {
  // lines: [{ name, series, colour(ink), dash }]; steps: [{ name, sizes, colour(ink), dash }], what holds until the next
  // step; what is there up to another time than the stage's end has that as `end`. objective: what one allows.
  constructor(stage, canvas, { title, lines, unit = "", steps = [], objective = null }) {
    Object.assign(this, { stage, canvas, title, lines, unit, steps, objective });
    this.peers = [this];  // panels that are drawn to one scale
    this.height = 112;
    this.top = 8;
    this.bottom = 10;
  }

  visible(series) { return bucketsInView(this.stage, series); }

  // The highest value on the screen, rounded up so that lines of the scale are at round numbers.
  scale() {
    let high = 0;
    for (const panel of this.peers) {
      for (const line of panel.lines) for (const bucket of panel.visible(line.series)) high = Math.max(high, bucket.high);
      for (const { sizes } of panel.steps) for (const step of sizes) high = Math.max(high, step.size);
    }
    if (this.objective !== null && this.objective < LIMIT_REACH * high) high = Math.max(high, this.objective);
    if (high <= 0) return { top: 1, step: 1 };
    const rough = high / 3, unit = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each >= rough * 0.999);
    return { top: Math.max(step, Math.ceil(high / step - 1e-9) * step), step };
  }

  y(value, top) {
    return this.top + (this.height - this.top - this.bottom) * (1 - value / top);
  }

  draw() {
    const { stage } = this, { ink } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    const { top, step } = this.scale();
    context.font = `11px ${ink.sans}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (let value = 0; value <= top + step / 2; value += step) {
      const y = Math.round(this.y(value, top));
      context.fillStyle = ink.of.line;
      context.fillRect(stage.gutter, y, stage.plot, 1);
      context.fillStyle = ink.of.soft;
      context.fillText(amount(value), stage.gutter - 10, y + 0.5);
    }
    context.textAlign = "left";
    context.save();
    context.beginPath();
    context.rect(stage.gutter, 0, stage.plot, this.height);
    context.clip();
    stage.backdrop(context, this.top, this.height - this.bottom);
    for (const steps of this.steps) this.stepLine(context, steps, top);
    for (const line of this.lines) this.line(context, line, top);
    if (this.objective !== null && this.objective <= top) this.objectiveLine(context, top);
    stage.pinLines(context, this.top, this.height - this.bottom);
    context.restore();
  }

  objectiveLine(context, top) {
    const { stage } = this, y = this.y(this.objective, top);
    context.strokeStyle = stage.ink.of.bad;
    context.lineWidth = 1.25;
    context.setLineDash([2, 2]);
    context.beginPath();
    context.moveTo(stage.gutter, y);
    context.lineTo(stage.right, y);
    context.stroke();
    context.setLineDash([]);
  }

  stepLine(context, { sizes, colour, dash, end = this.stage.model.end }, top) {
    const { stage } = this;
    context.strokeStyle = colour(stage.ink);
    context.lineWidth = 1.25;
    context.setLineDash(dash);
    context.beginPath();
    sizes.forEach((step, index) => {
      const y = this.y(step.size, top);
      if (index) context.lineTo(stage.x(step.since), y);
      else context.moveTo(stage.x(step.since), y);
      context.lineTo(stage.x(sizes[index + 1]?.since ?? end), y);
    });
    context.stroke();
    context.setLineDash([]);
  }

  line(context, line, top) {
    const { stage } = this, colour = line.colour(stage.ink);
    const buckets = this.visible(line.series);
    const slack = widthOf(buckets) * 1.5, end = line.end ?? stage.model.end;
    const runs = [];
    buckets.forEach((bucket, i) => {
      if (i === 0 || (bucket.since - buckets[i - 1].until > slack)) runs.push([]);
      runs[runs.length - 1].push(bucket);
    });
    context.fillStyle = context.strokeStyle = colour;
    for (const run of runs) {
      const middle = (bucket) => stage.x((bucket.since + Math.min(bucket.until, end)) / 2);
      faded(context, 0.2, () => {
        context.beginPath();
        run.forEach((bucket) => context.lineTo(middle(bucket), this.y(bucket.high, top)));
        [...run].reverse().forEach((bucket) => context.lineTo(middle(bucket), this.y(bucket.low, top)));
        context.closePath();
        context.fill();
      });
      context.lineWidth = 1.6;
      context.lineJoin = "round";
      context.setLineDash(line.dash ?? []);
      context.beginPath();
      run.forEach((bucket) => context.lineTo(middle(bucket), this.y(bucket.mean, top)));
      context.stroke();
      context.setLineDash([]);
      if (run.length === 1) context.fillRect(middle(run[0]) - 1.5, this.y(run[0].mean, top) - 1.5, 3, 3);
    }
  }

  hit(x) {
    const time = this.stage.time(x), lines = [];
    for (const line of this.lines) {
      const bucket = this.visible(line.series).find((each) => each.since <= time && each.until > time);
      if (bucket) lines.push([line.name, this.value(bucket)]);
    }
    for (const steps of this.steps) lines.push([steps.name, String(sizeAt(steps, time))]);
    if (this.objective !== null) lines.push(["objective", `${amount(this.objective)}${this.unit && ` ${this.unit}`}`]);
    const width = Math.max(...this.lines.map((line) => widthOf(this.visible(line.series))));
    const note = lines.length ? [["", `means, with smallest and largest in ${duration(width)}`]] : [["", "nothing ended then"]];
    return { title: this.title, subtitle: "", lines: lines.concat(note), attributes: { chart: this.title } };
  }

  value(bucket) {
    const unit = this.unit && ` ${this.unit}`;
    if (bucket.low === bucket.high) return `${amount(bucket.mean)}${unit}`;
    return `${amount(bucket.mean)}${unit} (${amount(bucket.low)} to ${amount(bucket.high)})`;
  }
}

// The whole run in small: bars of what was measured, the later ones before the earlier, and what part is on the screen.
// measures: [{ name, height, alpha, colour(ink), spans(model) -> [since, until, amount] }]
class OverviewPanel {
  constructor(stage, canvas, measures) {
    Object.assign(this, { stage, canvas, measures });
    this.height = 40;
    this.bins = this.count(300);
  }

  count(number) {
    const { model } = this.stage, width = model.end / number;
    return this.measures.map((measure) => {
      const bins = new Array(number).fill(0);
      for (const [since, until, size] of measure.spans(model)) {
        for (let i = Math.max(0, Math.floor(since / width)); i < number && i * width < until; i++) {
          bins[i] += (size * Math.max(0, Math.min(until, (i + 1) * width) - Math.max(since, i * width))) / width;
        }
      }
      return bins;
    });
  }

  x(time) { return this.stage.gutter + (time / this.stage.model.end) * this.stage.plot; }
  time(x) { return ((x - this.stage.gutter) / this.stage.plot) * this.stage.model.end; }

  draw() {
    const { stage } = this, { ink, view } = stage;
    const context = prepare(this.canvas, stage.width, this.height);
    const top = 3, bottom = this.height - 3, tall = bottom - top;
    context.fillStyle = ink.of.lane;
    context.fillRect(stage.gutter, top, stage.plot, tall);
    this.measures.forEach((measure, place) => {
      const bins = this.bins[place], most = bins.reduce((high, each) => Math.max(high, each), 1), step = stage.plot / bins.length;
      faded(context, measure.alpha, () => {
        context.fillStyle = measure.colour(ink);
        bins.forEach((bin, i) => {
          const h = (bin / most) * tall * measure.height;
          if (h > 0.05) context.fillRect(stage.gutter + i * step, bottom - Math.max(1.5, h), step + 0.3, Math.max(1.5, h));
        });
      });
    });
    for (const row of stage.pins) {
      context.fillStyle = pinColour(ink, row.group);
      context.fillRect(this.x(row.at) - 0.5, top, 1, 6);
    }
    this.window(context, view, top, tall);
    if (stage.gutter < 60) return;
    context.fillStyle = ink.of.faint;
    context.font = `11px ${ink.sans}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.fillText("whole run", stage.gutter - 10, this.height / 2);
  }

  window(context, view, top, tall) {
    const { stage } = this, { ink } = stage;
    const x0 = this.x(view.since), x1 = this.x(view.until);
    if (!view.whole) {
      faded(context, 0.72, () => {
        context.fillStyle = ink.of.card;
        context.fillRect(stage.gutter, top, x0 - stage.gutter, tall);
        context.fillRect(x1, top, stage.right - x1, tall);
      });
    }
    context.strokeStyle = ink.of.ink;
    context.lineWidth = 1.5;
    context.strokeRect(x0 + 0.75, top + 0.75, Math.max(2, x1 - x0 - 1.5), tall - 1.5);
  }

  hit(x) {
    const at = Math.floor(((x - this.stage.gutter) / this.stage.plot) * this.bins[0].length);
    if (at < 0 || at >= this.bins[0].length) return null;
    const found = this.measures.map((measure, place) => [measure.name, amount(this.bins[place][at])]).reverse();
    return {
      title: "the whole run",
      lines: [...found, ["", "drag to look at a part of it"]],
      attributes: { chart: "overview" },
    };
  }
}
