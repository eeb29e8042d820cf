// Safe regions in the browser: decode what SafeRegion.encode wrote, and test points.
// The format is docs/safe-region-format.md, versions 1 and 2. No dependencies.

const EARTH_RADIUS_M = 6371008.8;
const FARTHEST_M = (EARTH_RADIUS_M * Math.PI) / 4;
const RADIANS = Math.PI / 180;
const HEAD = 13;
const GRID = 56;

export class RegionError extends Error {}

function refuse(text) {
  throw new RegionError(`not a safe region: ${text}`);
}

const CRC = new Uint32Array(256).map((_, n) => {
  for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1;
  return n >>> 0;
});

function crc32(bytes) {
  let crc = 0xffffffff;
  for (const byte of bytes) crc = (crc >>> 8) ^ CRC[(crc ^ byte) & 255];
  return (crc ^ 0xffffffff) >>> 0;
}

function distance(globe, x1, y1, x2, y2) {
  if (!globe) return Math.hypot(x2 - x1, y2 - y1);
  const p1 = y1 * RADIANS;
  const p2 = y2 * RADIANS;
  const s = Math.sin((p2 - p1) / 2);
  const t = Math.sin(((x2 - x1) * RADIANS) / 2);
  const a = s * s + Math.cos(p1) * Math.cos(p2) * t * t;
  return 2 * EARTH_RADIUS_M * Math.asin(Math.min(1, Math.sqrt(a)));
}

function extend(runs, start, stop) {
  const last = runs.length - 1;
  if (last > 0 && runs[last] === start) runs[last] = stop;
  else runs.push(start, stop);
}

// Both readers give runs as start, stop, start, stop, …
function readWah(view, from, size, limit) {
  if (size % 4) refuse("WAH data are whole words");
  const runs = [];
  let at = 0;
  for (let i = from; i < from + size; i += 4) {
    const word = view.getUint32(i, true);
    if (word >= 0x80000000) {
      const length = (word & 0x3fffffff) * 31;
      if (word & 0x40000000 && length) extend(runs, at, at + length);
      at += length;
    } else {
      for (let k = 0; k < 31; k++) if ((word >>> k) & 1) extend(runs, at + k, at + k + 1);
      at += 31;
    }
    if ((runs.length && runs[runs.length - 1] > limit) || at > limit + 62) refuse("runs beyond its cells");
  }
  return runs;
}

function readRoaring(view, from, size, limit) {
  const end = from + size;
  let at = from;
  const take = (bytes) => {
    if (at + bytes > end) refuse("the Roaring bitmap is cut short");
    at += bytes;
    return at - bytes;
  };
  const u16 = () => view.getUint16(take(2), true);
  const cookie = view.getUint32(take(4), true);
  let count;
  let flags = null;
  if ((cookie & 0xffff) === 12347) {
    count = (cookie >>> 16) + 1;
    flags = take((count + 7) >> 3);
  } else if (cookie === 12346) {
    count = view.getUint32(take(4), true);
  } else refuse("no Roaring bitmap");
  if (count > 65536) refuse("too many Roaring containers");
  const heads = [];
  for (let i = 0; i < count; i++) heads.push([u16(), u16() + 1]);
  if (flags === null || count >= 4) take(4 * count);
  const runs = [];
  heads.forEach(([key, cardinality], i) => {
    const base = key * 65536;
    const add = (start, stop) => {
      if (runs.length && base + start < runs[runs.length - 1]) refuse("Roaring runs overlap");
      extend(runs, base + start, base + stop);
    };
    if (flags !== null && (view.getUint8(flags + (i >> 3)) >> (i & 7)) & 1) {
      for (let n = u16(); n > 0; n--) {
        const start = u16();
        add(start, start + u16() + 1);
      }
    } else if (cardinality <= 4096) {
      for (let n = 0; n < cardinality; n++) {
        const value = u16();
        add(value, value + 1);
      }
    } else {
      const bits = take(8192);
      for (let n = 0; n < 65536; n++) {
        if ((view.getUint8(bits + (n >> 3)) >> (n & 7)) & 1) add(n, n + 1);
      }
    }
  });
  if (runs.length && runs[runs.length - 1] > limit) refuse("runs beyond its cells");
  if (at !== end) refuse("bytes follow the Roaring bitmap");
  return runs;
}

function spread(value) {
  value = (value | (value << 8)) & 0x00ff00ff;
  value = (value | (value << 4)) & 0x0f0f0f0f;
  value = (value | (value << 2)) & 0x33333333;
  return (value | (value << 1)) & 0x55555555;
}

class Cells {
  constructor(globe, view, from, end, version) {
    if (end - from < GRID) refuse("it ends too early");
    const f64 = (at) => view.getFloat64(from + at, true);
    this.globe = globe;
    [this.px, this.py, this.reach] = [f64(0), f64(8), f64(16)];
    [this.x0, this.y0, this.cell] = [f64(24), f64(32), f64(40)];
    this.order = view.getUint8(from + 48);
    const way = view.getUint8(from + 49);
    const discs = view.getUint16(from + 50, true);
    const size = view.getUint32(from + 52, true);
    const after = from + GRID + size + 12 * discs;
    let bars = 0;
    let whole = after;
    if (version === 2) {
      if (after + 2 > end) refuse("it ends too early");
      bars = view.getUint16(after, true);
      whole = after + 2 + 20 * bars;
    }
    if (this.order > 15 || way > 1 || whole !== end) refuse("its lengths do not agree");
    const finite = [this.px, this.py, this.x0, this.y0, this.cell].every(Number.isFinite);
    if (!finite || !(this.cell > 0) || !(this.reach >= 0) || (globe && this.reach > FARTHEST_M)) refuse("its grid is no grid");
    const limit = 4 ** this.order;
    const read = way === 0 ? readWah : readRoaring;
    this.runs = size ? read(view, from + GRID, size, limit) : [];
    this.discs = [];
    for (let i = 0, at = from + GRID + size; i < discs; i++, at += 12) {
      const disc = [0, 4, 8].map((k) => view.getFloat32(at + k, true));
      if (!disc.every(Number.isFinite)) refuse("a disc is not finite");
      this.discs.push(disc);
    }
    this.bars = [];
    for (let i = 0, at = after + 2; i < bars; i++, at += 20) {
      const bar = [0, 4, 8, 12, 16].map((k) => view.getFloat32(at + k, true));
      if (!bar.every(Number.isFinite)) refuse("a bar is not finite");
      this.bars.push(bar);
    }
    this.sin0 = globe ? Math.sin(this.py * RADIANS) : 0;
    this.cos0 = globe ? Math.cos(this.py * RADIANS) : 1;
  }

