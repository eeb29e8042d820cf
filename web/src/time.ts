// One bar of time: live, or again from the server's log, with how much happened when.

import { css, html, nothing } from "lit";
import { happening, type Happening } from "./city";
import { clock, count, Panel } from "./panel";
import { ask } from "./server";
import { shared } from "./style";

const LOADED = 20_000;
const BARS = 160;
const LIVE_S = 300;
const SPEEDS = [1, 2, 5, 10, 20];
const TICK_MS = 100;
const EARLIER = 5000; // entries of the log that the bar shows of what was before the page came
const HOLDS_MS = 30_000; // what does not say how long it holds is shown so long

export class NearTime extends Panel {
  static override properties = { ...Panel.properties, moment: { state: true }, playing: { state: true }, speed: { state: true }, loading: { state: true } };
  static override styles = [shared, css`
    :host { padding: 6px 14px; }
    .row { margin: 0; flex-wrap: nowrap; }
    .when { font-variant-numeric: tabular-nums; min-width: 74px; text-align: center; }
    .bar { position: relative; height: 46px; }
    canvas { position: absolute; inset: 0 0 14px; width: 100%; height: 30px; pointer-events: none; }
    input { position: absolute; left: 0; bottom: 0; margin: 0; min-height: 16px; accent-color: var(--accent); background: none; border: none; }
    select { width: auto; }
    @media (max-width: 760px) { .ends { display: none; } }
  `];
  declare moment: number | null;
  declare playing: boolean;
  declare speed: number;
  declare loading: string;
  protected override listens = ["figures"];
  private log: Happening[] = [];
  private earlier: number[] = []; // moments of what happened before this page came
  private timer = 0;

  constructor() {
    super();
    this.moment = null;
    this.playing = false;
    this.speed = 1;
    this.loading = "";
  }

  get live(): boolean {
    return this.moment === null;
  }

  override render() {
    if (!this.desk) return nothing;
    const [from, to] = this.span();
    const now = this.moment ?? this.city.now();
    return html`<div class="row">
      <button aria-pressed=${this.live} @click=${() => this.goLive()}>Live</button>
      <button aria-pressed=${!this.live} ?disabled=${!!this.loading} title="What was published, again, from the server's log" @click=${() => void this.begin()}>${this.loading || "Replay"}</button>
      ${this.live ? nothing : html`
        <button class="play" @click=${() => this.play(!this.playing)}>${this.playing ? "Pause" : "Play"}</button>
        <select aria-label="Speed" .value=${String(this.speed)} @change=${(event: Event) => (this.speed = Number((event.target as HTMLSelectElement).value))}>
          ${SPEEDS.map((each) => html`<option value=${each} ?selected=${each === this.speed}>${each}×</option>`)}</select>`}
      <small class="ends">${clock(from)}</small>
      <div class="bar grow"><canvas aria-hidden="true"></canvas>
        <input type="range" aria-label="Moment" aria-valuetext=${clock(now)} min=${from} max=${to} step="1" .value=${String(Math.min(to, Math.max(from, now)))} @input=${(event: Event) => this.slide(Number((event.target as HTMLInputElement).value))} /></div>
      <small class="ends">${clock(to)}</small>
      <span class="when" data-testid="when">${this.live ? "now" : clock(now)}</span>
      ${this.trouble ? html`<span class="bad" role="status">${this.trouble}</span>` : nothing}
    </div>`;
  }

  private span(): [number, number] {
    if (this.live || !this.log.length) return [this.city.now() - 1000 * LIVE_S, this.city.now()];
    const [first, last] = [this.log[0].at, this.log[this.log.length - 1].at];
    return [first, Math.max(last, first + 1000)];
  }

