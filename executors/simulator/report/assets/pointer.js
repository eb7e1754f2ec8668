// Mouse, wheel, fingers and keys, over all panels alike.

const CLICK_SLACK = 5;
const SCROLL_PAUSE_MS = 350;

class Pointer {
  constructor(timeline) {
    this.timeline = timeline;
    this.stage = timeline.stage;
    this.fingers = new Map();
    this.drag = null;
    this.pinch = null;
    this.lastScroll = -Infinity;
    const { holder } = timeline;
    holder.addEventListener("pointerdown", (event) => this.down(event));
    holder.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) holder.addEventListener(name, (event) => this.up(event));
    holder.addEventListener("pointerleave", (event) => { if (!this.drag && event.pointerType !== "touch") timeline.leave(); });
    document.addEventListener("pointerdown", (event) => { if (!holder.contains(event.target)) timeline.leave(); });
    holder.addEventListener("dblclick", () => this.stage.view.reset());
    holder.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    window.addEventListener("wheel", (event) => { if (!event.defaultPrevented) this.lastScroll = performance.now(); }, { passive: true });
  }

  // Where an event is: its panel, and x and y in it.
  where(event) {
    const canvas = event.target.closest?.("canvas") ?? null;
    const panel = this.timeline.panels.find((each) => each.canvas === canvas) ?? null;
    const box = (canvas ?? this.timeline.panels[0].canvas).getBoundingClientRect();
    return { panel, x: event.clientX - box.left, y: event.clientY - box.top };
  }

  down(event) {
    if (event.button > 0) return;
    const at = this.where(event);
    if (at.panel === null) return;
    this.fingers.set(event.pointerId, at.x);
    if (this.fingers.size === 2) {
      this.startPinch();
      return;
    }
    const pans = event.shiftKey || event.pointerType === "touch";
    const moves = at.panel === this.timeline.overview && this.overWindow(at.x);
    this.drag = { from: at.x, panel: at.panel, pans, moves, since: this.stage.view.since, far: false, id: event.pointerId };
  }

  overWindow(x) {
    const { overview } = this.timeline, { view } = this.stage;
    return !view.whole && x >= overview.x(view.since) - 4 && x <= overview.x(view.until) + 4;
  }

  move(event) {
    const at = this.where(event);
    if (this.fingers.has(event.pointerId)) this.fingers.set(event.pointerId, at.x);
    if (this.pinch) {
      this.pinched();
      return;
    }
    if (!this.drag) {
      this.timeline.hover(at.panel, at.x, at.y, event.clientX, event.clientY);
      return;
    }
    const moved = at.x - this.drag.from;
    if (!this.drag.far && Math.abs(moved) < CLICK_SLACK) return;
    if (!this.drag.far) {
      this.drag.far = true;
      this.timeline.holder.setPointerCapture(this.drag.id);
      this.timeline.tooltip.hide();
    }
    const { view } = this.stage, { overview } = this.timeline;
    if (this.drag.moves) view.show(this.drag.since + this.inWhole(moved), this.drag.since + this.inWhole(moved) + view.span);
    else if (this.drag.panel === overview) this.timeline.brush(this.drag.from, at.x);
    else if (this.drag.pans) view.pan(this.drag.since - (moved / this.stage.plot) * view.span - view.since);
    else this.timeline.brush(this.drag.from, at.x);
  }

  inWhole(pixels) { return (pixels / this.stage.plot) * this.stage.model.end; }

  up(event) {
    const at = this.where(event);
    this.fingers.delete(event.pointerId);
    this.pinch = null;
    const { drag } = this;
    this.drag = null;
    this.timeline.brush(null);
    if (!drag || event.type === "pointercancel") return;
    if (!drag.far) {
      this.timeline.click(drag.panel, at.x, at.y, event);
      return;
    }
    if (drag.moves || (drag.pans && drag.panel !== this.timeline.overview)) return;
    const scale = drag.panel === this.timeline.overview ? this.timeline.overview : this.stage;
    const times = [scale.time(drag.from), scale.time(at.x)].sort((a, b) => a - b);
    this.stage.view.show(times[0], times[1]);
  }

  startPinch() {
    this.drag = null;
    this.timeline.brush(null);
    this.timeline.tooltip.hide();
    this.pinch = [...this.fingers.values()].map((x) => this.stage.time(x));
  }

  // The times that were under the two fingers stay under them.
  pinched() {
    const [x0, x1] = [...this.fingers.values()], [t0, t1] = this.pinch;
    if (Math.abs(x1 - x0) < 8) return;
    const perPixel = Math.abs((t1 - t0) / (x1 - x0)), span = perPixel * this.stage.plot;
    const since = t0 - (x0 - this.stage.gutter) * perPixel;
    this.stage.view.show(since, since + span);
  }

  // The wheel zooms, but never takes over a scroll through the page that began elsewhere, or that has nothing to zoom out of.
  wheel(event) {
    const at = this.where(event);
    if (at.panel === null) return;
    const { view } = this.stage, sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways) {
      event.preventDefault();
      view.pan(((event.deltaX || event.deltaY) / this.stage.plot) * view.span);
      return;
    }
    const forced = event.ctrlKey || event.metaKey;
    const scrolling = performance.now() - this.lastScroll < SCROLL_PAUSE_MS;
    if (!forced && (scrolling || (event.deltaY > 0 && view.whole))) return;
    event.preventDefault();
    const pixels = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY;
    const around = at.panel === this.timeline.overview ? this.timeline.overview.time(at.x) : this.stage.time(at.x);
    view.zoom(Math.exp(Math.max(-240, Math.min(240, pixels)) * 0.0025), Math.min(Math.max(around, view.since), view.until));
    this.timeline.hover(at.panel, at.x, at.y, event.clientX, event.clientY);
  }
}

