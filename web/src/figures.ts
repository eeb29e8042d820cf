// How the server does, as small charts of its own metrics.

import uPlot from "uplot";
import sheet from "uplot/dist/uPlot.min.css?inline";
import { css, html, nothing, unsafeCSS } from "lit";
import type { Figures } from "./city";
import { count, Panel } from "./panel";
import { shared } from "./style";

const WINDOW_S = 300;
const CHARTS: { name: string; label: string; of: (each: Figures, before: Figures | undefined) => number }[] = [
  { name: "events a second", label: "events", of: (each) => each.events },
  { name: "notifications a second", label: "told", of: (each) => each.notifications },
  { name: "reports a second", label: "reports", of: (each) => each.reports },
  { name: "calls that wait for the core", label: "waiting", of: (each) => each.queue },
  { name: "a turn of the core, with its commit, in ms", label: "ms", of: (each) => each.latency_ms },
];

export class NearFigures extends Panel {
  static override styles = [shared, unsafeCSS(sheet), css`
    figure { margin: 0 0 12px; }
    figcaption { display: flex; justify-content: space-between; font-size: 12.5px; color: var(--quiet); }
    figcaption b { color: var(--ink); font-variant-numeric: tabular-nums; }
  `];
  protected override listens = ["figures", "welcome"];
  private charts: uPlot[] = [];
  private dark: boolean | null = null;

  override render() {
    if (!this.desk) return nothing;
    const last = this.city.figures[this.city.figures.length - 1];
    return html`
      ${CHARTS.map((chart) => html`<figure><figcaption><span>${chart.name}</span><b>${last ? show(chart.of(last, undefined)) : "–"}</b></figcaption><div class="chart" role="img" aria-label=${`${chart.name}: ${last ? show(chart.of(last, undefined)) : "nothing yet"}`}></div></figure>`)}
      <small>The last five minutes, of the whole server; <code>/metrics</code> has more. ${this.city.missed ? `${count(this.city.missed)} things did not reach this page, for it was slow.` : ""}</small>`;
  }

  override updated(): void {
    super.updated();
    if (!this.desk || this.closest("[hidden]")) return;
    const dark = document.documentElement.hasAttribute("data-dark");
    const boxes = [...this.renderRoot.querySelectorAll<HTMLElement>(".chart")];
    const width = boxes[0]?.clientWidth ?? 0;
    if (!width) return;
    const some = this.city.figures.slice(-WINDOW_S);
    const times = some.map((each) => each.t);
    if (dark !== this.dark) {
      this.charts.forEach((chart) => chart.destroy());
      this.charts = [];
      this.dark = dark;
    }
    const ink = getComputedStyle(this).getPropertyValue("--quiet");
    const line = getComputedStyle(this).getPropertyValue("--line");
    const accent = getComputedStyle(this).getPropertyValue("--accent");
    CHARTS.forEach((chart, n) => {
      const data: uPlot.AlignedData = [times, some.map((each, at) => chart.of(each, some[at - 1]))];
      if (this.charts[n]) {
        this.charts[n].setData(data);
        if (this.charts[n].width !== width) this.charts[n].setSize({ width, height: 92 });
        return;
      }
      const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      this.charts[n] = new uPlot({
        width, height: 92, legend: { show: false }, cursor: { show: false },
        scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.15)] } },
        series: [{}, { stroke: accent, fill: `${accent.trim()}22`, width: 1.6, points: { show: false } }],
        axes: [{ ...axis, size: 22, space: 70 }, { ...axis, size: 40, space: 26 }],
      }, data, boxes[n]);
    });
  }
}
customElements.define("near-figures", NearFigures);

function show(value: number): string {
  return value >= 100 || Number.isInteger(value) ? count(value) : value.toFixed(1);
}
