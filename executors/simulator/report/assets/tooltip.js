// What is under the pointer, in words. The element has the facts as data attributes, too.

class Tooltip {
  constructor() {
    this.box = document.getElementById("tooltip");
    this.live = document.getElementById("live");
  }

  show(found, x, y, aloud = false) {
    this.box.replaceChildren();
    for (const key of Object.keys(this.box.dataset)) delete this.box.dataset[key];
    for (const [key, value] of Object.entries(found.attributes)) this.box.dataset[key] = value;
    const head = element("div", { class: "head" });
    head.append(element("b", {}, found.title));
    if (found.subtitle) head.append(element("span", {}, found.subtitle));
    const list = element("dl");
    for (const [term, words] of found.lines) {
      if (term) list.append(element("dt", {}, term));
      list.append(element("dd", term ? {} : { class: "wide" }, words));
    }
    this.box.append(head, list);
    this.box.hidden = false;
    this.place(x, y);
    if (aloud) this.live.textContent = [found.title, ...found.lines.map((line) => line.join(" "))].join(", ");
  }

  place(x, y) {
    const { offsetWidth: width, offsetHeight: height } = this.box;
    const left = x + 16 + width > window.innerWidth - 8 ? x - width - 16 : x + 16;
    const top = y + 18 + height > window.innerHeight - 8 ? y - height - 14 : y + 18;
    this.box.style.left = `${Math.max(8, Math.min(left, window.innerWidth - width - 8))}px`;
    this.box.style.top = `${Math.max(8, top)}px`;
  }

  hide() { this.box.hidden = true; }
}
