// Movers, events and flashes in one WebGL2 layer of the map: a buffer each, filled when something
// comes, not at every frame. Coordinates are offsets from an origin, for a float32 longitude has steps of 0.7 m.

import { type CustomLayerInterface, type CustomRenderMethodInput, type Map as Chart } from "maplibre-gl";
import type { City, Happening, Places } from "./city";
import type { Point } from "./space";

const POINTS = `#version 300 es
uniform mat4 u_matrix; uniform float u_size, u_now, u_calm; uniform int u_kind;
in vec2 a_at; in vec4 a_more;
out float v_age; out float v_left; out float v_mark; flat out int v_group;
void main() {
  gl_Position = u_matrix * vec4(a_at, 0.0, 1.0);
  v_age = u_now - a_more.x; v_left = a_more.y < 0.0 ? 1.0 : clamp((a_more.y - u_now) / max(a_more.z, 1.0), 0.0, 1.0);
  v_mark = step(15.5, a_more.w); v_group = int(a_more.w - 16.0 * v_mark + 0.5);
  float pulse = u_kind == 1 && u_calm == 0.0 ? exp(-max(v_age, 0.0) * 2.5) : 0.0;
  float more = u_kind == 1 ? 1.0 + 2.4 * pulse + 0.9 * v_mark : 1.0 + 1.2 * v_mark;
  gl_PointSize = u_size * more * (v_group == 7 && u_kind == 1 ? 1.35 : 1.0);
}`;
const DOT = `#version 300 es
precision highp float;
precision highp int;
uniform vec4 u_colours[8], u_mark, u_rim; uniform int u_kind; uniform float u_fade;
in float v_age; in float v_left; in float v_mark; flat in int v_group; out vec4 colour;
void main() {
  vec2 from = 2.0 * (gl_PointCoord - 0.5);
  bool made = u_kind == 1 && v_group == 7; // composites are diamonds
  float r = made ? abs(from.x) + abs(from.y) : length(from);
  if (r > 1.0) discard;
  vec4 c = v_mark > 0.5 ? u_mark : u_colours[u_kind == 1 ? v_group : 0];
  float edge = 1.0 - smoothstep(0.86, 1.0, r);
  float young = u_kind == 1 ? exp(-max(v_age, 0.0) * 2.5) : 0.0;
  float body = u_kind == 1 ? mix(0.3 + 0.65 * v_left, r > 0.4 ? 0.3 : 0.95, young) : u_kind == 2 && v_mark < 0.5 ? (r > 0.55 ? 0.9 : 0.12) : 0.9;
  float rim = u_kind == 1 ? smoothstep(0.62, 0.8, r) * (1.0 - young) : 0.0;
  float a = mix(c.a, u_rim.a, rim) * edge * body * u_fade;
  colour = vec4(mix(c.rgb, u_rim.rgb, rim) * a, a);
}`;
// A line is two triangles; a_more: when it was drawn (below 0: it stays), the other end, which side.
const LINES = `#version 300 es
uniform mat4 u_matrix; uniform float u_now, u_width; uniform vec2 u_view;
in vec2 a_at; in vec4 a_more; out float v_along; out float v_age;
void main() {
  vec4 here = u_matrix * vec4(a_at, 0.0, 1.0);
  vec4 there = u_matrix * vec4(a_more.yz, 0.0, 1.0);
  vec2 way = (there.xy / there.w - here.xy / here.w) * u_view;
  vec2 aside = vec2(-way.y, way.x) / max(length(way), 1e-6);
  gl_Position = here + vec4(aside * sign(a_more.w) * u_width / u_view * here.w, 0.0, 0.0);
  v_along = abs(a_more.w) > 1.5 ? 1.0 : 0.0;
  v_age = a_more.x < 0.0 ? -1.0 : u_now - a_more.x;
}`;
const LINE = `#version 300 es
precision mediump float;
uniform vec4 u_colour; in float v_along; in float v_age; out vec4 colour;
void main() {
  float head = v_age / 0.7; // a comet from the event to whoever is told
  float behind = head - v_along;
  float bright = v_age < 0.0 ? 1.0 : behind < 0.0 ? 0.08 : max(exp(-3.0 * behind), 0.35) * clamp(1.0 - (v_age - 0.7) / 1.1, 0.0, 1.0);
  float a = u_colour.a * bright;
  colour = vec4(u_colour.rgb * a, a);
}`;