  override updated(): void {
    super.updated();
    const canvas = this.renderRoot.querySelector("canvas");
    if (!canvas || !this.desk) return;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const ratio = devicePixelRatio;
    if (canvas.width !== width * ratio) [canvas.width, canvas.height] = [width * ratio, height * ratio];
    const [from, to] = this.span();
    const bars = new Array<number>(BARS).fill(0);
    const add = (at: number, amount: number) => {
      const bar = Math.floor(((at - from) / (to - from)) * BARS);
      if (bar >= 0 && bar < BARS) bars[bar] += amount;
      else if (at === to) bars[BARS - 1] += amount;
    };
    if (this.live) {
      for (const at of this.earlier) add(at, 1);
      for (const each of this.city.figures) add(each.t * 1000, each.events);
    }
    else for (const each of this.log) add(each.at, 1);
    const most = Math.max(1, ...bars);
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(this);
    const now = this.moment ?? to;
    context.fillStyle = style.getPropertyValue("--line");
    context.fillRect(0, height - 1, width, 1);
    bars.forEach((bar, n) => {
      const past = from + ((n + 0.5) / BARS) * (to - from) <= now;
      context.fillStyle = style.getPropertyValue(past ? "--accent" : "--edge");
      const tall = bar ? Math.max(1.5, (bar / most) * height) : 0;
      context.fillRect((n / BARS) * width, height - tall, Math.max(1, width / BARS - 1), tall);
    });
  }

  /** What happened before this page came, as far as the bar goes. */
  async look(): Promise<void> {
    const begun = this.city.now();
    const moments: number[] = [];
    let after = Math.max(0, this.city.offset - EARLIER);
    while (after < this.city.offset) {
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const page: any = await ask("GET", `/v1/log?after=${after}&limit=1000`).catch(() => null);
      if (!page?.events.length) break;
      for (const each of page.events) moments.push(Date.parse(each.time ?? ""));
      after = page.next;
    }
    this.earlier = moments.filter((each) => each <= begun);
    this.requestUpdate();
  }

  /** Load the end of the log, and begin at a moment of it. */
  async begin(at: number | null = null): Promise<void> {
    this.trouble = "";
    const log: Happening[] = [];
    try {
      let after = Math.max(0, this.city.offset - LOADED);
      while (log.length < LOADED) {
        this.loading = `${count(log.length)} …`;
        // eslint-disable-next-line @typescript-eslint/no-explicit-any
        const page: any = await ask("GET", `/v1/log?after=${after}&limit=1000`);
        for (const each of page.events) log.push(fromEnvelope(each));
        if (!page.events.length || page.next === after) break;
        after = page.next;
      }
    } catch (error) {
      this.trouble = String(error instanceof Error ? error.message : error);
    }
    this.loading = "";
    if (!log.length) {
      this.trouble ||= "there is nothing in the log yet";
      return;
    }
    if (!dated(log, this.city.now())) this.trouble = "no event says when it was: one a second is shown";
    this.log = log.sort((one, other) => one.at - other.at);
    this.play(true);
    this.goTo(at ?? this.log[0].at);
  }

  /** To a moment; from live to a replay of it. */
  private slide(moment: number): void {
    if (!this.live) return this.goTo(moment);
    if (!this.loading) void this.begin(moment);
  }

  goTo(moment: number): void {
    const [from, to] = [this.log[0]?.at ?? moment, this.log[this.log.length - 1]?.at ?? moment];
    this.moment = Math.min(Math.max(moment, from), to);
    const at = this.moment;
    const shown = this.log.filter((each) => each.at <= at && at < (each.expires === Infinity ? each.at + HOLDS_MS : each.expires));
    this.desk.scenery?.replay(shown, at);
    this.dispatchEvent(new CustomEvent("moment"));
  }

  play(on: boolean): void {
    this.playing = on;
    clearInterval(this.timer);
    if (!on) return;
    this.timer = window.setInterval(() => {
      const next = (this.moment ?? 0) + TICK_MS * this.speed;
      if (next > this.log[this.log.length - 1].at) this.play(false);
      this.goTo(next);
    }, TICK_MS);
  }

  goLive(): void {
    this.play(false);
    this.moment = null;
    this.log = [];
    this.trouble = "";
    this.desk.scenery?.replay(null, null);
    this.dispatchEvent(new CustomEvent("moment"));
  }
}
customElements.define("near-time", NearTime);

/** Who does not say when it was comes with the one before it; false: nobody does. */
function dated(log: Happening[], now: number): boolean {
  let last = log.find((each) => each.at > 0)?.at ?? 0;
  log.forEach((each, n) => {
    if (each.at <= 0) each.at = last || now - 1000 * (log.length - n);
    else last = each.at;
  });
  return last > 0;
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
function fromEnvelope(said: any): Happening {
  const { id, source, time, expirytime, data } = said;
  return happening({ ...data, id, source: source === "nearcast" ? null : source, time, expirytime }, 0);
}
