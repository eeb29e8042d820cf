// The map: what lies under it, things that stand, and the layer of all that moves.

import { Map as Chart, NavigationControl, ScaleControl, setWorkerUrl, type GeoJSONSource, type StyleSpecification } from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?worker&url";
import { GROUPS, isMade, MADE, palette, type City, type Tiles, type Happening, type Thing, type Told } from "./city";
import { Closeup } from "./closeup";
import { Painter, type Colours } from "./painter";
import { extentOf, type Extent, type Geometry, type Point } from "./space";

setWorkerUrl(workerUrl);

const LIT_MS = 2500;
const SPOKES_MS = 6000; // what was made of others shows them for so long
const EMPTY = { type: "FeatureCollection", features: [] } as const;
const THINGS = 3000;

interface Look {
  ground: string;
  river: string;
  motorway: string;
  casing: string;
  arterial: string;
  street: string;
  area: string;
  subscription: string;
  fence: string;
  lit: string;
  preview: string;
  ink: string;
  made: string;
  points: Colours;
}

const hex = (text: string, alpha = 1): [number, number, number, number] => [
  parseInt(text.slice(1, 3), 16) / 255,
  parseInt(text.slice(3, 5), 16) / 255,
  parseInt(text.slice(5, 7), 16) / 255,
  alpha,
];

const events = (dark: boolean, made: string): [number, number, number, number][] => {
  const some = palette(dark).map((each) => hex(each));
  while (some.length < MADE) some.push(some[some.length - 1]);
  return [...some, hex(made)];
};

const LIGHT: Look = {
  ground: "#ecebe6", river: "#a8cde4", motorway: "#f4c66d", casing: "#d9a74a", arterial: "#ffffff", street: "#fbfaf8", area: "#dbe7d2",
  subscription: "#6d28d9", fence: "#0f766e", lit: "#f59e0b", preview: "#db2777", ink: "#1c2430", made: "#7c3aed",
  points: { true: hex("#475b6e", 0.8), reported: hex("#0f766e"), mark: hex("#db2777"), flash: hex("#7c3aed", 0.9), rim: hex("#ffffff"), events: events(false, "#7c3aed") },
};
const DARK: Look = {
  ground: "#12161b", river: "#1c3f5c", motorway: "#7d6233", casing: "#4d3d22", arterial: "#36404b", street: "#252d36", area: "#1a2a20",
  subscription: "#a78bfa", fence: "#2dd4bf", lit: "#fbbf24", preview: "#f472b6", ink: "#e7ebf0", made: "#c4b5fd",
  points: { true: hex("#9fb3c6", 0.8), reported: hex("#2dd4bf"), mark: hex("#f9a8d4"), flash: hex("#c4b5fd", 0.9), rim: hex("#12161b"), events: events(true, "#c4b5fd") },
};

