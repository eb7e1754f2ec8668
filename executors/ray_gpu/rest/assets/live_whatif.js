// The box that asks what if: a form, one question at a time, and what came of it in words and numbers.

const WHATIF_FIGURES = [
  ["ranks without a replica, longest", (lanes) => duration(lanes.gaps.reduce((most, gap) => Math.max(most, gap[2] - gap[1]), 0))],
  ["calls waiting, most", (lanes) => amount(highest(lanes, "waiting"))],
  ["p50, worst 10 s", (lanes) => seconds(highest(lanes, "p50"))],
  ["p99, worst 10 s", (lanes) => seconds(highest(lanes, "p99"))],
  ["calls answered", (lanes) => amount(lanes.calls.done)],
  ["calls without an answer", (lanes) => amount(lanes.calls.lost + lanes.calls.failed + lanes.calls.expired)],
  ["status at the end", (lanes) => lanes.status],
];

function highest(lanes, key) { return lanes.points.reduce((most, point) => Math.max(most, point[key] ?? 0), 0); }
function seconds(value) { return value === 0 ? "none" : duration(value); }

class WhatIfBox {
  // show(prediction or null): the pictures draw it.
  constructor(model, stream, show) {
    Object.assign(this, { model, stream, show });
    this.form = document.getElementById("whatif-form");
    this.told = document.getElementById("whatif-answer");
    this.more = document.getElementById("whatif-more");
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.ask(); });
    this.form.addEventListener("change", () => this.enable());
    document.getElementById("whatif-clear").addEventListener("click", () => this.clear());
    for (const radio of document.getElementsByName("shown")) radio.addEventListener("change", () => this.choose(radio.value));
    this.prediction = null;
    this.names = "";
    this.enable();
  }

  // What can be chosen is what there is; a choice that was made stays.
  refresh() {
    const deployments = this.model.there.filter((each) => !each.said.residency).map((each) => [each.name, each.name]);
    const nodes = this.model.nodes.map((node) => [node.id, `${node.id.slice(0, 12)} (${node.address}, ${this.count(node.id)} replicas)`]);
    const names = JSON.stringify([deployments, nodes]);
    if (names === this.names) return;
    this.names = names;
    this.options(this.form.deployment, deployments);
    this.options(this.form.node, nodes);
    this.enable();
  }

  count(node) { return this.model.there.reduce((sum, each) => sum + each.replicas.filter((replica) => replica[2] === node).length, 0); }

  options(select, pairs) {
    const chosen = select.value;
    select.replaceChildren(...pairs.map(([value, text]) => element("option", { value }, text)));
    if (pairs.some(([value]) => value === chosen)) select.value = chosen;
  }

  enable() {
    const happens = this.form.happens.value, said = this.model.deployments.get(this.form.deployment.value)?.said;
    for (const key of ["node", "target", "rank"]) this.form[key].disabled = happens !== key;
    this.form.rank.max = said ? Math.max(0, said.target - 1) : "";
    if (said && !this.form.target.value) this.form.target.value = said.target + 1;
    if (!this.asking) this.form.querySelector("[type=submit]").disabled = said === undefined;
  }

  async ask() {
    if (this.asking) return;
    const { deployment, happens, horizon } = this.form, key = happens.value;
    const value = key === "node" ? this.form.node.value : Number(this.form[key].value);
    const body = { deployment: deployment.value, [key]: value, horizon_s: Number(horizon.value) };
    const submit = this.form.querySelector("[type=submit]");
    this.asking = true;
    submit.disabled = true;
    submit.textContent = "computing\u2026";
    this.told.className = "";
    this.told.textContent = "The present state goes on in the simulator; this takes some seconds.";
    try {
      const asked = await fetch("/api/v1/whatif", {
        method: "POST", headers: { ...this.stream.headers, "content-type": "application/json" }, body: JSON.stringify(body),
      });
      const answer = await asked.json();
      if (asked.ok) this.tell(answer);
      else this.refuse(answer.error ?? `status ${asked.status}`);
    } catch (error) {
      this.refuse(`no answer: ${error.message}`);
    } finally {
      this.asking = false;
      submit.textContent = "predict";
      this.enable();
    }
  }

  refuse(text) {
    this.told.className = "refused";
    this.told.textContent = text;
  }

  tell(answer) {
    const at = this.model.now ?? Date.now() / 1000;  // the controller's clock is another one
    const shown = "then";
    this.prediction = { ...answer, at, horizon: answer.horizon_s, shown, colours: new Map() };
    this.told.className = "";
    const lanes = answer.lanes[answer.deployment];
    this.told.textContent = lanes.then.broken ? `${answer.answer} The run ended early: ${lanes.then.broken}` : answer.answer;
    const rows = WHATIF_FIGURES.map(([label, of]) => {
      const row = element("tr"), [then, without] = [of(lanes.then), of(lanes.without)];
      row.append(element("th", { scope: "row" }, label), element("td", then === without ? {} : { class: "differs" }, then), element("td", {}, without));
      return row;
    });
    document.getElementById("whatif-figures").replaceChildren(...rows);
    const rates = answer.rates.map((rate) => {
      const line = element("li", {}, `${rate.of}: ${rate.what} `);
      line.append(element("b", {}, rate.value), element("span", {}, ` (${rate.from})`));
      return line;
    });
    document.getElementById("whatif-rates").replaceChildren(...rates);
    document.getElementById("whatif-assumed").replaceChildren(...answer.assumed.map((text) => element("li", {}, text)));
    document.getElementById("shown-then").checked = true;
    this.more.hidden = false;
    this.show(this.prediction);
  }

  choose(which) {
    if (this.prediction === null) return;
    this.prediction.shown = which;
    this.show(this.prediction);
  }

  clear() {
    this.prediction = null;
    this.more.hidden = true;
    this.told.textContent = "";
    this.show(null);
    this.form.deployment.focus();
  }

  // Once all of it has passed there is nothing ahead to be shown.
  expire() {
    if (this.prediction !== null && this.model.now > this.prediction.at + this.prediction.horizon) {
      this.prediction = null;
      this.show(null);
    }
  }
}