// Arrows walk along a lane and between lanes; everything that the mouse does has a key.
class Keys {
  constructor(timeline) {
    this.timeline = timeline;
    this.panel = null;
    this.lane = null;
    this.time = 0;
    timeline.holder.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = this.acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
    timeline.holder.addEventListener("blur", () => timeline.leave());
  }

  get acts() {
    const { view } = this.timeline.stage;
    const around = () => (this.lane ? this.time : undefined);
    return {
      "+": () => view.zoom(0.5, around()), "=": () => view.zoom(0.5, around()), "-": () => view.zoom(2, around()),
      0: () => view.reset(), Home: () => view.pan(-Infinity), End: () => view.pan(view.end),
      PageUp: () => view.pan(-view.span * 0.8), PageDown: () => view.pan(view.span * 0.8),
      ArrowLeft: () => this.along(-1), ArrowRight: () => this.along(1), ArrowUp: () => this.across(-1), ArrowDown: () => this.across(1),
      Escape: () => { this.lane = null; this.timeline.leave(); this.timeline.select(null); },
    };
  }

  get walkable() {
    return this.timeline.panels.filter((panel) => panel.tell).flatMap((panel) => panel.lanes.map((lane) => ({ panel, lane })));
  }

  start() {
    const first = this.walkable[0];
    if (!first) return false;
    ({ panel: this.panel, lane: this.lane } = first);
    this.time = this.timeline.stage.view.since + this.timeline.stage.view.span / 2;
    return true;
  }

  // To the next change on the lane.
  along(direction) {
    if (!this.lane && !this.start()) return;
    const spans = this.lane.segments ? [...this.lane.segments, ...this.lane.gaps] : [...this.lane.stays, ...this.lane.outages];
    const times = [...new Set(spans.map((span) => span.since))].sort((a, b) => a - b);
    const next = direction > 0 ? times.find((time) => time > this.time + 1e-3) : times.reverse().find((time) => time < this.time - 2e-3);
    if (next !== undefined) this.time = next + 1e-3;
    this.tell();
  }

  across(direction) {
    if (!this.lane) { if (this.start()) this.tell(); return; }
    const lanes = this.walkable, at = lanes.findIndex((each) => each.lane === this.lane);
    const next = lanes[Math.min(lanes.length - 1, Math.max(0, at + direction))];
    ({ panel: this.panel, lane: this.lane } = next);
    this.tell();
  }

  tell() {
    const { stage } = this.timeline;
    stage.view.reveal(this.time);
    this.panel.canvas.scrollIntoView({ block: "nearest" });
    const box = this.panel.canvas.getBoundingClientRect(), x = stage.x(this.time);
    this.timeline.crosshair(x, this.time);
    this.timeline.tooltip.show(this.panel.tell(this.lane, this.time), box.left + x, box.top + this.panel.yOf(this.lane), true);
  }
}