function styleOf(look: Look, tiles: Tiles | null): StyleSpecification {
  const road = (kind: string, colour: string, width: number, least = 0, id = kind) => ({
    id, type: "line" as const, source: "base", minzoom: least, filter: ["==", ["get", "kind"], kind] as never,
    layout: { "line-cap": "round" as const, "line-join": "round" as const },
    paint: { "line-color": colour, "line-width": ["interpolate", ["exponential", 1.5], ["zoom"], 9.5, width * 0.4, 16, width * 4.5] as never },
  });
  const known = ["in", ["get", "kind"], ["literal", ["river", "motorway", "arterial", "street"]]];
  const lit = (on: unknown, off: unknown) => ["case", ["boolean", ["feature-state", "lit"], false], on, off] as never;
  return {
    version: 8,
    sources: {
      ...(tiles ? { tiles: { type: "raster" as const, tiles: [tiles.url], tileSize: 256, maxzoom: 19, attribution: tiles.credit } } : {}),
      base: { type: "geojson", data: EMPTY as never, tolerance: 0.6 },
      things: { type: "geojson", data: EMPTY as never, promoteId: "id" },
      labels: { type: "geojson", data: EMPTY as never },
      extents: { type: "geojson", data: EMPTY as never },
      sketch: { type: "geojson", data: EMPTY as never },
    },
    layers: [
      { id: "ground", type: "background", paint: { "background-color": look.ground } },
      { id: "areas", type: "fill", source: "base", filter: ["==", ["geometry-type"], "Polygon"] as never, paint: { "fill-color": look.area } },
      { id: "others", type: "line", source: "base", filter: ["!", known] as never, paint: { "line-color": look.arterial, "line-width": 1 } },
      ...(tiles ? [{ id: "tiles", type: "raster" as const, source: "tiles" }] : []),
      road("street", look.street, 1.1),
      road("river", look.river, 7),
      road("arterial", look.arterial, 2),
      road("motorway", look.casing, 3.2, 0, "motorway-edge"),
      road("motorway", look.motorway, 2.2),
      { id: "things-fill", type: "fill", source: "things", paint: {
        "fill-color": lit(look.lit, ["match", ["get", "kind"], "fence", look.fence, look.subscription]),
        "fill-opacity": lit(0.38, ["match", ["get", "kind"], "fence", 0.1, "mine", 0.1, 0.03]) } },
      { id: "things-line", type: "line", source: "things", paint: {
        "line-color": lit(look.lit, ["match", ["get", "kind"], "fence", look.fence, look.subscription]),
        "line-width": lit(4, ["match", ["get", "kind"], "fence", 2, "mine", 2, 0.8]),
        "line-opacity": lit(1, ["match", ["get", "kind"], "fence", 0.9, "mine", 0.9, 0.45]) } },
      { id: "extents-fill", type: "fill", source: "extents", filter: ["==", ["geometry-type"], "Polygon"] as never, paint: { "fill-color": ["get", "colour"] as never, "fill-opacity": 0.06 } },
      { id: "extents-line", type: "line", source: "extents", paint: { "line-color": ["get", "colour"] as never, "line-width": 1.4, "line-opacity": 0.75, "line-dasharray": [3, 2] } },
      { id: "sketch-fill", type: "fill", source: "sketch", paint: { "fill-color": look.preview, "fill-opacity": 0.12 } },
      { id: "sketch-line", type: "line", source: "sketch", paint: { "line-color": look.preview, "line-width": 2, "line-dasharray": [2, 1.5] } },
      { id: "names", type: "symbol", source: "labels",
        layout: { "text-field": ["get", "name"] as never, "text-font": ["sans-serif"], "text-size": 12.5, "text-anchor": "bottom", "text-offset": [0, -0.25], "text-optional": true },
        paint: { "text-color": look.ink, "text-halo-color": look.ground, "text-halo-width": 1.6 } },
    ],
  };
}

/** Raises what MapLibre does where there is no WebGL 2. */
export class Scenery {
  readonly chart: Chart;
  readonly painter: Painter;
  readonly closeup: Closeup;
  private ready = false;
  private dark: boolean;
  private drawn = 0;
  private listed = 0;
  private moment: number | null = null;
  private others: Iterable<Happening> | null = null;
  private marked = new Set<string>();
  private sketched: Geometry | null = null;
  private readonly lit = new Map<string, number>();

  constructor(
    container: HTMLElement,
    private readonly city: City,
    view: { centre: Point; zoom: number } | null,
    dark: boolean,
    private readonly changed: (lost: boolean) => void,
  ) {
    this.dark = dark;
    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.chart = new Chart({
      container,
      style: styleOf(dark ? DARK : LIGHT, city.tiles),
      ...(view ? { center: view.centre, zoom: view.zoom } : boundsOf(city)),
      dragRotate: false,
      pitchWithRotate: false,
      touchPitch: false,
      attributionControl: city.tiles?.credit ? { compact: false } : false,
      fadeDuration: 0,
      canvasContextAttributes: { antialias: false, contextType: "webgl2" },
    });
    this.chart.touchZoomRotate.disableRotation();
    this.chart.keyboard.disableRotation();
    this.chart.addControl(new NavigationControl({ showCompass: false }), "top-right");
    if (city.space.kind === "globe") this.chart.addControl(new ScaleControl(), "bottom-right");
    this.painter = new Painter(this.chart, city);
    this.painter.calm = calm.matches;
    calm.addEventListener("change", () => (this.painter.calm = calm.matches));
    this.closeup = new Closeup(this.chart, city, dark);
    this.paint();
    this.chart.on("style.load", () => this.furnish());
    const canvas = this.chart.getCanvas();
    canvas.setAttribute("aria-label", "Map. What it shows is also in the lists beside it.");
    canvas.addEventListener("webglcontextlost", () => {
      this.ready = false; // MapLibre lets go of the style: there are no sources before it is loaded again
      this.changed(true);
    });
    canvas.addEventListener("webglcontextrestored", () => {
      // MapLibre restores its own layers; ours has buffers that died with the context
      if (this.chart.getLayer("painter")) this.chart.removeLayer("painter");
      this.chart.setStyle(styleOf(this.look, this.city.tiles), { diff: false });
      this.changed(false);
    });
  }

