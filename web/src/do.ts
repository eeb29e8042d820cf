// Subscribe, watch a border, publish: draw where, say what, see what there is already.

import { css, html, nothing } from "lit";
import { copied } from "./copied";
import type { Call } from "./copy";
import { happening, type Happening } from "./city";
import "./editor";
import type { NearEditor } from "./editor";
import { count, Panel, words } from "./panel";
import { ask } from "./server";
import { Sketch, type Form } from "./sketch";
import { extentOf, length, type Geometry } from "./space";
import { shared } from "./style";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Region = any;

const LIMIT = 200;
const LAST_CLICK_MS = 400;
const FORMS: [Form, string][] = [["circle", "Circle"], ["rectangle", "Box"], ["polygon", "Polygon"]];
const TRANSITIONS = ["enter", "exit", "cross", "dwell"];

export class NearDo extends Panel {
  static override properties = { ...Panel.properties, region: { state: true }, found: { state: true }, verb: { state: true }, form: { state: true }, place: { state: true }, picking: { state: true }, shown: { state: true } };
  static override styles = [shared, css`.found { max-height: 150px; overflow-y: auto; }`];
  declare region: Region;
  declare found: { events: Happening[]; more: boolean } | null;
  declare verb: "subscribe" | "fence" | "publish";
  declare form: Form | null;
  declare place: [number, number] | null;
  declare picking: boolean;
  declare shown: string;
  private sketch: Sketch | null = null;
  private serial = 0;
  private drawn = -Infinity;

  constructor() {
    super();
    this.verb = "subscribe";
    this.region = null;
    this.found = null;
    this.form = null;
    this.place = null;
    this.picking = false;
    this.shown = "";
  }

  override render() {
    if (!this.desk) return nothing;
    const verbs: [NearDo["verb"], string][] = [["subscribe", "Subscribe"], ["fence", "Fence"], ["publish", "Publish"]];
    return html`
      <div class="row" role="group" aria-label="What to do">
        ${verbs.map(([verb, label]) => html`<button aria-pressed=${this.verb === verb} @click=${() => this.choose(verb)}>${label}</button>`)}
      </div>
      ${this.verb === "publish" ? this.publishing() : this.asking()}
      ${this.said()}
      ${copied(() => this.call(), this.shown, (shown) => (this.shown = shown))}`;
  }

  private choose(verb: NearDo["verb"]): void {
    this.verb = verb;
    this.trouble = this.done = this.shown = "";
    this.stopDrawing();
    this.stopPicking();
  }

  private asking() {
    const fence = this.verb === "fence";
    const { space } = this.city;
    const said = this.region
      ? this.region.type === "Circle"
        ? `a circle of ${length(this.region.radius_m, space)} about ${this.region.coordinates.map((each: number) => each.toPrecision(7)).join(", ")}`
        : this.region.bbox ? "a box" : `a polygon of ${this.region.coordinates[0].length - 1} corners`
      : fence ? "not drawn yet" : "everywhere";
    return html`
      <label>Where: ${said}</label>
      <div class="row" role="group" aria-label="Draw a region">
        ${FORMS.map(([form, label]) => html`<button aria-pressed=${this.form === form} ?disabled=${!this.desk.scenery} @click=${() => void this.startDrawing(form)}>${label}</button>`)}
        <button ?disabled=${!this.region} @click=${() => this.take(null)}>${fence ? "Undo" : "Everywhere"}</button>
      </div>
      ${this.form ? html`<small>${this.form === "polygon" ? "Click corner by corner; click the first one to end." : this.form === "circle" ? "Click the centre, then the rim." : "Click a corner, then the one across."} Escape lets it be.</small>` : nothing}
      ${this.numbers()}
      <near-editor language="cql" label="What (a filter over attributes, CQL2)" hint="price < 30 AND category = 'coffee'" .city=${this.city} @checked=${() => this.requestUpdate()}></near-editor>
      <label for="keywords">Keywords, all of which must be in it</label>
      <input id="keywords" placeholder="sale" />
      ${fence ? html`
        <label for="object">Whose positions: the attribute that names them</label>
        <input id="object" value=${this.guess()} />
        <div class="row" role="group" aria-label="Transitions">${TRANSITIONS.map((each) => html`<label class="inline"><input type="checkbox" class="on" value=${each} ?checked=${each === "enter" || each === "exit"} />${each}</label>`)}</div>
        <label for="dwell">Dwell: told after so many seconds inside</label><input id="dwell" type="number" min="1" value="60" />` : nothing}
      <div class="row">
        <div class="grow"><label for="subscriber">Told</label><input id="subscriber" value="me" /></div>
        <div class="grow"><label for="id">Name</label><input id="id" value=${this.name()} /></div>
      </div>
      <div class="row">
        <button @click=${() => void this.preview()}>Preview</button>
        <button class="main" ?disabled=${fence && !this.region} @click=${() => void this.begin()}>${fence ? "Set the fence" : "Subscribe"}</button>
      </div>
      ${this.found ? html`<p data-testid="preview"><b>${this.found.more ? `${LIMIT} or more` : count(this.found.events.length)}</b> live events match now</p>
        <ul class="found">${this.found.events.slice(0, 30).map((event) => html`<li><button class="plain" @click=${() => this.desk.select(event)}>${words(event)}</button></li>`)}</ul>` : nothing}`;
  }

