// The page as a whole: the map, the panels beside it, what stands in the address.

import { html, LitElement, nothing } from "lit";
import { read, write } from "./address";
import { City, GROUPS, nameOf, palette, type Happening, type Told } from "./city";
import type { NearFollow } from "./follow";
import { words, type Desk } from "./panel";
import type { Scenery } from "./scenery";
import { useKey } from "./server";
import type { NearTime } from "./time";

const TABS: [string, string][] = [["now", "Now"], ["follow", "Follow"], ["do", "Do"], ["patterns", "Patterns"], ["figures", "Figures"]];
const DARK = "nearcast.dark";
const REFRESH_MS = 450;
const SKEWED_S = 5;
const HOVER_MS = 60;
const WIDE = matchMedia("(min-width: 761px)");

export class NearApp extends LitElement implements Desk {
  static override properties = { tab: { state: true }, noMap: { state: true }, lost: { state: true }, loaded: { state: true }, hovered: { state: true } };
  declare tab: string;
  declare noMap: string;
  declare lost: boolean;
  declare loaded: Record<string, boolean>;
  declare hovered: { x: number; y: number; text: string; hint: string } | null;
  readonly city = new City();
  scenery: Scenery | null = null;
  private picked: Desk["picks"] = null;
  private dark = false;
  private readonly start = read();
  private due = 0;
  private looked = 0;
  private replays = false;

  constructor() {
    super();
    this.tab = "now";
    this.noMap = "";
    this.lost = false;
    this.loaded = { now: true };
    this.hovered = null;
    const said = localStorage.getItem(DARK);
    const system = matchMedia("(prefers-color-scheme: dark)");
    this.setDark(said === null ? system.matches : said === "1");
    system.addEventListener("change", () => localStorage.getItem(DARK) === null && this.setDark(system.matches));
  }

  protected override createRenderRoot() {
    return this; // MapLibre's own style reaches it here
  }

  get picks(): Desk["picks"] {
    return this.picked;
  }

  set picks(take: Desk["picks"]) {
    this.picked = take;
    this.querySelector(".map")?.classList.toggle("picking", take !== null);
  }

  override firstUpdated(): void {
    const { city } = this;
    city.addEventListener("status", () => this.requestUpdate());
    city.addEventListener("figures", () => this.requestUpdate());
    city.addEventListener("welcome", () => void this.begin());
    city.addEventListener("again", () => this.again());
    city.addEventListener("frame", () => this.soon());
    city.addEventListener("things", () => this.scenery?.showThings());
    city.addEventListener("told", (event) => this.scenery?.told((event as CustomEvent<Told>).detail));
    city.addEventListener("followed", () => {
      this.scenery?.closeup.take();
      this.scenery?.refresh();
      this.note();
    });
    addEventListener("keydown", (event) => {
      if (event.key === "Escape") (this.querySelector("near-do") as { stopDrawing?: () => void } | null)?.stopDrawing?.();
    });
    addEventListener("hashchange", () => {
      const { follow } = read();
      if (follow !== city.follows) this.follow(follow);
    });
    city.watch.connect();
  }

  override updated(): void {
    const dialog = this.querySelector<HTMLDialogElement>("dialog");
    if (this.city.watch.status === "key" && dialog && !dialog.open) dialog.showModal();
  }

  private async begin(): Promise<void> {
    void this.time.look();
    try {
      const { Scenery } = await import("./scenery");
      const chart = this.querySelector<HTMLElement>(".chart")!;
      this.scenery = new Scenery(chart, this.city, this.start.view, this.dark, (lost) => (this.lost = lost));
      this.scenery.chart.on("click", ({ point, lngLat }) => this.clicked(point, [lngLat.lng, lngLat.lat]));
      this.scenery.chart.on("mousemove", ({ point }) => this.hover(point));
      this.scenery.chart.on("mouseout", () => (this.hovered = null));
      this.scenery.chart.on("movestart", () => (this.hovered = null));
      this.scenery.chart.on("moveend", () => this.note());
    } catch (error) {
      const said = String(error instanceof Error ? error.message : error);
      // MapLibre's own words end in links for developers.
      this.noMap = /webgl/i.test(said) ? "this browser has no WebGL 2" : said.slice(0, 200);
    }
    if (this.start.follow) this.city.follow(this.start.follow), this.open("follow");
    if (this.start.moment !== null) await this.time.begin(this.start.moment);
    this.requestUpdate();
  }

  private again(): void {
    this.scenery?.showThings();
    this.scenery?.refresh();
    this.city.watch.follow(this.city.follows);
    this.requestUpdate();
  }