const FLOATS = 6;
const FLASHES = 400;
const FLASH_S = 1.8;
const PULSE_S = 1.6;
const STEP_MS = 50;
const FAR: Point = [9, 9];
const CORNERS = 6; // of a line
const NEAR_ZOOM = 12.4; // from here on last reports are told apart from where people truly are

type Colour = [number, number, number, number];

export interface Colours {
  true: Colour;
  reported: Colour;
  mark: Colour;
  flash: Colour;
  rim: Colour;
  events: Colour[]; // by group, what is made of others last
}

interface Sheet {
  program: WebGLProgram;
  array: WebGLVertexArrayObject;
  buffer: WebGLBuffer;
  count: number;
  data: Float32Array;
}

type Name = "true" | "reported" | "event" | "flash" | "tether";

/** What is shown is set from outside: `shown` events, `marked` ones, whom somebody follows. */
export class Painter implements CustomLayerInterface {
  readonly id = "painter";
  readonly type = "custom";
  readonly renderingMode = "2d";
  colours!: Colours;
  calm = false;
  movers = true;
  marked = new Set<string>();
  frames = 0;
  private gl: WebGL2RenderingContext | null = null;
  private sheets!: Record<Name, Sheet>;
  private origin: Point = [0.5, 0.5];
  private hasOrigin = false;
  private versions = { true: -1, reported: -1 };
  private events: Happening[] = [];
  private flashes: { from: Point; to: Point; at: number }[] = [];
  private timer = 0;
  private youngest = -Infinity;
  private replayed: number | null = null;
  private tethered = false;

  constructor(
    private readonly chart: Chart,
    private readonly city: City,
  ) {}

  onAdd(_: Chart, context: WebGL2RenderingContext | WebGLRenderingContext): void {
    const gl = context as WebGL2RenderingContext;
    const points = program(gl, POINTS, DOT);
    const lines = program(gl, LINES, LINE);
    this.sheets = { true: sheet(gl, points), reported: sheet(gl, points), event: sheet(gl, points), flash: sheet(gl, lines), tether: sheet(gl, lines) };
    this.gl = gl;
    this.versions = { true: -1, reported: -1 };
    this.fillEvents();
    this.fillFlashes();
  }

  onRemove(): void {
    this.gl = null;
    clearTimeout(this.timer);
    this.timer = 0;
  }

  /** These events, as of a moment of the log in ms, or live. */
  show(events: Iterable<Happening>, moment: number | null): void {
    this.events = [...events].filter((each) => each.place);
    this.replayed = moment;
    this.fillEvents();
    this.chart.triggerRepaint();
  }

  flash(from: Point, to: Point): void {
    if (this.calm) return;
    this.flashes.push({ from, to, at: performance.now() / 1000 });
    if (this.flashes.length > FLASHES) this.flashes.splice(0, this.flashes.length - FLASHES);
    this.fillFlashes();
    this.chart.triggerRepaint();
  }

  private offset(at: Point): Point {
    const [lon, lat] = this.city.space.toMap(at);
    const x = (180 + lon) / 360;
    const y = 0.5 - Math.log(Math.tan(Math.PI / 4 + (lat * Math.PI) / 360)) / (2 * Math.PI);
    if (!Number.isFinite(x) || !Number.isFinite(y)) return FAR; // named, and not placed yet
    if (!this.hasOrigin) {
      this.origin = [x, y];
      this.hasOrigin = true;
    }
    return [x - this.origin[0], y - this.origin[1]];
  }

  private fillPlaces(name: "true" | "reported", places: Places): void {
    const sheet = this.sheets[name];
    this.versions[name] = places.version;
    const count = places.names.length;
    const data = reserve(sheet, count);
    const followed = this.city.follows === null ? undefined : places.numbers.get(this.city.follows);
    for (let n = 0; n < count; n++) {
      const [x, y] = this.offset([places.xy[2 * n], places.xy[2 * n + 1]]);
      const at = FLOATS * n;
      data[at] = x;
      data[at + 1] = y;
      data[at + 5] = n === followed ? 16 : 0;
    }
    upload(this.gl!, sheet, count);
  }

  private fillEvents(): void {
    if (!this.gl) return;
    const sheet = this.sheets.event;
    const data = reserve(sheet, this.events.length);
    const live = performance.now();
    const now = this.replayed ?? this.city.now();
    this.youngest = -Infinity;
    this.events.forEach((each, n) => {
      const [x, y] = this.offset(each.place!);
      // ages and remaining lives in seconds on the clock of the frames
      const born = this.replayed === null ? each.seen / 1000 : (live - (now - each.at)) / 1000;
      const until = Math.min(each.expires, each.fades ?? Infinity);
      const left = until === Infinity ? -1 : (live + until - now) / 1000;
      data.set([x, y, born, left, Math.max(1, (until - each.at) / 1000) || 1, this.city.group(each) + (this.marked.has(each.key) ? 16 : 0)], FLOATS * n);
      if (!Number.isFinite(data[FLOATS * n + 4])) data[FLOATS * n + 4] = 1;
      this.youngest = Math.max(this.youngest, born);
    });
    upload(this.gl, sheet, this.events.length);
  }

