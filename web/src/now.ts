// What happens now, in words and numbers: beside the map, and instead of it.

import { css, html, nothing } from "lit";
import { ask } from "./server";
import { clock, count, Panel, words } from "./panel";
import type { Happening, Thing, Told } from "./city";
import { shared } from "./style";

const LISTED = 12;

export class NearNow extends Panel {
  static override styles = [shared, css`
    .big { font-size: 40px; font-weight: 700; line-height: 1.05; color: var(--accent); font-variant-numeric: tabular-nums; }
    .bar { height: 8px; border-radius: 4px; background: var(--line); overflow: hidden; margin: 8px 0 4px; }
    .bar i { display: block; height: 100%; background: var(--accent); }
    .numbers { display: grid; grid-template-columns: repeat(3, 1fr); gap: 8px; margin: 10px 0 4px; }
    .numbers b { display: block; font-size: 18px; font-variant-numeric: tabular-nums; }
    time { color: var(--quiet); font-variant-numeric: tabular-nums; margin-right: 6px; }
    .lit { background: color-mix(in srgb, #f59e0b 25%, transparent); border-radius: 6px; }
    li .end { float: right; }
  `];
  protected override listens = ["figures", "things", "told", "welcome"];
  private readonly inside = new Map<string, Set<string | number>>();

  override connectedCallback(): void {
    super.connectedCallback();
    void this.updateComplete.then(() => {
      this.city.addEventListener("told", (event) => {
        const { to, transition, object } = (event as CustomEvent).detail;
        if (!transition || object === undefined) return;
        let there = this.inside.get(to);
        if (!there) this.inside.set(to, (there = new Set()));
        if (["enter", "inside", "dwell"].includes(transition)) there.add(object);
        else there.delete(object);
      });
    });
  }

  override render() {
    if (!this.desk) return nothing;
    const { city } = this;
    const last = city.figures[city.figures.length - 1];
    const recent = city.figures.slice(-10);
    const rate = (of: "events" | "notifications" | "reports") => (recent.length ? recent.reduce((sum, each) => sum + each[of], 0) / recent.length : 0);
    const movers = Math.max(city.simulated.names.length, city.reported.names.length);
    const events = [...city.events.values()].slice(-LISTED).reverse();
    return html`
      <section class="card" aria-label="Reports saved">
        <div class="big" data-testid="saved">${count(city.saved)}</div>
        <div>reports saved by safe regions</div>
        ${last?.steps ? html`<div class="bar" aria-hidden="true"><i .style=${`width: ${(100 * city.saved) / last.steps}%`}></i></div>` : nothing}
        <small>${last?.steps
          ? html`<b>${((100 * city.saved) / last.steps).toFixed(1)} %</b> of ${count(last.steps)} steps were made in silence; ${count(last.steps - city.saved)} had to be reported, and nobody missed a thing`
          : "since this page opened, against a report a second of everybody connected"}</small>
        <div class="numbers">
          <div><b data-testid="movers">${count(movers)}</b><small>movers</small></div>
          <div><b data-testid="events">${count(city.events.size)}</b><small>live events</small></div>
          <div><b>${rate("notifications").toFixed(1)}</b><small>told a second</small></div>
        </div>
      </section>
      <h2>Fences</h2>
      ${city.things.fence.size ? html`<ul data-testid="fences">${[...city.things.fence.values()].slice(0, 30).map((fence) => this.fence(fence))}</ul>` : html`<p class="quiet">None yet: draw one under Do.</p>`}
      <h2>Told lately</h2>
      ${city.told.length ? html`<ul data-testid="told">${city.told.slice(0, LISTED).map((told) => html`<li>
          <time>${clock(Date.parse(told.at))}</time>${told.transition
            ? html`${told.object} <b>${told.transition}</b> ${told.to}`
            : html`${this.person(told.subscriber)} <span class="quiet">of</span> <button class="plain" title=${told.event} @click=${() => this.select(told.event, told.source)}>${this.called(told)}</button>${told.parts ? html` <small>made of ${told.parts.length}</small>` : nothing}`}
        </li>`)}</ul>` : html`<p class="quiet">Nobody, while this page looks.</p>`}
      <h2>Events</h2>
      ${events.length ? html`<ul>${events.map((event) => html`<li><time>${clock(event.at)}</time><button class="plain" @click=${() => this.desk.select(event)}>${words(event)}</button></li>`)}</ul>` : html`<p class="quiet">None is live.</p>`}
      <h2>Subscriptions <small>${city.things.subscription.size >= 3000 ? "the first 3 000" : count(city.things.subscription.size)}</small></h2>
      ${this.mine()}
      ${this.said()}`;
  }

  private called(told: Told): string {
    const event = this.city.happened(told);
    return event ? words(event) : told.event;
  }

  private person(name: string | null) {
    if (name === null) return "somebody";
    return html`<button class="plain" @click=${() => this.desk.follow(name)}>${name}</button>`;
  }

  private fence(fence: Thing) {
    const lit = this.desk.scenery?.isLit(fence.id) ?? false;
    const there = this.inside.get(fence.id);
    return html`<li class=${lit ? "lit" : ""}>
      <button class="plain" @click=${() => this.goTo(fence)}>${fence.id}</button>
      <small>${there?.size ? `${there.size} ${fence.object}${there.size > 1 ? "s" : ""} inside` : `watches each ${fence.object}`}</small>
      <button class="plain end" aria-label="End ${fence.id}" @click=${() => this.end("fence", fence.id)}>✕</button></li>`;
  }

  private mine() {
    const some = [...this.city.things.subscription.values(), ...this.city.things.composite.values()];
    const made = some.filter((each) => each.id.startsWith("map-") || each.text).slice(-20);
    return made.length ? html`<ul>${made.map((each) => html`<li><button class="plain" @click=${() => this.goTo(each)}>${each.id}</button> <small>${each.subscriber ?? ""}</small>
      <button class="plain end" aria-label="End ${each.id}" @click=${() => this.end(each.text ? "composite" : "subscription", each.id)}>✕</button></li>`)}</ul>` : html`<p class="quiet">Those made here are listed.</p>`;
  }

  private goTo(thing: Thing): void {
    const outline = this.city.space.outline(thing.region, thing.subscriber ? this.city.whereabouts(thing.subscriber) : null);
    if (outline) this.desk.scenery?.goTo(outline);
  }

  private select(id: string, source: string | null): void {
    const event: Happening | undefined = this.city.event(id, source);
    if (event) this.desk.select(event);
    else this.trouble = `${id} is not live any more`;
  }

  private end(kind: string, id: string): void {
    void this.attempt(async () => {
      await ask("DELETE", `/v1/${kind}s/${encodeURIComponent(id)}`);
      return `${id} has ended`;
    });
  }
}
customElements.define("near-now", NearNow);
