// Puts the page together: what the stream says goes into the model, and everything is drawn again once for each sample.

const model = new LiveModel(), ink = new Ink(), view = new LiveView(model, ink), tooltip = new Tooltip();
const pictures = new Map();
const lanes = document.getElementById("lanes");
const connection = document.getElementById("connection");
const login = document.getElementById("login");
const WORDS = { live: "live", connecting: "connecting", lost: "lost", login: "a token is needed" };

const stream = new LiveStream({
  past(data) { model.past(data); notes.shown = null; draw(); },
  sample(data) { model.apply(data); draw(); },
  state(word, text) {
    connection.dataset.state = word;
    connection.textContent = word === "login" ? WORDS.login : text;
    login.hidden = word !== "login";
    document.getElementById("login-wrong").textContent = word === "login" ? text : "";
    if (word === "login") document.getElementById("token").focus();
  },
});
const whatif = new WhatIfBox(model, stream, (prediction) => { view.prediction = prediction; draw(); });
const tables = [new RankTable(model), new NodeTable(model)];
const notes = new NoteLog(model);

function draw() {
  document.getElementById("problem").hidden = model.problem === null;
  document.getElementById("problem").textContent = model.problem === null ? "" : `The controller: ${model.problem}`;
  document.getElementById("time").textContent = model.now === null ? "" : clock(model.now);
  whatif.expire();
  layPictures();
  for (const picture of pictures.values()) picture.draw();
  for (const table of tables) table.refresh();
  notes.refresh();
  whatif.refresh();
  document.documentElement.dataset.ready = "yes";
}

// A card for each deployment, with its numbers and its canvases.
function layPictures() {
  for (const [name, picture] of pictures) {
    if (model.deployments.get(name) === picture.deployment) continue;
    picture.card.remove();
    pictures.delete(name);
  }
  const there = [...model.deployments.values()].sort((a, b) => a.name.localeCompare(b.name));
  document.getElementById("lanes-none").hidden = there.length > 0 || model.now === null;
  for (const deployment of there) {
    if (!pictures.has(deployment.name)) pictures.set(deployment.name, cardOf(deployment));
    const { card } = pictures.get(deployment.name);
    if (card.parentNode === null) lanes.append(card);
    tellNumbers(card, deployment);
  }
  const first = pictures.values().next().value;
  const width = first?.canvases.ranks.clientWidth;
  if (width) view.resize(width);
}

const CANVASES = [
  ["ranks", "ranks", "who holds each rank"], ["waiting", "calls waiting", "for a replica"],
  ["latency", "p50 and p99", "seconds at the replica, of the last 10 s; predicted: with waiting"], ["rate", "calls per second", "that ended"], ["axis", "", ""],
];

function cardOf(deployment) {
  const card = element("article", { class: "card", "aria-label": deployment.name, "data-deployment": deployment.name });
  const head = element("div", { class: "head" });
  head.append(element("h3", {}, deployment.name), element("span", { class: "status" }));
  card.append(head, element("p", { class: "message" }), element("dl", { class: "numbers" }));
  const canvases = {};
  for (const [key, title, about] of CANVASES) {
    if (title) {
      const line = element("h4", {}, title);
      line.append(element("small", {}, about));
      card.append(line);
    }
    canvases[key] = element("canvas", key === "axis" ? { "aria-hidden": "true" } : { role: "img", "data-panel": key, "data-what": title });
    card.append(canvases[key]);
  }
  const picture = new LivePicture(view, deployment, canvases, tooltip);
  picture.card = card;
  return picture;
}

function tellNumbers(card, deployment) {
  const { said, served } = deployment, status = card.querySelector(".status");
  status.textContent = deployment.left === null ? said.status : "deleted";
  status.dataset.good = String(said.status === "HEALTHY" && deployment.left === null);
  const message = card.querySelector(".message");
  message.textContent = [said.message, said.rollout].filter(Boolean).join("; ");
  message.hidden = !message.textContent;
  const numbers = [
    ["ranks served", `${served} of ${said.target}`], ["waiting", amount(said.waiting)], ["at replicas", amount(said.in_flight)],
    ["calls/s", said.rate === null ? "\u2013" : amount(said.rate)],
    ["p50", said.p50 === null ? "\u2013" : duration(said.p50)], ["p99", said.p99 === null ? "\u2013" : duration(said.p99)],
  ];
  card.querySelector(".numbers").replaceChildren(...numbers.map(([term, value]) => {
    const pair = element("div");
    pair.append(element("dt", {}, term), element("dd", {}, value));
    return pair;
  }));
}

login.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = document.getElementById("token");
  stream.token = field.value.trim();
  field.value = "";
  stream.connect();
});
document.getElementById("back").addEventListener("change", (event) => { view.back = Number(event.target.value); draw(); });
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  ink.refresh();
  draw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { ink.refresh(); draw(); });
new ResizeObserver(() => { if (model.now !== null) draw(); }).observe(lanes);
stream.connect();