  private fillFlashes(): void {
    if (!this.gl) return;
    const sheet = this.sheets.flash;
    const data = reserve(sheet, CORNERS * this.flashes.length);
    this.flashes.forEach(({ from, to, at }, n) => line(data, n, this.offset(from), this.offset(to), at));
    upload(this.gl, sheet, CORNERS * this.flashes.length);
  }

  /** From everybody's last report to where they truly are: so far they went in silence. */
  private fillTethers(): void {
    const { simulated, reported } = this.city;
    const sheet = this.sheets.tether;
    const data = reserve(sheet, CORNERS * reported.names.length);
    let count = 0;
    reported.names.forEach((name, n) => {
      const at = simulated.at(name);
      if (at && !Number.isNaN(reported.xy[2 * n])) line(data, count++, this.offset([reported.xy[2 * n], reported.xy[2 * n + 1]]), this.offset(at), -1);
    });
    upload(this.gl!, sheet, CORNERS * count);
  }

  render(context: WebGL2RenderingContext | WebGLRenderingContext, options: CustomRenderMethodInput): void {
    const gl = context as WebGL2RenderingContext;
    if (!this.gl) return;
    this.frames++;
    const now = performance.now() / 1000;
    const zoom = this.chart.getZoom();
    const hasTrue = this.city.simulated.names.length > 0;
    const near = hasTrue && this.movers ? Math.max(0, Math.min(1, (zoom - NEAR_ZOOM) * 2)) : 0;
    let changed = near > 0 !== this.tethered;
    this.tethered = near > 0;
    for (const [name, places] of [["true", this.city.simulated], ["reported", this.city.reported]] as const) {
      if (this.versions[name] === places.version) continue;
      this.fillPlaces(name, places);
      changed = true;
    }
    if (changed && near) this.fillTethers();
    const old = this.flashes.length;
    this.flashes = this.flashes.filter(({ at }) => now - at < FLASH_S);
    if (this.flashes.length !== old) this.fillFlashes();

    const matrix = shifted(options.defaultProjectionData.mainMatrix as unknown as ArrayLike<number>, this.origin);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    gl.disable(gl.DEPTH_TEST);
    const ratio = devicePixelRatio;
    const size = Math.max(3, Math.min(9, 3 + (zoom - 11) * 1.1)) * ratio;
    const view: Point = [gl.drawingBufferWidth, gl.drawingBufferHeight];
    const { colours } = this;
    if (this.movers) {
      if (near) this.lines(gl, "tether", matrix, now, ratio, view, [...colours.reported.slice(0, 3), 0.45 * near] as Colour);
      this.points(gl, "true", matrix, now, size, 0, [colours.true], 1);
      if (!hasTrue) this.points(gl, "reported", matrix, now, size * 1.3, 0, [colours.reported], 1);
      else if (near) this.points(gl, "reported", matrix, now, size, 2, [colours.reported], near);
    }
    this.lines(gl, "flash", matrix, now, 2.6 * ratio, view, colours.flash);
    this.points(gl, "event", matrix, now, Math.max(6.5 * ratio, size * 1.8), 1, colours.events, 1);
    gl.bindVertexArray(null);
    const moving = !this.calm && (this.flashes.length > 0 || now - this.youngest < PULSE_S);
    if (moving && !this.timer) {
      this.timer = window.setTimeout(() => {
        this.timer = 0;
        this.chart.triggerRepaint();
      }, STEP_MS);
    }
  }

  private begin(gl: WebGL2RenderingContext, name: Name, matrix: Float32Array, now: number): ((name: string) => WebGLUniformLocation | null) | null {
    const { program: of, array, count } = this.sheets[name];
    if (!count) return null;
    gl.useProgram(of);
    gl.bindVertexArray(array);
    gl.uniformMatrix4fv(gl.getUniformLocation(of, "u_matrix"), false, matrix);
    gl.uniform1f(gl.getUniformLocation(of, "u_now"), now);
    return (uniform) => gl.getUniformLocation(of, uniform);
  }

