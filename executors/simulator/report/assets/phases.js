// How far a replica is with its rank: words, and what it looks like in a lane.

const STARTING = new Set(["starting", "waiting for room"]);

const PHASE_WORDS = {
  "waiting for room": "waiting for room on a node",
  moving: "moving: told of another rank, not acknowledged yet",
  reconfiguring: "reconfiguring: told of another configuration, node rank or local rank, not acknowledged yet",
  hung: "hung: alive, but unhealthy",
  unready: "unready: takes no requests for now",
  draining: "draining: finishes what it has, takes nothing new",
};

function paintPhase(context, ink, segment, colour, x, y, width, h) {
  const box = () => {
    context.beginPath();
    context.roundRect(x, y, width, h, h >= 9 && width >= 6 ? 2.5 : 0);
  };
  const { phase } = segment;
  let letters = ink.on(colour);
  box();
  if (phase === "waiting for room") {
    context.strokeStyle = ink.of.soft;
    context.lineWidth = 1;
    context.setLineDash([4, 3]);
    if (h >= 4) context.strokeRect(x + 0.5, y + 1.5, width - 1, h - 3);
    context.setLineDash([]);
    letters = ink.of.ink;
  } else if (STARTING.has(phase) || phase === "draining") {
    context.fillStyle = ink.of.card;
    context.fill();
    faded(context, phase === "draining" ? 0.5 : 0.22, () => { context.fillStyle = colour; context.fill(); });
    faded(context, 0.75, () => {
      context.fillStyle = ink.stripes(context, phase === "draining" ? ink.of.card : colour, null, phase === "draining" ? 5 : 7, 2, phase === "draining");
      context.fill();
    });
    letters = ink.of.ink;
  } else {
    context.fillStyle = colour;
    context.fill();
    const stripe = { moving: ink.of.moving, reconfiguring: ink.of.card, hung: ink.of.bad, unready: ink.of.soft }[phase];
    if (stripe) {
      context.fillStyle = ink.stripes(context, stripe, null, phase === "moving" ? 9 : 7, phase === "reconfiguring" ? 1.5 : 4);
      context.fill();
      return;
    }
  }
  if (h >= 12 && !segment.beside) label(context, ink, segment, letters, x, y, width, h);
}

function label(context, ink, segment, letters, x, y, width, h) {
  const { label: id } = segment.replica;
  const word = segment.phase === "running" ? "" : ` ${segment.phase}`;
  const text = fitting(context, [`${id}${word}`, id], width - 12);
  if (!text) return;
  if (STARTING.has(segment.phase)) {
    faded(context, 0.8, () => {
      context.fillStyle = ink.of.card;
      context.fillRect(x + 4, y + 2, context.measureText(text).width + 6, h - 4);
    });
  }
  context.fillStyle = letters;
  context.fillText(text, x + 7, y + h / 2 + 0.5);
}
