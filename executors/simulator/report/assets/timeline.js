// All panels of a page, one below the other, with what lies over them: zoom, hover, marks.

// `measures`: what the strip of the whole run shows; `panelsOf`: makes the panels below the axis, given the stage.
class Timeline {
  constructor(model, measures, panelsOf) {
    this.model = model;
    this.stage = new Stage(model);
    this.holder = document.getElementById("panels");
    this.tooltip = new Tooltip();
    this.lines = { cross: document.getElementById("crosshair"), mark: document.getElementById("mark"), brush: document.getElementById("brush") };
    this.marked = null;
    this.overview = new OverviewPanel(this.stage, canvasOf("overview"), measures);
    this.axis = new AxisPanel(this.stage, canvasOf("axis"));
    this.panels = [this.overview, this.axis, ...panelsOf(this.stage)];
    this.table = new Table(this.stage, (row) => this.select(row));
    this.pointer = new Pointer(this);
    this.keys = new Keys(this);
    this.stage.view.listeners.push(() => this.schedule());
    this.controls();
    this.jump();
    new ResizeObserver(() => this.schedule(true)).observe(this.holder);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.render(true);
  }

  controls() {
    const { view } = this.stage;
    const act = {
      "zoom-in": () => view.zoom(0.5), "zoom-out": () => view.zoom(2), "zoom-reset": () => view.reset(),
      taller: () => this.stretch(1.5), shorter: () => this.stretch(1 / 1.5),
    };
    for (const [id, run] of Object.entries(act)) document.getElementById(id).addEventListener("click", run);
    const only = document.getElementById("eventful");
    const lanes = this.panels.filter((panel) => panel.only);
    only.checked = only.checked || lanes.some((panel) => panel.lanes.length > 300);
    const choose = () => { for (const panel of lanes) panel.only(only.checked); this.schedule(true); };
    only.addEventListener("change", choose);
    if (only.checked) choose();
  }

  // Back up to the picture, for who has marked a moment in the list and cannot see it.
  jump() {
    this.jumper = document.getElementById("jump");
    this.jumper.addEventListener("click", () => this.holder.scrollIntoView());
    new IntersectionObserver(([entry]) => {
      this.seen = entry.isIntersecting;
      this.offerJump();
    }).observe(this.holder);
  }

  offerJump() {
    this.jumper.hidden = this.marked === null || this.seen;
    if (this.marked) this.jumper.textContent = `\u2191 ${moment(this.marked.at)} in the picture`;
  }

  stretch(factor) {
    for (const panel of this.panels) if (panel.stretch) panel.stretch = Math.min(16, Math.max(0.25, panel.stretch * factor));
    this.schedule(true);
  }

  repaint() {
    this.stage.ink.refresh();
    this.schedule(true);
  }

  // Draw once before the next frame, however much has changed until then.
  schedule(resized = false) {
    this.resized = this.resized || resized;
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.render(this.resized);
      this.resized = false;
    });
  }

  render(resized) {
    const { stage } = this, { view } = stage;
    if (resized) stage.resize(this.holder.clientWidth);
    this.draw(resized);
    const step = stage.ticks.step >= 10 ? 1 : stage.ticks.step / 10;
    document.getElementById("range").textContent = `${moment(view.since, step)} to ${moment(view.until, step)}`;
    document.getElementById("zoom-reset").disabled = document.getElementById("zoom-out").disabled = view.whole;
    this.lineAt(this.lines.mark, this.marked === null ? null : stage.x(this.marked.at));
    this.lines.cross.hidden = true;
    this.table.viewChanged();
  }

  // What can be seen at once, the rest a moment later: pictures of a thousand lanes take their time.
  draw(everything) {
    const seen = (panel) => {
      const box = panel.canvas.getBoundingClientRect();
      return box.bottom > -200 && box.top < window.innerHeight + 200;
    };
    const later = everything ? [] : this.panels.filter((panel) => !seen(panel));
    for (const panel of this.panels) if (!later.includes(panel)) panel.draw();
    clearTimeout(this.rest);
    if (later.length) this.rest = setTimeout(() => { for (const panel of later) panel.draw(); }, 150);
  }

  hover(panel, x, y, clientX, clientY) {
    if (panel === null || x < this.stage.gutter - 60 || x > this.stage.right + 2) {
      this.leave();
      return;
    }
    const time = panel === this.overview ? this.overview.time(x) : this.stage.time(x);
    if (x < this.stage.gutter) { this.leave(); return; }
    this.crosshair(panel === this.overview ? null : x, time);
    const found = panel.hit(x, y);
    if (found === null) this.tooltip.hide();
    else this.tooltip.show(found, clientX, clientY);
  }

  crosshair(x, time) {
    this.lineAt(this.lines.cross, x);
    const tag = this.lines.cross.firstElementChild;
    tag.textContent = moment(time, this.stage.ticks.step >= 10 ? 1 : this.stage.ticks.step / 10);
    tag.classList.toggle("left", x !== null && x > this.stage.width - 90);
  }

  lineAt(line, x) {
    line.hidden = x === null || x < this.stage.gutter - 0.5 || x > this.stage.right + 0.5;
    if (!line.hidden) line.style.transform = `translateX(${x}px)`;
  }

  brush(from, to) {
    const box = this.lines.brush;
    box.hidden = from === null;
    if (box.hidden) return;
    const [left, right] = [from, to].map((x) => Math.min(Math.max(x, this.stage.gutter), this.stage.right)).sort((a, b) => a - b);
    box.style.left = `${left}px`;
    box.style.width = `${right - left}px`;
  }

  leave() {
    this.tooltip.hide();
    this.lineAt(this.lines.cross, null);
  }

  click(panel, x, y, event) {
    this.hover(panel, x, y, event.clientX, event.clientY);
    const row = panel.hit(x, y)?.row;
    if (row) this.select(row);
    if (panel === this.overview && !this.stage.view.whole) {
      const { span } = this.stage.view, time = this.overview.time(x);
      this.stage.view.show(time - span / 2, time + span / 2);
    }
  }

  // Mark the time of a row in all panels, and the row in the list; null: mark nothing.
  select(row) {
    this.marked = row;
    this.table.mark(row);
    if (row) this.stage.view.reveal(row.at);
    this.offerJump();
    this.schedule();
  }
}

function canvasOf(name, deployment = null, run = null) {
  const which = Object.entries({ deployment, run }).filter(([, place]) => place !== null).map(([key, place]) => `[data-${key}="${place}"]`).join("");
  return document.querySelector(`canvas[data-panel="${name}"]${which}`);
}

function copyCommand(button) {
  const code = button.parentElement.querySelector("code");
  const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
  const byHand = () => {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (document.execCommand("copy")) done();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, byHand);
  else byHand();
}

function themeButton(timeline) {
  const button = document.getElementById("theme"), root = document.documentElement;
  button.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    timeline.repaint();
  });
}

// The page is drawn: let people and tests at it.
function openPage(timeline) {
  themeButton(timeline);
  for (const button of document.querySelectorAll("button.copy")) button.addEventListener("click", () => copyCommand(button));
}