  private lines(gl: WebGL2RenderingContext, name: Name, matrix: Float32Array, now: number, width: number, view: Point, colour: Colour): void {
    const at = this.begin(gl, name, matrix, now);
    if (!at) return;
    gl.uniform1f(at("u_width"), width);
    gl.uniform2fv(at("u_view"), view);
    gl.uniform4fv(at("u_colour"), colour);
    gl.drawArrays(gl.TRIANGLES, 0, this.sheets[name].count);
  }

  private points(gl: WebGL2RenderingContext, name: Name, matrix: Float32Array, now: number, size: number, kind: number, colours: Colour[], fade: number): void {
    const at = this.begin(gl, name, matrix, now);
    if (!at) return;
    gl.uniform4fv(at("u_colours"), colours.flat());
    gl.uniform4fv(at("u_mark"), this.colours.mark);
    gl.uniform4fv(at("u_rim"), this.colours.rim);
    gl.uniform1f(at("u_size"), size);
    gl.uniform1f(at("u_fade"), fade);
    gl.uniform1f(at("u_calm"), this.calm ? 1 : 0);
    gl.uniform1i(at("u_kind"), kind);
    gl.drawArrays(gl.POINTS, 0, this.sheets[name].count);
  }

  /** Who or what is at a point of the screen: the nearest within some pixels. */
  find(x: number, y: number): { mover?: string; event?: Happening } | null {
    let best = 14;
    let found: { mover?: string; event?: Happening } | null = null;
    const look = (at: Point, what: { mover?: string; event?: Happening }, favour: number) => {
      const pixel = this.chart.project(this.city.space.toMap(at));
      const far = Math.hypot(pixel.x - x, pixel.y - y) - favour;
      if (far < best) [best, found] = [far, what];
    };
    for (const event of this.events) look(event.place!, { event }, 2);
    if (!this.movers) return found;
    for (const places of [this.city.simulated, this.city.reported]) {
      places.names.forEach((mover, n) => {
        if (!Number.isNaN(places.xy[2 * n])) look([places.xy[2 * n], places.xy[2 * n + 1]], { mover }, 0);
      });
    }
    return found;
  }
}

/** One line's two triangles, with what its shader has to know of the other end. */
function line(data: Float32Array, n: number, from: Point, to: Point, at: number): void {
  // side 1 and 2: the same edge, for seen from the other end the left is the right
  const corners: [Point, Point, number][] = [[from, to, 1], [from, to, -1], [to, from, 2], [to, from, 2], [to, from, -2], [from, to, 1]];
  corners.forEach(([here, there, side], k) => data.set([...here, at, ...there, side], FLOATS * (CORNERS * n + k)));
}

/** The matrix after a move to the origin, in float64 as long as numbers are large. */
function shifted(m: ArrayLike<number>, [x, y]: Point): Float32Array {
  const made = Float64Array.from(m);
  for (let row = 0; row < 4; row++) made[12 + row] = m[row] * x + m[4 + row] * y + m[12 + row];
  return Float32Array.from(made);
}

function reserve(sheet: Sheet, count: number): Float32Array {
  if (sheet.data.length < count * FLOATS) sheet.data = new Float32Array(Math.max(256, 2 * count) * FLOATS);
  return sheet.data;
}

function upload(gl: WebGL2RenderingContext, sheet: Sheet, count: number): void {
  sheet.count = count;
  gl.bindBuffer(gl.ARRAY_BUFFER, sheet.buffer);
  gl.bufferData(gl.ARRAY_BUFFER, sheet.data.subarray(0, count * FLOATS), gl.DYNAMIC_DRAW);
}

function sheet(gl: WebGL2RenderingContext, of: WebGLProgram): Sheet {
  const array = gl.createVertexArray()!;
  const buffer = gl.createBuffer()!;
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  for (const [name, size, from] of [["a_at", 2, 0], ["a_more", 4, 2]] as const) {
    const at = gl.getAttribLocation(of, name);
    if (at < 0) continue;
    gl.enableVertexAttribArray(at);
    gl.vertexAttribPointer(at, size, gl.FLOAT, false, 4 * FLOATS, 4 * from);
  }
  gl.bindVertexArray(null);
  return { program: of, array, buffer, count: 0, data: new Float32Array(256 * FLOATS) };
}

function program(gl: WebGL2RenderingContext, vertex: string, fragment: string): WebGLProgram {
  const made = gl.createProgram()!;
  for (const [kind, text] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, text);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS) && !gl.isContextLost()) throw new Error(gl.getProgramInfoLog(made) ?? "no program");
  return made;
}