  private get look(): Look {
    return this.dark ? DARK : LIGHT;
  }

  private paint(): void {
    this.painter.colours = this.look.points;
  }

  private furnish(): void {
    this.ready = true;
    this.source("base").setData(this.base() as never);
    this.chart.addLayer(this.painter, "names");
    this.drawThings();
    this.sketch(this.sketched);
    this.refresh();
    this.closeup.draw();
  }

  setDark(dark: boolean): void {
    if (dark === this.dark) return;
    this.dark = dark;
    this.paint();
    this.closeup.setDark(dark);
    this.ready = false;
    this.chart.setStyle(styleOf(this.look, this.city.tiles), { diff: false });
  }

  private source(name: string): GeoJSONSource {
    return this.chart.getSource(name) as GeoJSONSource;
  }

  private base(): unknown {
    // eslint-disable-next-line @typescript-eslint/no-explicit-any
    const base = this.city.base as any;
    if (!base) return EMPTY;
    const features = base.type === "Feature" ? [base] : base.features;
    // eslint-disable-next-line @typescript-eslint/no-explicit-any
    return { type: "FeatureCollection", features: features.filter((each: any) => each.geometry?.coordinates).map((each: any) => ({ ...each, geometry: this.city.space.drawn(each.geometry) })) };
  }

  /** Things have changed; many at once are shown as one change. */
  showThings(): void {
    this.listed ||= window.setTimeout(() => {
      this.listed = 0;
      this.drawThings();
    }, 200);
  }

  private drawThings(): void {
    if (!this.ready) return;
    const features: unknown[] = [];
    const names: unknown[] = [];
    const take = (things: Iterable<Thing>, kind: (thing: Thing) => string) => {
      for (const thing of things) {
        const outline = this.city.space.outline(thing.region);
        if (!outline || features.length >= THINGS) continue;
        const [properties, geometry] = [{ id: thing.id, kind: kind(thing) }, this.city.space.drawn(outline)];
        features.push({ type: "Feature", properties, geometry });
        if (properties.kind === "subscription") continue;
        const [x0, , x1, y1] = extentOf(geometry);
        names.push({ type: "Feature", properties: { name: thing.id }, geometry: { type: "Point", coordinates: [(x0 + x1) / 2, y1] } });
      }
    };
    take(this.city.things.fence.values(), () => "fence");
    take(this.city.things.subscription.values(), ({ id }) => (id.startsWith("map-") ? "mine" : "subscription"));
    this.source("things").setData({ type: "FeatureCollection", features } as never);
    this.source("labels").setData({ type: "FeatureCollection", features: names } as never);
  }

  /** What a tool is about: a region that is being drawn, and events that it would match. */
  sketch(geometry: Geometry | null): void {
    this.sketched = geometry;
    if (!this.ready) return;
    const data = geometry ? { type: "Feature", properties: {}, geometry: this.city.space.drawn(geometry) } : EMPTY;
    this.source("sketch").setData(data as never);
  }

  mark(keys: Iterable<string>): void {
    this.marked = new Set(keys);
    this.painter.marked = this.marked;
    this.refresh();
  }

