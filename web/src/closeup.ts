// The followed mover, drawn exactly as the bytes say: whole cells, round holes, bars; and its impact region.

import { decode, type SafeRegion } from "../safe_region.js";
import type { Map as Chart } from "maplibre-gl";
import type { City } from "./city";
import type { Point } from "./space";

const ROUGH = 3; // pixels of a sample where a region has no outline that could be drawn
const FEW = 30; // pixels below which a disc's picture is a circle

const RIM = 1.6; // pixels of a region's outline
const COLOURS = {
  light: { safe: "#059669", impact: "#d97706", trail: "#0284c7", reach: "#6d28d9" },
  dark: { safe: "#34d399", impact: "#fbbf24", trail: "#38bdf8", reach: "#c4b5fd" },
};

/** Canvases over the map, drawn anew when it moves or a region comes: areas, their rims, lines. */
export class Closeup {
  readonly element = document.createElement("div");
  private colours = COLOURS.light;
  region: SafeRegion | null = null;
  wrong = "";
  private readonly layers: CanvasRenderingContext2D[];
  private extra: HTMLCanvasElement | null = null;

  constructor(
    private readonly chart: Chart,
    private readonly city: City,
    dark: boolean,
  ) {
    this.colours = dark ? COLOURS.dark : COLOURS.light;
    this.element.className = "closeup";
    this.element.setAttribute("aria-hidden", "true");
    this.layers = ["impact", "safe", "lines"].map((name) => {
      const canvas = document.createElement("canvas");
      canvas.className = name;
      this.element.append(canvas);
      return canvas.getContext("2d")!;
    });
    chart.getCanvasContainer().append(this.element);
    chart.on("move", () => this.draw());
    chart.on("resize", () => this.draw());
  }