  toMap(x, y) {
    if (!this.globe) return [x - this.px, y - this.py];
    const turn = (x - this.px) * RADIANS;
    const phi = y * RADIANS;
    const sin = Math.sin(phi);
    const cos = Math.cos(phi);
    const east = cos * Math.sin(turn);
    const north = this.cos0 * sin - this.sin0 * cos * Math.cos(turn);
    const s = Math.hypot(east, north);
    if (this.sin0 * sin + this.cos0 * cos * Math.cos(turn) <= 0) return [Infinity, Infinity];
    const angle = Math.asin(Math.min(1, s));
    if (angle * EARTH_RADIUS_M > this.reach) return [Infinity, Infinity];
    const scale = EARTH_RADIUS_M * (s > 0 ? angle / s : 1);
    return [scale * east, scale * north];
  }

  contains(x, y) {
    const [u, v] = this.toMap(x, y);
    const side = 2 ** this.order;
    const across = (u - this.x0) / this.cell;
    const up = (v - this.y0) / this.cell;
    if (!(across >= 0 && across < side && up >= 0 && up < side)) return false;
    const code = spread(Math.floor(across)) + 2 * spread(Math.floor(up));
    let low = 0;
    let high = this.runs.length >> 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.runs[2 * middle] <= code) low = middle + 1;
      else high = middle;
    }
    if (low === 0 || code >= this.runs[2 * low - 1]) return false;
    for (const [cx, cy, radius] of this.discs) {
      const dx = u - cx;
      const dy = v - cy;
      if (dx * dx + dy * dy <= radius * radius) return false;
    }
    for (const [ax, ay, bx, by, reach] of this.bars) {
      let dx = bx - ax;
      let dy = by - ay;
      const length = dx * dx + dy * dy;
      let along = length > 0 ? ((u - ax) * dx + (v - ay) * dy) / length : 0;
      along = Math.min(1, Math.max(0, along));
      dx = ax + along * dx - u;
      dy = ay + along * dy - v;
      if (dx * dx + dy * dy <= reach * reach) return false;
    }
    return true;
  }
}

class Sites {
  constructor(globe, view, from, end) {
    if (end - from < 12) refuse("it ends too early");
    this.globe = globe;
    this.limit = view.getFloat64(from, true);
    const count = view.getUint32(from + 8, true);
    if (count < 1 || end - from !== 12 + 24 * count) refuse("its lengths do not agree");
    this.sites = [];
    for (let i = 0, at = from + 12; i < count; i++, at += 24) {
      const site = [0, 8, 16].map((k) => view.getFloat64(at + k, true));
      if (!site.every(Number.isFinite)) refuse("a site is not finite");
      this.sites.push(site);
    }
    if (!(this.limit >= 0)) refuse("its limit is no distance");
  }

  contains(x, y) {
    const [first, ...others] = this.sites;
    const whole = distance(this.globe, x, y, first[0], first[1]);
    const gap = whole - first[2];
    if (gap <= 0 || whole > this.limit) return false;
    return others.every(([a, b, r]) => distance(this.globe, x, y, a, b) - r >= gap);
  }
}

class Ball {
  constructor(globe, view, from, end) {
    if (end - from !== 24) refuse("its lengths do not agree");
    this.globe = globe;
    [this.x, this.y, this.radius] = [0, 8, 16].map((k) => view.getFloat64(from + k, true));
    if (!Number.isFinite(this.x) || !Number.isFinite(this.y) || !(this.radius >= 0)) refuse("a ball has a finite centre");
  }

  contains(x, y) {
    return this.radius === Infinity || distance(this.globe, x, y, this.x, this.y) < this.radius;
  }
}

const KINDS = [Cells, Sites, Ball];

/** Decode a Uint8Array: { epoch, space, shape, contains(x, y) }; RegionError for anything else. */
export function decode(bytes) {
  if (bytes.length < HEAD + 4) refuse("too short");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes[0] !== 0x6e || bytes[1] !== 0x52) refuse("it begins with 'nR'");
  const version = bytes[2];
  if (version !== 1 && !(version === 2 && bytes[3] === 0)) refuse("this reader knows versions 1 and 2");
  const end = bytes.length - 4;
  if (crc32(bytes.subarray(0, end)) !== view.getUint32(end, true)) refuse("its checksum is wrong");
  if (bytes[3] >= KINDS.length || bytes[4] > 1) refuse("its kind or space is not known");
  const shape = new KINDS[bytes[3]](bytes[4] === 0, view, HEAD, end, version);
  return {
    epoch: Number(view.getBigUint64(5, true)),
    space: bytes[4] === 0 ? "globe" : "planar",
    shape,
    contains: (x, y) => shape.contains(x, y),
  };
}
