// The list of what happened: filtered by words, by kind and by what is on the screen; a click marks the time.

const ROWS_AT_ONCE = 200;

class Table {
  constructor(stage, select) {
    this.stage = stage;
    this.select = select;
    this.body = document.querySelector("#rows tbody");
    this.words = document.getElementById("filter");
    this.inView = document.getElementById("in-view");
    this.told = document.getElementById("rows-told");
    this.more = document.getElementById("more");
    this.hidden = new Set(["routine"]);
    this.shown = ROWS_AT_ONCE;
    this.selected = null;
    this.chips();
    const again = () => { this.shown = ROWS_AT_ONCE; this.render(); };
    this.words.addEventListener("input", again);
    this.inView.addEventListener("change", again);
    this.more.addEventListener("click", () => { this.shown += ROWS_AT_ONCE; this.render(); });
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.render();
  }

  chips() {
    const holder = document.getElementById("kinds"), { rows } = this.stage.model;
    for (const [group, name] of Object.entries(GROUPS)) {
      const count = rows.filter((row) => row.group === group).length;
      if (!count) continue;
      const chip = element("button", { type: "button", class: `chip ${group}`, "aria-pressed": String(!this.hidden.has(group)), "data-group": group });
      chip.append(element("i", { class: "sign", "aria-hidden": "true" }), `${name} `, element("b", {}, count.toLocaleString("en-US")));
      chip.addEventListener("click", () => {
        const off = !this.hidden.has(group);
        if (off) this.hidden.add(group);
        else this.hidden.delete(group);
        chip.setAttribute("aria-pressed", String(!off));
        this.shown = ROWS_AT_ONCE;
        this.render();
      });
      holder.append(chip);
    }
  }

  get matching() {
    const words = this.words.value.toLowerCase().match(/rank \d+|only [a-d]\b|\S+/g) ?? [];
    const { view, model } = this.stage;
    return model.rows.filter((row) => {
      if (this.hidden.has(row.group)) return false;
      if (this.inView.checked && (row.at < view.since || row.at > view.until)) return false;
      if (!words.length) return true;
      const ranks = row.ranks.split(" \u2192 ").map((rank) => `rank ${rank}`).join(" ");
      const text = `${row.only ?? ""} ${row.what} ${row.name} ${row.whom} ${ranks} ${row.text} ${row.rule} ${moment(row.at)} `.toLowerCase();
      return words.every((word) => contains(text, word));
    });
  }

  render() {
    const rows = this.matching, { model } = this.stage;
    const many = model.deployments.length > 1;
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.line(row, many)));
    const left = rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `show ${Math.min(left, ROWS_AT_ONCE)} more of ${left.toLocaleString("en-US")}`;
    const filtered = rows.length === model.rows.length ? "" : ` of ${model.rows.length.toLocaleString("en-US")}`;
    const lost = model.leftOut.rows ? `; ${model.leftOut.rows.toLocaleString("en-US")} more are in the journal only` : "";
    this.told.textContent = `${rows.length.toLocaleString("en-US")}${filtered} lines${lost}`;
  }

  line(row, many) {
    const line = element("tr", { "data-row": row.index, "data-group": row.group, "data-at": row.at });
    if (row === this.selected) line.setAttribute("aria-selected", "true");
    const time = element("button", { type: "button", class: "time" }, moment(row.at));
    const until = row.until === null ? "" : `, until ${moment(row.until)}`;
    const what = element("td", { class: `what ${row.group}` });
    what.append(element("i", { class: "sign", "aria-hidden": "true" }), row.what);
    if (row.only) what.append(" ", element("span", { class: "rule only" }, row.only));
    const whom = element("td", { class: "whom" });
    if (row.whom || (many && row.name)) whom.append(row.whom || row.name);
    const rank = element("td", { class: "rank" }, row.ranks && `rank ${row.ranks}`);
    const text = element("td", { class: "text" });
    text.append(row.text + until);
    if (row.rule) text.append(" ", element("span", { class: "rule", title: "the promise or section of the design that this follows" }, row.rule));
    const first = element("td");
    first.append(time);
    line.append(first, what, whom, rank, text);
    return line;
  }

  clicked(event) {
    const line = event.target.closest("tr[data-row]");
    if (line) this.select(this.stage.model.rows[Number(line.dataset.row)]);
  }

  mark(row) {
    this.selected = row;
    for (const line of this.body.querySelectorAll("[aria-selected]")) line.removeAttribute("aria-selected");
    if (row) this.body.querySelector(`tr[data-row="${row.index}"]`)?.setAttribute("aria-selected", "true");
  }

  viewChanged() {
    if (this.inView.checked) this.render();
  }
}

// `rank 3` is one word, and not found in `rank 30`.
function contains(text, word) {
  if (!word.startsWith("rank ")) return text.includes(word);
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!/\d/.test(text[at + word.length])) return true;
  }
  return false;
}
