// Where things are: on the globe, or on a plane that is drawn as if it were a degree of it.

export type Point = [number, number];
export type Extent = [number, number, number, number];
export type Geometry = { type: string; coordinates: unknown };

const RADIUS_M = 6371008.8;
const RADIANS = Math.PI / 180;

/** A space and the way from its coordinates to the map's longitudes and latitudes, and back. */
export class Space {
  constructor(
    readonly kind: "globe" | "planar",
    private readonly centre: Point = [0, 0],
    private readonly scale = 1,
  ) {}

  /** For a plane of this extent: its longer side becomes half a degree, near the equator, where
   * Mercator's stretch (4e-5) is less than a pixel. */
  static of(kind: "globe" | "planar", extent: Extent | null): Space {
    if (kind === "globe") return new Space("globe");
    const [x0, y0, x1, y1] = extent ?? [0, 0, 1000, 1000];
    const side = Math.max(x1 - x0, y1 - y0) || 1;
    return new Space("planar", [(x0 + x1) / 2, (y0 + y1) / 2], 0.5 / side);
  }

  toMap([x, y]: Point): Point {
    if (this.kind === "globe") return [x, y];
    return [(x - this.centre[0]) * this.scale, (y - this.centre[1]) * this.scale];
  }

  fromMap([lon, lat]: Point): Point {
    if (this.kind === "globe") return [round(((((lon + 180) % 360) + 360) % 360) - 180), round(lat)];
    return [round(lon / this.scale + this.centre[0]), round(lat / this.scale + this.centre[1])];
  }

  distance([x1, y1]: Point, [x2, y2]: Point): number {
    if (this.kind === "planar") return Math.hypot(x2 - x1, y2 - y1);
    const s = Math.sin(((y2 - y1) * RADIANS) / 2);
    const t = Math.sin(((x2 - x1) * RADIANS) / 2);
    const a = s * s + Math.cos(y1 * RADIANS) * Math.cos(y2 * RADIANS) * t * t;
    return 2 * RADIUS_M * Math.asin(Math.min(1, Math.sqrt(a)));
  }

  /** A place so far east and north of a centre, on the azimuthal equidistant map of that. */
  beside([x, y]: Point, east: number, north: number): Point {
    if (this.kind === "planar") return [x + east, y + north];
    const far = Math.hypot(east, north);
    if (far === 0) return [x, y];
    const angle = far / RADIUS_M;
    const [sin0, cos0] = [Math.sin(y * RADIANS), Math.cos(y * RADIANS)];
    const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
    const lat = Math.asin(Math.max(-1, Math.min(1, cos * sin0 + (north * sin * cos0) / far)));
    const lon = Math.atan2(east * sin, far * cos0 * cos - north * sin0 * sin);
    return [x + lon / RADIANS, lat / RADIANS];
  }

  circle(centre: Point, radius: number, corners = 96): Point[] {
    return Array.from({ length: corners + 1 }, (_, n) => {
      const turn = (2 * Math.PI * (n % corners)) / corners;
      return this.beside(centre, radius * Math.cos(turn), radius * Math.sin(turn));
    });
  }

  /** A geometry as the map draws it. */
  drawn(geometry: Geometry): Geometry {
    if (this.kind === "globe") return geometry;
    const move = (some: unknown): unknown => {
      const list = some as unknown[];
      return typeof list[0] === "number" ? this.toMap(list as Point) : list.map(move);
    };
    return { type: geometry.type, coordinates: move(geometry.coordinates) };
  }

  /** A subscription's or fence's region as a geometry of the space; null for what follows somebody. */
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  outline(region: any, at: Point | null = null): Geometry | null {
    if (!region) return null;
    if (region.type === "Circle") return { type: "Polygon", coordinates: [this.circle(region.coordinates, region.radius_m)] };
    if (region.type === "Polygon" || region.type === "MultiPolygon") return region;
    if (region.type !== "Around" || !at) return null;
    if (region.radius_m !== undefined) return { type: "Polygon", coordinates: [this.circle(at, region.radius_m)] };
    const rings = region.shape.coordinates as Point[][];
    return { type: "Polygon", coordinates: rings.map((ring) => ring.map(([east, north]) => this.beside(at, east, north))) };
  }
}

function round(value: number): number {
  return Number(value.toPrecision(9));
}

/** Some place in the middle of a geometry, and whether it is a point. */
export function middle(geometry: Geometry | null): Point | null {
  if (!geometry) return null;
  if (geometry.type === "Point") return geometry.coordinates as Point;
  const [x0, y0, x1, y1] = extentOf(geometry);
  return [(x0 + x1) / 2, (y0 + y1) / 2];
}

export function extentOf(geometry: Geometry): Extent {
  const box: Extent = [Infinity, Infinity, -Infinity, -Infinity];
  const look = (some: unknown): void => {
    const list = some as unknown[];
    if (typeof list[0] === "number") {
      const [x, y] = list as Point;
      box[0] = Math.min(box[0], x);
      box[1] = Math.min(box[1], y);
      box[2] = Math.max(box[2], x);
      box[3] = Math.max(box[3], y);
    } else list.forEach(look);
  };
  look(geometry.coordinates);
  return box;
}

/** Metres, or units of a plane, as people read them. */
export function length(value: number, space: Space): string {
  if (space.kind === "planar") return `${Number(value.toPrecision(3))}`;
  return value >= 1000 ? `${(value / 1000).toFixed(value >= 10000 ? 0 : 1)} km` : `${Math.round(value)} m`;
}
