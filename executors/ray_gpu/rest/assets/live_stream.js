// The stream of events, read with fetch so that a token goes in a header and into no log; comes back by itself.

const SILENT_MS = 40000;  // something comes every 15 s
const AGAIN_MS = [1000, 2000, 4000, 8000];

class LiveStream {
  // on: { past(data), sample(data), state(word, text) }
  constructor(on) {
    this.on = on;
    this.token = null;  // in memory only: a page that is loaded again asks again
    this.failed = 0;
    this.timer = null;
    this.run = 0;
  }

  get headers() { return this.token === null ? {} : { authorization: `Bearer ${this.token}` }; }

  async connect() {
    const run = ++this.run;
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    this.on.state("connecting", "connecting");
    try {
      const answer = await fetch("/api/v1/live", { headers: this.headers, cache: "no-store", signal: abort.signal });
      if (run !== this.run) return;
      if (answer.status === 401) return this.on.state("login", this.token === null ? "" : "This server does not take that token.");
      if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `status ${answer.status}`);
      await this.read(answer.body.getReader(), abort, run);
      throw new Error("the stream has ended");
    } catch (error) {
      if (run === this.run) this.again(error);
    }
  }

  async read(reader, abort, run) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const watch = setTimeout(() => abort.abort(), SILENT_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(watch));
      if (done || run !== this.run) return;
      rest += decoder.decode(value, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) this.event(block);
    }
  }

  event(block) {
    let kind = "message", data = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data || !(kind in this.on)) return;
    if (kind === "past") {
      this.failed = 0;
      this.on.state("live", "live");
    }
    this.on[kind](JSON.parse(data));
  }

  again(error) {
    const wait = AGAIN_MS[Math.min(this.failed++, AGAIN_MS.length - 1)];
    const why = error.name === "TypeError" || error.name === "AbortError" ? "" : ` (${error.message})`;
    this.on.state("lost", `connection lost${why}; next try in ${wait / 1000} s`);
    this.timer = setTimeout(() => this.connect(), wait);
  }
}
