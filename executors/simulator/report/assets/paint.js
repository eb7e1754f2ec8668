// Drawing: colours of the theme, hatched fills, letters that fit, and canvases as sharp as the screen.

const CANVAS_MAX = 16000;

class Ink {
  constructor() {
    this.patterns = new Map();
    this.refresh();
  }

  // Read the colours again: the theme has changed.
  refresh() {
    const style = getComputedStyle(document.documentElement);
    this.of = {};
    for (const name of ["paper", "card", "ink", "soft", "faint", "line", "lane", "bad", "moving", "good", "change", "controller"]) {
      this.of[name] = style.getPropertyValue(`--${name}`).trim();
    }
    this.replica = Array.from({ length: COLOURS }, (_, index) => style.getPropertyValue(`--c${index}`).trim());
    this.run = Array.from({ length: 4 }, (_, index) => style.getPropertyValue(`--run${index}`).trim());
    this.sans = style.getPropertyValue("--sans").trim();
    this.patterns.clear();
  }

  // Letters that can be read on a colour.
  on(colour) {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.2 ? "#14181c" : "#ffffff";
  }

  // Diagonal stripes: `colour` over `ground` (null: over what is there), `width` of `every` CSS pixels.
  stripes(context, colour, ground, every, width, falling = false) {
    const ratio = context.getTransform().a || 1;
    const key = [colour, ground, every, width, falling, ratio].join();
    let pattern = this.patterns.get(key);
    if (pattern === undefined) {
      const size = Math.max(2, Math.round(every * ratio));
      const tile = document.createElement("canvas");
      tile.width = tile.height = size;
      const pen = tile.getContext("2d");
      if (ground !== null) {
        pen.fillStyle = ground;
        pen.fillRect(0, 0, size, size);
      }
      pen.strokeStyle = colour;
      pen.lineWidth = width * ratio * 0.72;
      pen.beginPath();
      for (const shift of [-size, 0, size]) {
        pen.moveTo(shift - 1, falling ? -1 : size + 1);
        pen.lineTo(shift + size + 1, falling ? size + 1 : -1);
      }
      pen.stroke();
      pattern = context.createPattern(tile, "repeat");
      pattern.setTransform(new DOMMatrix().scale(1 / ratio));
      this.patterns.set(key, pattern);
    }
    return pattern;
  }
}

// A canvas that has a size in CSS pixels and as many real ones as the screen; returns its context, cleared.
function prepare(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, CANVAS_MAX / Math.max(width, height, 1));
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// As much of the candidates as fits, the longest that does; nothing where none does.
function fitting(context, candidates, width) {
  return candidates.find((text) => context.measureText(text).width <= width) ?? "";
}

function faded(context, alpha, draw) {
  const before = context.globalAlpha;
  context.globalAlpha = before * alpha;
  draw();
  context.globalAlpha = before;
}
