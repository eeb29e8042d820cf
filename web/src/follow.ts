// One mover closely, and one event: who wants it, and why not.

import { css, html, nothing } from "lit";
import { filterOf, type Happening, type Thing } from "./city";
import { clock, Panel, words } from "./panel";
import { ask } from "./server";
import { length } from "./space";
import { shared } from "./style";

const BESIDE = 8;

interface Test {
  wanted: string;
  held: boolean;
  found: string;
}

interface Explanation {
  matched: boolean;
  validity: Test | null;
  clauses: { matched: boolean; checks: Test[] }[];
}

export class NearFollow extends Panel {
  static override properties = { ...Panel.properties, event: { state: true }, told: { state: true } };
  static override styles = [shared, css`
    .test { display: grid; grid-template-columns: 20px 1fr; gap: 4px; padding: 3px 0; }
    .test b { font-size: 15px; line-height: 1.2; }
    .verdict { font-weight: 600; margin: 6px 0; }
    .chips { display: flex; flex-wrap: wrap; gap: 4px; }
    .chips span { background: var(--field); border: 1px solid var(--line); border-radius: 6px; padding: 0 7px; }
    li button.plain[aria-pressed="true"] { background: none; color: var(--link); font-weight: 600; }
  `];
  declare event: Happening | null;
  declare told: { wish: string; said: Explanation } | null;
  protected override listens = ["followed", "figures", "things"];

  look(event: Happening): void {
    this.event = event;
    this.told = null;
    this.trouble = "";
    this.desk.scenery?.mark([event.key]);
    const mine = this.city.follows ? this.city.of(this.city.follows) : [];
    if (mine.length) void this.explain(mine[0].id);
  }

  override render() {
    if (!this.desk) return nothing;
    return html`${this.mover()} ${this.selected()} ${this.beside()} ${this.said()}`;
  }

  private mover() {
    const { city } = this;
    const name = city.follows;
    const names = (city.reported.names.length ? city.reported : city.simulated).names;
    return html`<section class="card" aria-label="Mover">
      <label for="who">Follow a mover</label>
      <div class="row">
        <input id="who" class="grow" list="names" .value=${name ?? ""} placeholder="a subscriber, or click one on the map" @change=${(event: Event) => this.desk.follow((event.target as HTMLInputElement).value.trim() || null)} />
        <datalist id="names">${names.slice(0, 200).map((each) => html`<option value=${each}></option>`)}</datalist>
        ${name ? html`<button @click=${() => this.desk.follow(null)}>Let go</button>` : html`<button ?disabled=${!names.length} @click=${() => this.desk.follow(names[Math.floor(Math.random() * names.length)])}>Anybody</button>`}
      </div>
      ${name ? this.details(name) : html`<p class="quiet">Its safe region is drawn from the bytes it was sent: while it stays inside it says nothing. An event in its impact region would change that.</p>`}
    </section>`;
  }