  /** Another region came, or nobody is followed any more. */
  take(): void {
    const bytes = this.city.followed?.safe_region;
    this.region = null;
    this.wrong = "";
    if (bytes) {
      try {
        this.region = decode(Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0)));
      } catch (error) {
        this.wrong = String(error);
      }
    }
    this.draw();
  }

  setDark(dark: boolean): void {
    this.colours = dark ? COLOURS.dark : COLOURS.light;
    this.draw();
  }

  private pixel(at: Point): Point {
    const { x, y } = this.chart.project(this.city.space.toMap(at));
    return [x, y];
  }

  draw(): void {
    const { clientWidth: width, clientHeight: height } = this.chart.getCanvas();
    const ratio = devicePixelRatio;
    for (const layer of this.layers) {
      const { canvas } = layer;
      if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
        canvas.width = width * ratio;
        canvas.height = height * ratio;
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      layer.setTransform(ratio, 0, 0, ratio, 0, 0);
      layer.clearRect(0, 0, width, height);
      layer.globalCompositeOperation = "source-over";
    }
    if (!this.city.follows) return;
    const [impact, safe, lines] = this.layers;
    this.drawImpact(impact);
    if (this.region) this.drawSafe(safe, this.region, width, height);
    for (const layer of [impact, safe]) this.rim(layer, lines, width, height);
    this.drawLines(lines);
  }

  /** The outline of what a layer shows, whatever it was cut from: it a little larger, less itself. */
  private rim(layer: CanvasRenderingContext2D, onto: CanvasRenderingContext2D, width: number, height: number): void {
    const around = this.spare(width, height);
    for (let n = 0; n < 8; n++) {
      const turn = (Math.PI * n) / 4;
      around.drawImage(layer.canvas, RIM * Math.cos(turn), RIM * Math.sin(turn), width, height);
    }
    around.globalCompositeOperation = "destination-out";
    around.drawImage(layer.canvas, 0, 0, width, height);
    onto.drawImage(around.canvas, 0, 0, width, height);
  }

  private spare(width: number, height: number): CanvasRenderingContext2D {
    const canvas = (this.extra ??= document.createElement("canvas"));
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    const layer = canvas.getContext("2d")!;
    layer.scale(devicePixelRatio, devicePixelRatio);
    return layer;
  }

  private path(layer: CanvasRenderingContext2D, points: Point[]): void {
    points.forEach((at, n) => {
      const [x, y] = this.pixel(at);
      if (n) layer.lineTo(x, y);
      else layer.moveTo(x, y);
    });
  }

  private drawImpact(layer: CanvasRenderingContext2D): void {
    const impact = this.city.followed?.impact;
    if (!impact) return;
    layer.fillStyle = this.colours.impact;
    layer.beginPath();
    if (impact.kind === "ball") {
      if (impact.radius !== null) this.path(layer, this.city.space.circle([impact.x, impact.y], impact.radius));
    } else {
      const [x0, y0] = impact.corner;
      for (const [row, start, stop] of impact.runs) {
        this.rectangle(layer, impact.centre, x0 + start * impact.cell, y0 + row * impact.cell, x0 + stop * impact.cell, y0 + (row + 1) * impact.cell);
      }
    }
    layer.fill();
  }

  private rectangle(layer: CanvasRenderingContext2D, centre: Point, u0: number, v0: number, u1: number, v1: number): void {
    const { space } = this.city;
    this.path(layer, [space.beside(centre, u0, v0), space.beside(centre, u1, v0), space.beside(centre, u1, v1), space.beside(centre, u0, v1)]);
    layer.closePath();
  }

  private drawSafe(layer: CanvasRenderingContext2D, region: SafeRegion, width: number, height: number): void {
    const shape = region.shape;
    layer.fillStyle = this.colours.safe;
    layer.strokeStyle = this.colours.safe;
    layer.lineWidth = 0.6; // neighbours share their edges without a seam
    if (shape.runs) {
      const centre: Point = [shape.px!, shape.py!];
      layer.beginPath();
      for (let n = 0; n < shape.runs.length; n += 2) {
        for (const [column, row, size] of squares(shape.runs[n], shape.runs[n + 1])) {
          const [u, v] = [shape.x0! + column * shape.cell!, shape.y0! + row * shape.cell!];
          this.rectangle(layer, centre, u, v, u + size * shape.cell!, v + size * shape.cell!);
        }
      }
      layer.fill();
      layer.stroke();
      layer.globalCompositeOperation = "destination-out";
      for (const [u, v, radius] of shape.discs!) this.hole(layer, centre, u, v, u, v, radius);
      for (const [au, av, bu, bv, reach] of shape.bars!) this.hole(layer, centre, au, av, bu, bv, reach);
      layer.globalCompositeOperation = "source-over";
    } else if (shape.radius !== undefined && shape.radius !== Infinity) {
      layer.beginPath();
      this.path(layer, this.city.space.circle([shape.x!, shape.y!], shape.radius, 180));
      layer.fill();
    } else {
      for (let x = 0; x < width; x += ROUGH) {
        for (let y = 0; y < height; y += ROUGH) {
          const { lng, lat } = this.chart.unproject([x + ROUGH / 2, y + ROUGH / 2]);
          if (shape.contains(...this.city.space.fromMap([lng, lat]))) layer.fillRect(x, y, ROUGH, ROUGH);
        }
      }
    }
  }

  /** A disc, or a bar with round ends, taken out. */
  private hole(layer: CanvasRenderingContext2D, centre: Point, au: number, av: number, bu: number, bv: number, reach: number): void {
    const { space } = this.city;
    const [x, y] = this.pixel(space.beside(centre, au, av));
    const [edge] = this.pixel(space.beside(centre, au + reach, av));
    const radius = Math.abs(edge - x);
    layer.beginPath();
    if (au === bu && av === bv && radius < FEW) layer.arc(x, y, radius, 0, 2 * Math.PI);
    else {
      const turn = Math.atan2(bv - av, bu - au);
      const round = (u: number, v: number, from: number): Point[] =>
        Array.from({ length: 49 }, (_, n) => {
          const angle = from + (Math.PI * n) / 48;
          return space.beside(centre, u + reach * Math.cos(angle), v + reach * Math.sin(angle));
        });
      this.path(layer, [...round(bu, bv, turn - Math.PI / 2), ...round(au, av, turn + Math.PI / 2)]);
      layer.closePath();
    }
    layer.fill();
  }

  private drawLines(layer: CanvasRenderingContext2D): void {
    const { city } = this;
    const at = city.whereabouts(city.follows!);
    layer.lineWidth = 1.5;
    layer.strokeStyle = this.colours.reach;
    layer.setLineDash([5, 4]);
    for (const wish of city.of(city.follows!)) {
      const outline = city.space.outline(wish.region, at);
      if (!outline || wish.region?.type !== "Around") continue;
      layer.beginPath();
      for (const ring of outline.coordinates as Point[][]) this.path(layer, ring);
      layer.stroke();
    }
    layer.setLineDash([]);
    layer.strokeStyle = this.colours.trail;
    layer.lineWidth = 3;
    layer.lineCap = layer.lineJoin = "round";
    const { length } = city.trail;
    for (let n = 1; n < length; n++) { // the longer ago, the fainter
      layer.globalAlpha = 0.15 + (0.85 * n) / length;
      layer.beginPath();
      this.path(layer, city.trail.slice(n - 1, n + 1));
      layer.stroke();
    }
    layer.globalAlpha = 1;
    if (at) {
      const [x, y] = this.pixel(at);
      layer.beginPath();
      layer.arc(x, y, 10, 0, 2 * Math.PI);
      layer.stroke();
    }
  }
}

/** The whole squares that a run of numbered cells is made of: column, row, side. */
export function* squares(start: number, stop: number): Generator<[number, number, number]> {
  while (start < stop) {
    let side = 1;
    while (start % (4 * side * side) === 0 && start + 4 * side * side <= stop) side *= 2;
    yield [even(start), even(start / 2), side];
    start += side * side;
  }
}

/** Every other bit of a number below 2 ** 31, the lowest first. */
function even(value: number): number {
  let [found, bit] = [0, 1];
  let rest = Math.floor(value);
  while (rest > 0) {
    if (rest % 2 === 1) found += bit;
    rest = Math.floor(rest / 4);
    bit *= 2;
  }
  return found;
}
