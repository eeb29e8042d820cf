// Patterns in CPSL: errors as one writes, the detection graph, and what of it lights up.

import { css, html, nothing, svg } from "lit";
import { copied } from "./copied";
import type { Call } from "./copy";
import "./editor";
import type { Checked, NearEditor } from "./editor";
import { Panel } from "./panel";
import { ask } from "./server";
import { shared } from "./style";

interface Box {
  kind: string;
  lines: string[];
  names: string[];
  operands: [number, string][];
  x: number;
  y: number;
  width: number;
  height: number;
}

interface Graph {
  width: number;
  height: number;
  boxes: Box[];
}

const EXAMPLE = 'Q(2)(STRING: category = "coffee")';
const LINE = 17;
const PADDING = 9;
const LIT_MS = 1500;
const WIDE = 640; // what is wider is not made smaller, but moved

export class NearPatterns extends Panel {
  static override properties = { ...Panel.properties, graph: { state: true }, shown: { state: true }, right: { state: true } };
  static override styles = [shared, css`
    .graph { overflow: auto; border: 1px solid var(--line); border-radius: 8px; background: var(--field); margin: 8px 0; max-height: 340px; }
    svg { display: block; margin: auto; }
    svg.fits { max-width: 100%; height: auto; }
    text { font: 12px ui-monospace, monospace; fill: var(--ink); }
    .name { font-weight: bold; fill: var(--warn); } .role { font-size: 10px; fill: var(--quiet); } .count { font-size: 10.5px; font-weight: bold; fill: var(--accent); }
    .edge { fill: none; stroke: var(--quiet); stroke-width: 1.3; }
    rect { fill: var(--raised); stroke: var(--edge); stroke-width: 1.2; }
    rect.event { stroke: #2563eb; } rect.negation { stroke: #dc2626; stroke-dasharray: 4 3; } rect.root { stroke-width: 2.6; }
    rect.lit { fill: color-mix(in srgb, #f59e0b 55%, var(--raised)); stroke: #d97706; }
  `];
  declare graph: Graph | null;
  declare shown: string;
  declare right: boolean;
  protected override listens = ["things"];
  private counts: number[] = [];
  private lit: number[] = [];
  private text = "";

  override firstUpdated(): void {
    this.graph = null;
    this.shown = "";
    this.city.addEventListener("lamps", () => this.light());
    this.city.addEventListener("again", () => this.watch());
  }

  override render() {
    if (!this.desk) return nothing;
    return html`
      <near-editor language="cpsl" label="Pattern (CPSL)" hint=${EXAMPLE} .city=${this.city} @checked=${(event: CustomEvent<Checked>) => this.checked(event.detail)}></near-editor>
      ${this.graph ? this.drawn(this.graph) : html`<p class="quiet">Events in time and space, combined: ${EXAMPLE} is told of every two coffees. <button class="plain" @click=${() => this.example()}>Try it</button> · <a href="/docs" target="_blank" rel="noopener">all that can be asked</a></p>`}
      <div class="row">
        <div class="grow"><label for="subscriber">Told</label><input id="subscriber" value="me" /></div>
        <div class="grow"><label for="id">Name</label><input id="id" value="map-pattern" /></div>
      </div>
      <div class="row"><button class="main" ?disabled=${!this.right} @click=${() => void this.begin()}>Detect it</button></div>
      ${this.said()}
      ${copied(() => this.call(), this.shown, (shown) => (this.shown = shown))}
      <h2>Patterns that stand</h2>
      ${this.city.things.composite.size ? html`<ul>${[...this.city.things.composite.values()].map((each) => html`<li><button class="plain" @click=${() => this.open(each.text)}>${each.id}</button> <small>${each.subscriber ?? ""}</small></li>`)}</ul>` : html`<p class="quiet">None.</p>`}`;
  }

  private get editor(): NearEditor {
    return this.renderRoot.querySelector("near-editor")!;
  }

  private example(): void {
    this.open(EXAMPLE);
  }

  private open(text: string): void {
    this.editor.value = text;
  }

  private checked(found: Checked): void {
    const text = this.editor.value;
    this.right = found.ok && text.trim() !== "";
    this.graph = this.right ? (found.graph as Graph) : null;
    if (text === this.text) return;
    this.text = text;
    this.watch();
  }

  /** Have the server light what of it events light up from now on. */
  private watch(): void {
    this.counts = [];
    this.lit = [];
    this.city.watch.lamps(this.right ? this.text : null);
  }

  private light(): void {
    const now = performance.now();
    this.city.lamps.forEach((count, n) => {
      if (count > (this.counts[n] ?? 0)) this.lit[n] = now;
    });
    this.counts = [...this.city.lamps];
    this.requestUpdate();
    setTimeout(() => this.requestUpdate(), LIT_MS + 50);
  }

  private drawn(graph: Graph) {
    const now = performance.now();
    return html`<div class="graph" tabindex="0" role="group" aria-label="Detection graph">
      <svg width=${graph.width} height=${graph.height} class=${graph.width > WIDE ? "" : "fits"} viewBox="0 0 ${graph.width} ${graph.height}" role="img" aria-label=${`The detection graph of ${graph.boxes.length} nodes`}>
        ${graph.boxes.map((box) => box.operands.map(([below, role]) => edge(graph.boxes[below], box, role)))}
        ${graph.boxes.map((box, n) => svg`<g>
          <rect x=${box.x} y=${box.y} width=${box.width} height=${box.height} rx="6" class="${box.kind} ${n ? "" : "root"} ${now - (this.lit[n] ?? -Infinity) < LIT_MS ? "lit" : ""}"></rect>
          ${box.names.length ? svg`<text class="name" x=${box.x + box.width / 2} y=${box.y + PADDING + 11} text-anchor="middle">${box.names.join(" ")}</text>` : nothing}
          ${box.lines.map((line, row) => svg`<text x=${box.x + box.width / 2} y=${box.y + PADDING + 11 + LINE * (row + (box.names.length ? 1 : 0))} text-anchor="middle">${line}</text>`)}
          ${this.counts[n] ? svg`<text class="count" x=${box.x + box.width - 4} y=${box.y - 3} text-anchor="end">${this.counts[n]}×</text>` : nothing}
        </g>`)}
      </svg></div>`;
  }

  private call(): Call {
    const value = (id: string) => this.renderRoot.querySelector<HTMLInputElement>(`#${id}`)!.value.trim();
    const id = value("id") || "map-pattern";
    return { method: "PUT", path: `/v1/composites/${encodeURIComponent(id)}`, body: { id, subscriber: value("subscriber") || "me", text: this.editor.value } };
  }

  private async begin(): Promise<void> {
    await this.attempt(async () => {
      const { method, path, body } = this.call();
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const made: any = await ask(method, path, body);
      return `${made.id} ${made.created ? "is detected from now on" : "was replaced"}`;
    });
  }
}
customElements.define("near-patterns", NearPatterns);

function edge(below: Box, above: Box, role: string) {
  const [x0, y0] = [below.x + below.width / 2, below.y];
  const [x1, y1] = [above.x + above.width / 2, above.y + above.height];
  const bend = (y0 - y1) / 2;
  return svg`<path class="edge" d="M${x0} ${y0} C${x0} ${y0 - bend} ${x1} ${y1 + bend} ${x1} ${y1}"></path>
    ${role ? svg`<text class="role" x=${(x0 + x1) / 2 + 6} y=${(y0 + y1) / 2}>${role}</text>` : nothing}`;
}
