// Tables: who has which rank, nodes, and notes. Rows are written again only where something has changed.

function cells(row, ...texts) {
  for (const text of texts) row.append(element("td", {}, String(text)));
  return row;
}

function shortNode(id) { return id === null ? "none yet" : id.slice(0, 12); }

class RankTable {
  constructor(model) {
    this.model = model;
    this.body = document.getElementById("ranks-rows");
    this.seen = "";
  }

  refresh() {
    const rows = [];
    for (const deployment of this.model.there) {
      for (const rank of deployment.ranks()) {
        const holder = deployment.holderOf(rank);
        const gap = (deployment.gaps.get(rank) ?? []).find((each) => each.until === null);
        if (holder === null && gap === undefined) continue;
        rows.push([
          deployment.name, rank, holder?.replica.id ?? "nobody", holder?.phase ?? "vacant", holder ? shortNode(holder.node) : "",
          clock(holder?.since ?? gap.since), holder?.message ?? "",
        ]);
      }
    }
    const seen = JSON.stringify(rows);
    if (seen === this.seen) return;
    this.seen = seen;
    this.body.replaceChildren(...rows.map(([name, rank, ...rest]) => {
      const row = element("tr", rest[1] === "running" ? {} : { class: "odd" });
      row.append(element("th", { scope: "row" }, name));
      return cells(row, rank, ...rest);
    }));
    document.getElementById("ranks-none").hidden = rows.length > 0;
  }
}

class NodeTable {
  constructor(model) {
    this.model = model;
    this.body = document.getElementById("nodes-rows");
    this.seen = "";
  }

  refresh() {
    const { model } = this;
    const nodes = model.nodes.map((node) => ({ node, state: this.state(node), bad: node.cordon !== undefined }));
    for (const { since, node } of model.gone.values()) nodes.push({ node, state: `gone since ${clock(since)}`, bad: true, gone: true });
    const rows = nodes.map((each) => ({ ...each, held: this.held(each), weights: this.weights(each.node) }));
    const seen = JSON.stringify(rows);
    if (seen === this.seen) return;
    this.seen = seen;
    this.body.replaceChildren(...rows.map(({ node, state, bad, gone, held, weights }) => {
      const row = element("tr", bad ? { class: "odd" } : {});
      const name = element("th", { scope: "row", title: node.id }, shortNode(node.id));
      name.append(element("small", {}, node.address));
      row.append(name);
      cells(row, state, held);
      for (const what of ["CPU", "GPU"]) row.append(gone ? element("td") : this.meter(node, what));
      const list = element("td", { class: "weights" });
      for (const gpu of node.gpus?.length && !gone ? node.gpus.map((pair, index) => [`GPU ${index}`, ...pair]) : []) list.append(this.bytes(...gpu));
      if (node.host?.[0] && !gone) list.append(this.bytes("host", ...node.host));
      for (const text of weights) list.append(element("div", {}, text));
      if (!list.children.length) list.textContent = "none planned";
      row.append(list);
      return row;
    }));
  }

  state({ cordon }) {
    if (cordon === undefined) return "open";
    const left = cordon.left_s === null || cordon.left_s === undefined ? "" : `, ${cordon.left_s} s left`;
    return `${cordon.state}${left}${cordon.reason ? `: ${cordon.reason}` : ""}`;
  }

  held({ node, gone }) {
    if (gone) return "";
    const found = this.model.there.map((each) => [each.name, each.replicas.filter((replica) => replica[2] === node.id)])
      .filter(([, replicas]) => replicas.length);
    return found.map(([name, replicas]) => {
      const ranks = replicas.map((replica) => replica[0]).filter((rank) => rank !== null);
      return `${name}: ${ranks.length ? `rank${ranks.length > 1 ? "s" : ""} ${ranks.slice(0, 12).join(", ")}${ranks.length > 12 ? ", \u2026" : ""}` : `${replicas.length} without a rank`}`;
    }).join("; ") || "nobody";
  }

  meter(node, what) {
    const total = node.total[what] ?? 0, used = Math.max(0, total - (node.free[what] ?? 0)), cell = element("td");
    if (!total) { cell.textContent = "none"; return cell; }
    const words = `${amount(used)} of ${amount(total)}`;
    cell.append(element("meter", { min: 0, max: total, value: used, "aria-label": `${what}: ${words} in use` }), element("span", {}, words));
    return cell;
  }

  bytes(name, total, free) {
    const gb = (bytes) => amount(bytes / 1e9), words = `${name}: ${gb(total - free)} of ${gb(total)} GB`, found = element("div");
    found.append(element("meter", { min: 0, max: Math.max(1, total), value: total - free, "aria-label": words }), element("span", {}, words));
    return found;
  }

  weights(node) {
    return this.model.there.flatMap((each) => each.workers.filter((worker) => worker[3] === node.id).map((worker) => {
      const [, level, phase, , gpus, , percent] = worker;
      const where = gpus.length ? ` on GPU ${gpus.join(", ")}` : "", how = percent === null ? "" : `, ${percent} % loaded`;
      return `${each.name}: ${phase.toUpperCase() === "LOADING" ? "LOADING" : level}${where}${how}`;
    }));
  }
}

class NoteLog {
  constructor(model) {
    this.model = model;
    this.list = document.getElementById("notes-list");
    this.pause = document.getElementById("notes-pause");
    this.aloud = document.getElementById("notes-aloud");
    this.paused = false;
    this.pause.addEventListener("click", () => {
      this.paused = !this.paused;
      this.pause.setAttribute("aria-pressed", String(this.paused));
      this.pause.textContent = this.paused ? "go on" : "pause";
      this.refresh();
    });
    this.aloud.addEventListener("change", () => this.list.setAttribute("aria-live", this.aloud.checked ? "polite" : "off"));
    this.shown = null;
    this.length = 0;
  }

  // The newest first; only new ones are added, so that a screen reader reads no more than these.
  refresh() {
    const { notes } = this.model;
    const from = this.shown === null ? 0 : notes.indexOf(this.shown) + 1;
    const fresh = notes.slice(from);
    document.getElementById("notes-held").textContent = this.paused && fresh.length ? `${fresh.length} more` : "";
    if (this.paused || !fresh.length) return;
    if (from === 0) this.list.replaceChildren();
    for (const note of fresh) this.list.prepend(this.item(note));
    while (this.list.children.length > NOTES_KEPT) this.list.lastChild.remove();
    this.shown = notes[notes.length - 1];
    document.getElementById("notes-none").hidden = true;
  }

  item(note) {
    const item = element("li");
    item.append(element("time", {}, clock(note.seen)));
    if (note.missed) {
      item.append(element("span", {}, `${note.missed} notes are left out here: GET /api/v1/notes has them`));
      return item;
    }
    const of = note.of ?? note, whom = of.replica_id ?? of.worker_id ?? note.deployment ?? "";
    item.append(element("b", {}, of.kind ?? note.kind ?? "note"), element("span", { class: "whom" }, whom));
    const because = of.because ?? note.because;
    if (because) item.append(element("span", { class: "because", title: because }, because));
    return item;
  }
}