  private details(name: string) {
    const { city } = this;
    const at = city.whereabouts(name);
    const { followed } = city;
    const region = this.desk.scenery?.closeup.region;
    const wishes = city.of(name);
    const holds = region && at ? region.contains(...at) : null;
    return html`<table data-testid="followed">
        <tr><th scope="row">place</th><td>${at ? at.map((each) => each.toFixed(5)).join(", ") : "not known yet"}${city.simulated.at(name) ? html` <small>(the simulator's)</small>` : nothing}</td></tr>
        <tr><th scope="row">safe region</th><td>${region ? html`report ${region.epoch}, ${shapeOf(region)}, ${holds === null ? "" : holds ? html`<span class="good">inside: silent</span>` : html`<span class="bad">outside: it reports</span>`}` : followed ? "none: it reports at the next step" : "asking …"}${this.desk.scenery?.closeup.wrong ? html`<span class="bad">${this.desk.scenery.closeup.wrong}</span>` : nothing}</td></tr>
        <tr><th scope="row">impact region</th><td>${impactOf(followed?.impact, city.space)}</td></tr>
        <tr><th scope="row">wants</th><td>${wishes.length ? wishes.map((each) => html`<div>${describe(each, this)}</div>`) : "nothing that is listed here"}</td></tr>
      </table>`;
  }

  private selected() {
    const { event } = this;
    if (!event) return html`<section class="card" aria-label="Event"><p class="quiet">Choose an event on the map or in a list to see who wants it, and why not.</p></section>`;
    return html`<section class="card" aria-label="Event">
      <h2>${words(event)}</h2>
      <small>${event.id}</small>
      <p class="chips">${Object.entries(event.properties).map(([name, value]) => html`<span><small>${name}</small> ${String(value)}</span>`)}</p>
      ${this.why()}
      <table>
        ${event.keywords.length ? html`<tr><th scope="row">keywords</th><td>${event.keywords.join(", ")}</td></tr>` : nothing}
        <tr><th scope="row">when</th><td>${clock(event.at)}${event.expires < Infinity ? ` to ${clock(event.expires)}` : ", for good"}</td></tr>
        ${event.source ? html`<tr><th scope="row">source</th><td>${event.source}</td></tr>` : nothing}
        ${event.parts ? html`<tr><th scope="row">made of</th><td>${event.parts.map((part) => html`<button class="plain" @click=${() => this.selectPart(part)}>${part}</button>`)}</td></tr>` : nothing}
      </table>
      ${event.place ? html`<button @click=${() => this.desk.scenery?.goTo({ type: "Point", coordinates: event.place })}>Show on the map</button>` : nothing}
    </section>`;
  }

  private why() {
    const wishes = this.wishes();
    return html`
      <label for="wish">Why, or why not, for</label>
      <select id="wish" data-testid="wish" @change=${(change: Event) => void this.explain((change.target as HTMLSelectElement).value)}>
        <option value="">choose a subscription or fence</option>
        ${wishes.map((each) => html`<option value=${each.id} ?selected=${this.told?.wish === each.id}>${each.id}${each.subscriber ? ` (${each.subscriber})` : ""}</option>`)}
      </select>
      ${this.told ? this.explained(this.told.said) : nothing}`;
  }

  /** What happens closest to whom one follows. */
  private beside() {
    const { city } = this;
    const at = city.follows ? city.whereabouts(city.follows) : null;
    if (!at) return nothing;
    const near = [...city.shown()].filter((each) => each.place).map((each) => ({ each, far: city.space.distance(at, each.place!) })).sort((one, other) => one.far - other.far).slice(0, BESIDE);
    if (!near.length) return nothing;
    return html`<section aria-label="Events near it"><h2>Near it: why, or why not?</h2><ul>${near.map(({ each, far }) => html`<li><button class="plain" aria-pressed=${this.event?.key === each.key} @click=${() => this.look(each)}>${words(each)}</button> <small>${length(far, city.space)}</small></li>`)}</ul></section>`;
  }

  private wishes(): Thing[] {
    const { city } = this;
    const first = city.follows ? city.of(city.follows) : [];
    const others = [...city.things.fence.values(), ...city.things.subscription.values()].filter((each) => !first.includes(each));
    return [...first, ...others.slice(0, 200)];
  }

  private explained(said: Explanation) {
    const test = (each: Test) => html`<li class="test"><b class=${each.held ? "good" : "bad"}>${each.held ? "✓" : "✗"}<span class="said">${each.held ? "holds" : "does not hold"}</span></b><span>${each.wanted}<br /><small>${each.found}</small></span></li>`;
    return html`<div data-testid="explained">
      <p class="verdict ${said.matched ? "good" : "bad"}">${said.matched ? "✓ it matches" : "✗ it does not match"}</p>
      ${said.clauses.map((clause, n) => html`${said.clauses.length > 1 ? html`<small>${n ? "or" : "either"}</small>` : nothing}<ul>${said.validity && !n ? test(said.validity) : nothing}${clause.checks.map(test)}</ul>`)}
    </div>`;
  }

  private async explain(wish: string): Promise<void> {
    const { event } = this;
    if (!wish || !event) return;
    await this.attempt(async () => {
      const feature = asFeature(event);
      const said = await ask<Explanation>("POST", "/v1/explain", { subscription: wish, event: feature });
      this.told = { wish, said };
    });
  }

  private selectPart(id: string): void {
    const event = this.city.event(id);
    if (event) this.desk.select(event);
    else this.trouble = `${id} is not live any more`;
  }
}
customElements.define("near-follow", NearFollow);

export function asFeature(event: Happening): object {
  return {
    type: "Feature", id: event.id, geometry: event.geometry, properties: event.properties,
    ...(event.source ? { source: event.source } : {}), ...(event.keywords.length ? { keywords: event.keywords } : {}),
  };
}

function shapeOf(region: { shape: { runs?: number[]; discs?: unknown[]; bars?: unknown[]; sites?: unknown[]; radius?: number } }): string {
  const { shape } = region;
  if (shape.runs) {
    const holes = shape.discs!.length + shape.bars!.length;
    return `cells${holes ? ` with ${holes} ${holes === 1 ? "hole" : "holes"}` : ""}`;
  }
  if (shape.sites) return `nearest of ${shape.sites.length} places`;
  return shape.radius === Infinity ? "everywhere" : "a disc";
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
function impactOf(impact: any, space: Parameters<typeof length>[1]): string {
  if (!impact) return "none";
  if (impact.kind === "cells") return "cells: an event in them may end its silence";
  return impact.radius === null ? "everywhere" : `a disc of ${length(impact.radius, space)}`;
}

function describe(thing: Thing, panel: Panel): string {
  const { region } = thing;
  const parts = [filterOf(thing), (thing.keywords ?? []).join(" + ")].filter(Boolean);
  if (region?.type === "Around") parts.push(region.radius_m !== undefined ? `within ${length(region.radius_m, panel.city.space)}` : "in a shape around it");
  else if (region?.type === "Circle") parts.push(`within ${length(region.radius_m, panel.city.space)} of a place`);
  else if (region) parts.push("in an area");
  return parts.join(" · ") || words({ properties: {}, keywords: [], id: "anything" } as unknown as Happening);
}