  /** A circle can also be typed: by who has no mouse, or no map. */
  private numbers() {
    const given = this.region?.type === "Circle" ? this.region : null;
    return html`<details><summary>Type a circle instead</summary><div class="row">
      <input class="grow" id="cx" aria-label=${this.city.space.kind === "globe" ? "Longitude" : "x"} type="number" step="any" .value=${String(given?.coordinates[0] ?? "")} placeholder="lon" />
      <input class="grow" id="cy" aria-label=${this.city.space.kind === "globe" ? "Latitude" : "y"} type="number" step="any" .value=${String(given?.coordinates[1] ?? "")} placeholder="lat" />
      <input class="grow" id="cr" aria-label="Radius" type="number" step="any" min="0" .value=${String(given?.radius_m ?? "")} placeholder="metres" />
      <button @click=${() => this.typed()}>Take it</button></div></details>`;
  }

  private publishing() {
    return html`
      <label>Where: ${this.place ? this.place.map((each) => each.toPrecision(8)).join(", ") : "click on the map"}</label>
      <div class="row">
        <button aria-pressed=${this.picking} ?disabled=${!this.desk.scenery} @click=${() => this.pick()}>Choose on the map</button>
        <input class="grow" aria-label="Place, two numbers" placeholder="8.54, 47.37" .value=${this.place ? this.place.join(", ") : ""} @change=${(event: Event) => this.typePlace((event.target as HTMLInputElement).value)} />
      </div>
      <label for="attributes">What: attributes, one a line</label>
      <textarea id="attributes" rows="4" spellcheck="false">category = coffee
price = 3.5</textarea>
      <label for="words">Keywords</label><input id="words" value="sale" />
      <label for="minutes">Holds for so many minutes</label><input id="minutes" type="number" min="1" value="10" />
      <div class="row"><button class="main" ?disabled=${!this.place} @click=${() => void this.publish()}>Publish</button></div>`;
  }

  private guess(): string {
    const [fence] = this.city.things.fence.values();
    return fence ? fence.object : "van";
  }

  private name(): string {
    if (!this.serial) this.serial = Math.floor(Math.random() * 46656);
    return `map-${this.serial.toString(36)}`;
  }

  private field(id: string): string {
    return (this.renderRoot.querySelector<HTMLInputElement>(`#${id}`)?.value ?? "").trim();
  }

  private get editor(): NearEditor | null {
    return this.renderRoot.querySelector("near-editor");
  }

  private typed(): void {
    const [x, y, radius] = ["cx", "cy", "cr"].map((id) => (this.field(id) === "" ? NaN : Number(this.field(id))));
    if (![x, y, radius].every(Number.isFinite) || radius < 0) this.trouble = "a circle is three numbers: the centre and a radius that is not negative";
    else this.take({ type: "Circle", coordinates: [x, y], radius_m: radius });
  }

  private typePlace(text: string): void {
    const numbers = text.split(/[\s,;]+/).filter(Boolean).map(Number);
    if (numbers.length === 2 && numbers.every(Number.isFinite)) this.place = numbers as [number, number];
    else this.trouble = "a place is two numbers";
  }

  private pick(): void {
    this.picking = !this.picking;
    this.desk.picks = this.picking ? (at) => {
      this.place = at;
      this.desk.scenery?.sketch({ type: "Polygon", coordinates: [this.city.space.circle(at, this.city.space.kind === "globe" ? 40 : 5)] });
    } : null;
  }

  private stopPicking(): void {
    this.picking = false;
    if (this.desk) this.desk.picks = null;
  }