  /** Places and events come several times a second; the map is drawn twice a second for them. */
  private soon(): void {
    if (this.due || !this.scenery || document.hidden) return;
    this.due = window.setTimeout(() => {
      this.due = 0;
      if (this.time.live) this.scenery?.refresh();
    }, REFRESH_MS);
  }

  private get time(): NearTime {
    return this.querySelector("near-time") as NearTime; // null before the first picture
  }

  private moved(): void {
    this.note();
    if (this.replays !== !this.time.live) {
      this.replays = !this.time.live;
      this.requestUpdate();
    }
  }

  private note(): void {
    write({ view: this.scenery?.view() ?? this.start.view, follow: this.city.follows, moment: this.time.moment });
  }

  private clicked(point: { x: number; y: number }, at: [number, number]): void {
    if (this.picks) return this.picks(this.city.space.fromMap(at));
    if (this.querySelector<HTMLElement & { draws?: boolean }>("near-do")?.draws) return;
    const found = this.scenery!.painter.find(point.x, point.y);
    if (found?.event) this.select(found.event);
    else if (found?.mover) this.follow(found.mover);
  }

  open(tab: string): void {
    this.tab = tab;
    this.loaded = { ...this.loaded, [tab]: true };
    if (tab === "do") void import("./do");
    if (tab === "patterns") void import("./patterns");
    void this.updateComplete.then(() => (this.querySelector(`#panel-${tab} > *`) as LitElement | null)?.requestUpdate?.());
  }

  select(event: Happening): void {
    this.open("follow");
    void this.updateComplete.then(() => this.querySelector<NearFollow>("near-follow")!.look(event));
  }

  follow(name: string | null): void {
    this.city.follow(name);
    if (name) this.open("follow");
    const at = name && this.city.whereabouts(name);
    const reach = name ? Math.max(0, ...this.city.of(name).map((each) => each.region?.radius_m ?? 0)) : 0;
    if (at && this.scenery) {
      if (reach) this.scenery.approach(at, reach);
      else this.scenery.goTo({ type: "Point", coordinates: at });
    }
    this.requestUpdate();
  }

  private setDark(dark: boolean, keep = false): void {
    this.dark = dark;
    document.documentElement.toggleAttribute("data-dark", dark);
    if (keep) localStorage.setItem(DARK, dark ? "1" : "0");
    this.scenery?.setDark(dark);
    this.requestUpdate();
  }

  override render() {
    const { city } = this;
    const { status } = city.watch;
    const said = { connecting: "connecting …", live: "live", away: "the server is away, trying again", key: "a key is needed" }[status];
    const panel = (tab: string, what: unknown) => html`<div class="panel" id="panel-${tab}" role="tabpanel" tabindex="0" aria-labelledby="tab-${tab}" ?hidden=${this.tab !== tab}>${this.loaded[tab] ? what : nothing}</div>`;
    return html`
      <header>
        <h1><svg viewBox="0 0 32 32" aria-hidden="true"><circle cx="16" cy="16" r="14" fill="#0f766e"></circle><circle cx="16" cy="16" r="8.5" fill="none" stroke="#fff" stroke-width="2" stroke-dasharray="4 3"></circle><circle cx="16" cy="16" r="3.5" fill="#fbbf24"></circle></svg>nearcast</h1>
        <span class="status ${status}" role="status" data-testid="status">${said}</span>
        <span class="grow"></span>
        <a class="wide" href="/docs">API</a>
        <button @click=${() => this.setDark(!this.dark, true)} aria-pressed=${this.dark}>${this.dark ? "Light" : "Dark"}</button>
      </header>
      <main class="map ${this.noMap ? "without" : ""}" aria-label="Map">
        <div class="chart"></div>
        <div class="notices" aria-live="polite">${this.notices()}</div>
        ${this.noMap ? nothing : this.legend()}
        ${this.hovered ? html`<div class="tip" .style=${`left: ${this.hovered.x + 14}px; top: ${this.hovered.y + 10}px`}>${this.hovered.text}<br /><small>${this.hovered.hint}</small></div>` : nothing}
      </main>
      <aside class="side" aria-label="Beside the map">
        <div class="tabs" role="tablist" @keydown=${(event: KeyboardEvent) => this.step(event)}>
          ${TABS.map(([tab, label]) => html`<button role="tab" id="tab-${tab}" aria-selected=${this.tab === tab} aria-controls="panel-${tab}" tabindex=${this.tab === tab ? 0 : -1} @click=${() => this.open(tab)}>${label}</button>`)}
        </div>
        ${panel("now", html`<near-now .desk=${this}></near-now>`)}
        ${panel("follow", html`<near-follow .desk=${this}></near-follow>`)}
        ${panel("do", html`<near-do .desk=${this}></near-do>`)}
        ${panel("patterns", html`<near-patterns .desk=${this}></near-patterns>`)}
        ${panel("figures", html`<near-figures .desk=${this}></near-figures>`)}
      </aside>
      <near-time .desk=${this} @moment=${() => this.moved()}></near-time>
      <dialog aria-labelledby="ask" @cancel=${(event: Event) => event.preventDefault()}>
        <form method="dialog" @submit=${(event: Event) => this.unlock(event)}>
          <h2 id="ask">This server asks for a key</h2>
          <p>An admin's, made by <code>nearcast keys create --role admin</code>. It stays in this tab.</p>
          ${city.watch.why && city.watch.status === "key" ? html`<p class="notice" role="alert">${city.watch.why}</p>` : nothing}
          <input type="password" name="key" aria-label="Key" autocomplete="off" required />
          <button>Open</button>
        </form>
      </dialog>`;
  }