  /** Events of a moment of the log instead of the live ones; null: live again. */
  replay(events: Iterable<Happening> | null, moment: number | null): void {
    this.others = events;
    this.moment = moment;
    this.painter.movers = events === null;
    this.refresh();
  }

  /** Something came: show it, extents at most twice a second. */
  refresh(): void {
    if (!this.ready) return;
    this.painter.show(this.others ?? this.city.shown(), this.moment);
    if (this.city.follows) this.closeup.draw();
    if (this.drawn) return;
    this.drawn = window.setTimeout(() => {
      this.drawn = 0;
      if (!this.ready) return;
      this.source("extents").setData({ type: "FeatureCollection", features: this.extents() } as never);
    }, 500);
  }

  /** What is more than a point: areas of events, and lines from what was just made to what it is made of. */
  private extents(): unknown[] {
    const features: unknown[] = [];
    const add = (geometry: Geometry, colour: string) => features.push({ type: "Feature", properties: { colour }, geometry: this.city.space.drawn(geometry) });
    const now = performance.now();
    for (const each of this.others ?? this.city.shown()) {
      if (features.length >= 1000) break;
      if (!isMade(each)) {
        const colour = palette(this.dark)[Math.min(this.city.group(each), GROUPS - 1)];
        if (each.geometry && each.geometry.type !== "Point") add(each.geometry, colour);
      } else if (each.place && (this.marked.has(each.key) || now - each.seen < SPOKES_MS)) {
        for (const spoke of each.spokes ?? []) add({ type: "LineString", coordinates: [each.place, spoke] }, this.look.made);
      }
    }
    return features;
  }

  /** Somebody was told: a line that flashes, a fence that lights up. */
  told(told: Told): void {
    const event = this.city.happened(told);
    const to = told.subscriber === null ? null : this.city.whereabouts(told.subscriber);
    if (event?.place && to) this.painter.flash(event.place, to);
    if (event?.place) for (const spoke of event.spokes ?? []) this.painter.flash(spoke, event.place);
    if (told.transition) this.light(told.to);
  }

  private light(id: string): void {
    if (!this.ready) return;
    clearTimeout(this.lit.get(id));
    this.chart.setFeatureState({ source: "things", id }, { lit: true });
    this.lit.set(id, window.setTimeout(() => {
      this.lit.delete(id);
      if (this.ready) this.chart.setFeatureState({ source: "things", id }, { lit: false });
    }, LIT_MS));
  }

  isLit(id: string): boolean {
    return this.lit.has(id);
  }

  /** Bring a mover into view, with as much around it as it wants to know of. */
  approach(at: Point, reach: number): void {
    this.goTo({ type: "Polygon", coordinates: [this.city.space.circle(at, 1.7 * reach)] });
  }

  /** Bring a place or a shape into view. */
  goTo(geometry: Geometry): void {
    const [x0, y0, x1, y1] = extentOf(this.city.space.drawn(geometry));
    const animate = !this.painter.calm;
    if (x0 === x1 && y0 === y1) this.chart.easeTo({ center: [x0, y0], zoom: Math.max(this.chart.getZoom(), 14), animate });
    else this.chart.fitBounds([[x0, y0], [x1, y1]], { padding: 60, maxZoom: 15, animate });
  }

  view(): { centre: Point; zoom: number } {
    const { lng, lat } = this.chart.getCenter();
    return { centre: [lng, lat], zoom: this.chart.getZoom() };
  }
}

function boundsOf(city: City): { bounds: [Point, Point]; fitBoundsOptions: { padding: number } } | { center: Point; zoom: number } {
  const extent: Extent | null = city.extent;
  if (!extent && city.space.kind === "globe") return { center: [8.5, 47.4], zoom: 3 };
  const [x0, y0, x1, y1] = extent ?? [0, 0, 1000, 1000];
  const room = x0 === x1 && y0 === y1 ? 0.01 : 0;
  const [low, high] = [city.space.toMap([x0, y0]), city.space.toMap([x1, y1])];
  return { bounds: [[low[0] - room, low[1] - room], [high[0] + room, high[1] + room]], fitBoundsOptions: { padding: 24 } };
}