  private async startDrawing(form: Form): Promise<void> {
    if (this.form === form) return this.stopDrawing();
    const scenery = this.desk.scenery;
    if (!scenery) return;
    this.sketch ??= new Sketch(scenery.chart, this.city.space, (region) => {
      this.form = null;
      this.drawn = performance.now();
      this.take(region);
    });
    this.form = form;
    this.sketch.start(form);
  }

  /** Whether a click on the map is meant for what is being drawn, or was the last one of it. */
  get draws(): boolean {
    return this.form !== null || performance.now() - this.drawn < LAST_CLICK_MS;
  }

  stopDrawing(): void {
    this.sketch?.stop();
    this.form = null;
  }

  private take(region: Region): void {
    this.region = region;
    this.trouble = "";
    this.found = null;
    this.desk.scenery?.mark([]);
    const outline = this.city.space.outline(region) as Geometry | null;
    this.desk.scenery?.sketch(outline);
    const extent = this.city.extent;
    if (outline && extent && this.desk.scenery) {
      const [x0, y0, x1, y1] = extentOf(outline);
      if (x1 < extent[0] || x0 > extent[2] || y1 < extent[1] || y0 > extent[3]) {
        this.trouble = "This region lies outside of everything that was seen so far.";
        this.desk.scenery.goTo(outline);
      }
    }
  }

  private wish(): Record<string, unknown> {
    const where = this.editor?.value.trim() ?? "";
    const keywords = this.field("keywords").split(/[\s,]+/).filter(Boolean);
    return {
      subscriber: this.field("subscriber") || "me",
      ...(where ? { filters: [{ cql2: where }] } : {}),
      ...(keywords.length ? { keywords } : {}),
      ...(this.region ? { region: this.region } : {}),
    };
  }

  private call(): Call {
    if (this.verb === "publish") return { method: "POST", path: "/v1/events", body: this.feature() };
    const id = this.field("id") || this.name();
    const fence = this.verb === "fence";
    const path = `/v1/${fence ? "fences" : "subscriptions"}/${encodeURIComponent(id)}`;
    const body: Record<string, unknown> = { id, ...this.wish() };
    if (fence) {
      body.object = this.field("object");
      body.on = [...this.renderRoot.querySelectorAll<HTMLInputElement>(".on:checked")].map((each) => each.value);
      if ((body.on as string[]).includes("dwell")) body.dwell = Number(this.field("dwell"));
    }
    return { method: "PUT", path, body };
  }

  private async preview(): Promise<void> {
    await this.attempt(async () => {
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const page: any = await ask("POST", `/v1/preview?limit=${LIMIT}`, this.wish());
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const events = page.features.map((each: any) => happening(each, this.city.now()));
      this.found = { events, more: events.length >= LIMIT };
      this.desk.scenery?.mark(events.map((each: Happening) => each.key));
    });
  }

  private async begin(): Promise<void> {
    await this.attempt(async () => {
      const { method, path, body } = this.call();
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const made: any = await ask(method, path, body);
      this.desk.scenery?.mark([]);
      this.desk.scenery?.sketch(null);
      this.region = null;
      this.found = null;
      this.serial = 0;
      const told = made.notifications.length;
      return `${made.id} ${made.created ? "stands" : "was replaced"}${told ? `, and ${told} that match already were told` : ""}`;
    });
  }

  private feature(): object {
    const properties: Record<string, string | number | boolean> = {};
    for (const line of this.field("attributes").split("\n")) {
      const [name, ...rest] = line.split("=");
      const value = rest.join("=").trim();
      if (!name.trim() || !value) continue;
      const plain = value.replace(/^'(.*)'$/s, "$1");
      properties[name.trim()] = value === "true" || value === "false" ? value === "true" : value !== "" && Number.isFinite(Number(value)) ? Number(value) : plain;
    }
    const minutes = Number(this.field("minutes")) || 10;
    const keywords = this.field("words").split(/[\s,]+/).filter(Boolean);
    return {
      type: "Feature", id: `map-${Math.round(this.city.now()).toString(36)}`, source: "/map",
      geometry: this.place ? { type: "Point", coordinates: this.place } : null,
      properties, keywords, time: new Date(this.city.now()).toISOString(), expirytime: new Date(this.city.now() + 60_000 * minutes).toISOString(),
    };
  }

  private async publish(): Promise<void> {
    await this.attempt(async () => {
      const feature = this.feature();
      await ask("POST", "/v1/events", feature);
      this.desk.scenery?.sketch(null);
      return `${(feature as { id: string }).id} is published`;
    });
  }
}
customElements.define("near-do", NearDo);
