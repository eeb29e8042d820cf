export class RegionError extends Error {}
export interface Shape {
  contains(x: number, y: number): boolean;
  // of cells
  px: number;
  py: number;
  x0: number;
  y0: number;
  cell: number;
  order: number;
  runs: number[];
  discs: [number, number, number][];
  bars: [number, number, number, number, number][];
  // of sites
  sites: [number, number, number][];
  limit: number;
  // of a ball
  x: number;
  y: number;
  radius: number;
}
export interface SafeRegion {
  epoch: number;
  space: "globe" | "planar";
  shape: Partial<Shape> & Pick<Shape, "contains">;
  contains(x: number, y: number): boolean;
}
export function decode(bytes: Uint8Array): SafeRegion;
