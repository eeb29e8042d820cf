// What panels share: the city they show, and what they may do with the map.

import { html, LitElement, type TemplateResult } from "lit";
import { isMade, type City, type Happening } from "./city";
import type { Scenery } from "./scenery";
import { Refused } from "./server";

export interface Desk {
  city: City;
  scenery: Scenery | null;
  /** Open one of the tabs. */
  open(tab: string): void;
  select(event: Happening): void;
  follow(name: string | null): void;
  /** The next click on the map; null: nobody waits for it. */
  picks: ((at: [number, number]) => void) | null;
}

/** Drawn anew when the city tells of one of `listens`, at most a few times a second. */
export abstract class Panel extends LitElement {
  static override properties = { desk: { attribute: false }, trouble: { state: true }, done: { state: true } };
  declare desk: Desk;
  declare trouble: string;
  declare done: string;
  protected listens: string[] = [];
  private heard = false;
  private waiting = 0;
  private readonly stirred = () => {
    if (this.waiting || this.closest("[hidden]")) return;
    this.waiting = window.setTimeout(() => {
      this.waiting = 0;
      this.requestUpdate();
    }, 300);
  };

  override updated(): void {
    if (this.heard || !this.desk) return;
    this.heard = true;
    for (const name of this.listens) this.desk.city.addEventListener(name, this.stirred);
  }

  get city(): City {
    return this.desk.city;
  }

  /** Do something that may be refused, and say what came of it. */
  protected async attempt(act: () => Promise<string | void>): Promise<void> {
    this.trouble = this.done = "";
    try {
      this.done = (await act()) ?? "";
    } catch (error) {
      this.trouble = error instanceof Refused ? error.message : String(error);
    }
  }

  protected said(): TemplateResult {
    return html`<p role="status" aria-live="polite">${this.trouble ? html`<span class="bad">${this.trouble}</span>` : html`<span class="good">${this.done ?? ""}</span>`}</p>`;
  }
}

/** An event in some words: what it is made by, or its first attributes; of several, text as it is. */
export function words(event: Happening): string {
  if (isMade(event)) return String(event.properties.composite ?? event.id);
  const all = Object.entries(event.properties);
  const said = all.map(([name, value]) => (typeof value === "string" && all.length > 1 ? value : `${name} ${value}`));
  return said.slice(0, 4).join(", ") || event.keywords.join(", ") || event.id;
}

export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function count(value: number): string {
  return Math.round(value).toLocaleString("en-GB").replaceAll(",", " ");
}
