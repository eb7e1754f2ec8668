// Which part of the run is on the screen, and how times are written.

const DAY = 86400;
const TICKS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200,
  14400, 21600, 43200, DAY, 2 * DAY, 5 * DAY, 10 * DAY, 20 * DAY, 50 * DAY, 100 * DAY, 365 * DAY, 1000 * DAY,
];
const SPAN_MIN = 0.02;

class View {
  constructor(end) {
    this.end = end;
    this.since = 0;
    this.until = end;
    this.listeners = [];
  }

  get span() { return this.until - this.since; }
  get whole() { return this.since <= 0 && this.until >= this.end; }

  show(since, until) {
    const span = Math.min(this.end, Math.max(SPAN_MIN, until - since));
    const from = Math.min(Math.max(0, (since + until - span) / 2), this.end - span);
    if (from === this.since && from + span === this.until) return;
    this.since = from;
    this.until = from + span;
    for (const listener of this.listeners) listener();
  }

  zoom(factor, around = (this.since + this.until) / 2) {
    const span = Math.min(this.end, Math.max(SPAN_MIN, this.span * factor));
    const since = around - (around - this.since) * (span / this.span);
    this.show(since, since + span);
  }

  pan(seconds) {
    const since = Math.min(Math.max(0, this.since + seconds), this.end - this.span);
    this.show(since, since + this.span);
  }

  reveal(time) {
    if (time < this.since || time > this.until) this.show(time - this.span / 2, time + this.span / 2);
  }

  reset() { this.show(0, this.end); }
}

function two(number) { return String(number).padStart(2, "0"); }

// Times of day. began: of the run, in seconds since 1970, where that is known; zone: in which one times are written, null: none.
const wall = { began: null, zone: null, formats: new Map() };

// Year to second of a moment of the run in the chosen zone, and its milliseconds.
function wallParts(seconds) {
  if (!wall.formats.has(wall.zone)) {
    const two = "2-digit", fields = { year: "numeric", month: two, day: two, hour: two, minute: two, second: two };
    wall.formats.set(wall.zone, new Intl.DateTimeFormat("en-GB", { timeZone: wall.zone, hourCycle: "h23", ...fields }));
  }
  const ms = Math.round((wall.began + seconds) * 1000), parts = { ms: ((ms % 1000) + 1000) % 1000 };
  for (const { type, value } of wall.formats.get(wall.zone).formatToParts(ms)) parts[type] = value;
  return parts;
}

// What is added to run time so that multiples of a step are round times of day; 0 in run time.
function wallBase(seconds) {
  if (wall.zone === null) return 0;
  const { year, month, day, hour, minute, second, ms } = wallParts(seconds);
  return (Date.UTC(year, month - 1, day, hour, minute, second) + ms) / 1000 - seconds;
}

function wallMoment(seconds, step) {
  const parts = wallParts(step >= 1 ? Math.floor(wall.began + seconds + 0.5) - wall.began : seconds);
  const digits = step >= 1 ? 0 : Math.min(3, Math.ceil(-Math.log10(step) - 1e-9));
  const fraction = digits ? "." + String(parts.ms).padStart(3, "0").slice(0, digits) : "";
  return `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}:${parts.second}${fraction}`;
}

// As `moment` in times.py: h:mm:ss, with days before it from two days on; with fractions where steps are that small.
function moment(seconds, step = 1) {
  if (wall.zone !== null) return wallMoment(seconds, step);
  const digits = step >= 1 ? 0 : Math.min(3, Math.ceil(-Math.log10(step) - 1e-9));
  const scale = 10 ** digits;
  const units = Math.floor(seconds * scale + 0.5);
  const whole = Math.floor(units / scale);
  const fraction = digits ? "." + String(units % scale).padStart(digits, "0") : "";
  const rest = whole % DAY;
  const clock = `:${two(Math.floor(rest / 60) % 60)}:${two(rest % 60)}${fraction}`;
  if (whole < 2 * DAY) return Math.floor(whole / 3600) + clock;
  return `${Math.floor(whole / DAY)}d ${two(Math.floor(rest / 3600))}${clock}`;
}

// A moment on the axis: no longer than the step asks for.
function tickLabel(seconds, step) {
  if (wall.zone !== null) {
    const [date, time] = wallMoment(seconds, step).split(" ");
    if (step % DAY === 0 || /^00:00(:00[.0]*)?$/.test(time)) return date.slice(5);
    return step >= 60 ? time.slice(0, 5) : time;
  }
  if (step % DAY === 0) return `${Math.round(seconds / DAY)} d`;
  const text = moment(seconds, step);
  return text.includes("d ") && step >= 60 ? text.slice(0, -3) : text;
}

// As `duration` in words.py.
function duration(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toFixed(0)} ms`;
  if (seconds < 119.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60);
  if (minutes < 120) return `${minutes} min ${two(whole % 60)} s`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  return `${Math.floor(minutes / 1440)} d ${two(Math.floor(minutes / 60) % 24)} h`;
}

function amount(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + "M";
  if (size >= 100 || Number.isInteger(value)) return Math.round(value).toLocaleString("en-US");
  return String(+value.toPrecision(3));
}

function tickStep(span, most) {
  return TICKS.find((step) => span / step <= most) ?? TICKS[TICKS.length - 1];
}
