// Drawing regions by hand: terra-draw's shapes as the regions that a server takes.

import { TerraDraw, TerraDrawCircleMode, TerraDrawPolygonMode, TerraDrawRectangleMode } from "terra-draw";
import { TerraDrawMapLibreGLAdapter } from "terra-draw-maplibre-gl-adapter";
import type { Map as Chart } from "maplibre-gl";
import { extentOf, type Point, type Space } from "./space";

export type Form = "circle" | "rectangle" | "polygon";

const STYLE = { fillColor: "#db2777", fillOpacity: 0.12, outlineColor: "#db2777", outlineWidth: 2 } as const;

/** Draw one shape; `done` gets the region as JSON, then it is off the map again. */
export class Sketch {
  private draw: TerraDraw | null = null;

  constructor(
    private readonly chart: Chart,
    private readonly space: Space,
    private readonly done: (region: object) => void,
  ) {}

  start(form: Form): void {
    this.stop();
    const draw = new TerraDraw({
      adapter: new TerraDrawMapLibreGLAdapter({ map: this.chart, prefixId: "sketching" }),
      modes: [
        new TerraDrawCircleMode({ styles: STYLE }),
        new TerraDrawRectangleMode({ styles: STYLE }),
        new TerraDrawPolygonMode({ styles: { ...STYLE, closingPointColor: "#db2777", closingPointWidth: 5 } }),
      ],
    });
    draw.start();
    draw.setMode(form);
    draw.on("finish", (id) => {
      const made = draw.getSnapshot().find((each) => each.id === id);
      if (made) this.done(this.region(form, made.geometry.coordinates as Point[][]));
      setTimeout(() => this.stop());
    });
    this.draw = draw;
  }

  get drawing(): boolean {
    return this.draw !== null;
  }

  stop(): void {
    this.draw?.stop();
    this.draw = null;
  }

  private region(form: Form, rings: Point[][]): object {
    const there = rings.map((ring) => ring.map((at) => this.space.fromMap(at)));
    if (form === "polygon") return { type: "Polygon", coordinates: there };
    const [x0, y0, x1, y1] = extentOf({ type: "Polygon", coordinates: there });
    if (form === "rectangle") {
      return { type: "Polygon", bbox: [x0, y0, x1, y1], coordinates: [[[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]] };
    }
    // a circle comes as a polygon of 64 corners about its centre
    const [west, south, east, north] = extentOf({ type: "Polygon", coordinates: rings });
    const centre = this.space.fromMap([(west + east) / 2, (south + north) / 2]);
    const far = there[0].map((at) => this.space.distance(centre, at));
    const radius = far.reduce((sum, each) => sum + each, 0) / far.length;
    return { type: "Circle", coordinates: centre, radius_m: Number(radius.toPrecision(4)) };
  }
}