  /** What the map's signs mean, as far as there are such. */
  private legend() {
    const { city } = this;
    const simulated = city.simulated.names.length > 0;
    const colours = palette(this.dark);
    const sources = city.sources.slice(0, GROUPS);
    return html`<details class="legend" data-testid="legend" ?open=${WIDE.matches}><summary>Legend</summary><div>
      ${simulated ? html`<span><i class="true"></i>true place (simulated)</span>` : nothing}
      <span><i class=${simulated ? "reported" : "alone"}></i>last report${simulated ? ", and the way since" : ""}</span>
      ${sources.map((source, n) => html`<span><i .style=${`background: ${colours[n]}`}></i>${nameOf(source)}</span>`)}
      ${city.things.composite.size ? html`<span><i class="made"></i>pattern</span>` : nothing}
      <span><i class="line"></i>told</span>
      ${city.follows ? html`<span><i class="square safe"></i>safe region</span><span><i class="square impact"></i>impact region</span><span><i class="reach"></i>reach</span>` : nothing}</div></details>`;
  }

  /** What is under the pointer, in words. */
  private hover(point: { x: number; y: number }): void {
    if (performance.now() < this.looked + HOVER_MS || this.picks) return;
    this.looked = performance.now();
    const found = this.scenery!.painter.find(point.x, point.y);
    const text = found?.event ? words(found.event) : found?.mover;
    this.hovered = text ? { x: point.x, y: point.y, text, hint: found!.event ? "click: who wants it, and why not" : "click to follow" } : null;
    this.querySelector(".map")?.classList.toggle("over", !!text);
  }

  private notices() {
    const { city } = this;
    const skew = Math.abs(city.skew) >= SKEWED_S;
    return html`
      ${this.noMap ? html`<div class="notice" data-testid="no-map">There is no map: ${this.noMap}. Everything else works: see the lists.</div>` : nothing}
      ${this.lost ? html`<div class="notice" data-testid="lost">The graphics card has let go of the map; it comes back by itself.</div>` : nothing}
      ${city.stale ? html`<div class="notice" data-testid="stale">This page is older than the server.<button @click=${() => location.reload()}>Load it again</button></div>` : nothing}
      ${this.time && !this.time.live ? html`<div class="notice plain" data-testid="replaying">A replay of what was published; people's places are not in the log.<button @click=${() => this.time.goLive()}>Back to live</button></div>` : nothing}
      ${skew ? html`<div class="notice" data-testid="skew">This machine's clock is ${Math.abs(city.skew)} s ${city.skew > 0 ? "behind" : "ahead of"} the server's, whose time counts here.</div>` : nothing}
      ${city.trouble && city.watch.status !== "key" ? html`<div class="notice">${city.trouble}</div>` : nothing}`;
  }

  private unlock(event: Event): void {
    event.preventDefault();
    const form = event.target as HTMLFormElement;
    const input = form.elements.namedItem("key") as HTMLInputElement;
    useKey(input.value.trim());
    input.value = "";
    this.city.watch.status = "connecting";
    this.querySelector("dialog")!.close();
    this.city.watch.connect();
    this.requestUpdate();
  }

  private step(event: KeyboardEvent): void {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = TABS.findIndex(([tab]) => tab === this.tab);
    this.open(TABS[(at + by + TABS.length) % TABS.length][0]);
    void this.updateComplete.then(() => this.querySelector<HTMLElement>(`#tab-${this.tab}`)?.focus());
  }
}
