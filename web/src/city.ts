// What the page knows: movers, events, things that stand, who was told, how the server does.

import { ask, Refused, Watch, type Frame } from "./server";
import { middle, Space, type Extent, type Geometry, type Point } from "./space";

export interface Happening {
  key: string;
  id: string;
  source: string | null;
  at: number; // when it was, ms
  expires: number; // ms; Infinity: never
  seen: number; // when it came here, performance.now()
  place: Point | null;
  geometry: Geometry | null;
  properties: Record<string, string | number | boolean>;
  keywords: string[];
  parts?: string[];
  /** When it is drawn no more, if sooner than it expires, ms. */
  fades?: number;
  /** Of what is made of others: where those were. */
  spokes?: Point[];
}

export interface Told {
  to: string;
  subscriber: string | null;
  event: string;
  source: string | null;
  at: string;
  transition?: string;
  object?: string | number;
  parts?: string[];
  seen: number;
}

export type Kind = "subscription" | "fence" | "composite";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Thing = { id: string; subscriber?: string | null; region?: any; filters?: any[] } & Record<string, any>;

export interface Figures {
  t: number;
  events: number;
  notifications: number;
  delivered: number;
  queue: number;
  reports: number;
  steps: number | null;
  latency_ms: number;
  streams: number;
}

/** Pictures that somebody else's server draws, where the server was told of one. */
export interface Tiles {
  url: string;
  credit: string;
}

export interface Followed {
  subscriber: string;
  place: Point | null;
  epoch: number;
  safe_region: string | null;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  impact: any;
}

const EVENTS = 20_000;
const TOLD = 300;
const TRAIL = 400;
const MOST_THINGS = 3000;
const REMEMBERED = 3600;
/** The group of what is made of other events; the others are sources, in the order of the palette. */
export const MADE = 7;
export const GROUPS = 6;
const MADE_HOLDS_MS = 60_000; // what is made of others and does not say how long it holds is drawn so long

/** The colours of sources, in the order in which they appeared. */
export function palette(dark: boolean): string[] {
  return dark ? ["#fb7185", "#fbbf24", "#60a5fa", "#a3e635", "#e879f9", "#cbd5e1"] : ["#e11d48", "#d97706", "#2563eb", "#4d7c0f", "#a21caf", "#475569"];
}

/** Last places of many, by number; the painter reads `xy` and what was touched. */
export class Places {
  names: string[] = [];
  numbers = new Map<string, number>();
  xy = new Float64Array(512).fill(NaN);
  version = 0;

  clear(): void {
    this.names = [];
    this.numbers.clear();
    this.version++;
  }

  name(first: number, names: string[]): void {
    names.forEach((name, n) => {
      this.names[first + n] = name;
      this.numbers.set(name, first + n);
    });
    while (this.xy.length < 2 * this.names.length) {
      const larger = new Float64Array(2 * this.xy.length).fill(NaN);
      larger.set(this.xy);
      this.xy = larger;
    }
  }

  at(name: string): Point | null {
    const n = this.numbers.get(name);
    return n === undefined || Number.isNaN(this.xy[2 * n]) ? null : [this.xy[2 * n], this.xy[2 * n + 1]];
  }
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export function happening(feature: any, at: number): Happening {
  const source = feature.source ?? null;
  const when = feature.time ? Date.parse(feature.time) : at;
  return {
    key: `${feature.id}\n${source ?? ""}`,
    id: feature.id,
    source,
    at: when,
    expires: feature.expirytime ? Date.parse(feature.expirytime) : Infinity,
    seen: performance.now(),
    place: middle(feature.geometry),
    geometry: feature.geometry ?? null,
    properties: feature.properties ?? {},
    keywords: feature.keywords ?? [],
  };
}

/** Tells of what it knows by events: `frame` often, `things`, `status`, `welcome`, `followed`, `told` when that changes. */
export class City extends EventTarget {
  space = new Space("globe");
  demo = false;
  extent: Extent | null = null;
  base: unknown = null;
  tiles: Tiles | null = null;
  stale = false;
  reported = new Places();
  simulated = new Places();
  events = new Map<string, Happening>();
  told: Told[] = [];
  /** Where events come from, by name: in the order of the map's colours. */
  sources: string[] = [];
  things: Record<Kind, Map<string, Thing>> = { subscription: new Map(), fence: new Map(), composite: new Map() };
  moreThings = 0;
  figures: Figures[] = [];
  saved = 0;
  followed: Followed | null = null;
  follows: string | null = null;
  trail: Point[] = [];
  missed = 0;
  trouble = "";
  lamps: number[] = [];
  /** Attribute names and the values seen of each, for whoever writes filters. */
  vocabulary = new Map<string, Set<string>>();
  watch: Watch;
  offset = 0;
  private ahead = 0;
  private heeded: number[] = [];
  private welcomed = false;
  private last: Frame | null = null;
  private coming = 0;

  constructor() {
    super();
    this.watch = new Watch(
      (frame) => this.heard(frame),
      (bytes) => this.placed(bytes),
      () => this.tell("status"),
    );
  }

  /** The server's clock, which counts; ours may be wrong. */
  now(): number {
    return Date.now() + this.ahead;
  }

  /** What was longest on its way tells least: the largest of the last differences is the best. */
  private heed(now: string): void {
    this.heeded = [...this.heeded.slice(-19), Date.parse(now) - Date.now()];
    this.ahead = Math.max(...this.heeded);
  }

  /** How wrong ours is, in seconds. */
  get skew(): number {
    return Math.round(this.ahead / 1000);
  }

  tell(name: string, detail?: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  private soon(): void {
    if (!this.coming) {
      this.coming = requestAnimationFrame(() => {
        this.coming = 0;
        this.tell("frame");
      });
    }
  }

  private heard(frame: Frame): void {
    switch (frame.type) {
      case "welcome":
        void this.welcome(frame);
        break;
      case "names":
        (frame.kind === "true" ? this.simulated : this.reported).name(frame.first, frame.names);
        break;
      case "happened":
        this.happen(frame);
        break;
      case "figures":
        this.count(frame);
        break;
      case "followed":
        this.close(frame);
        break;
      case "lit":
        this.lamps = frame.counts;
        this.tell("lamps");
        break;
      case "error":
        this.trouble = frame.problem.detail;
        this.tell("status");
    }
    this.soon();
  }

  private async welcome(frame: Frame): Promise<void> {
    this.heed(frame.now);
    this.offset = frame.offset ?? 0;
    this.demo = frame.demo;
    this.trouble = "";
    const mine = document.querySelector<HTMLMetaElement>("meta[name=build]")?.content;
    this.stale = !!mine && !mine.startsWith("__") && mine !== frame.build;
    this.reported.clear();
    this.simulated.clear();
    this.figures = [];
    this.last = null;
    const first = !this.welcomed;
    try {
      if (first) {
        this.base = await ask("GET", "/v1/base");
        this.extent = frame.extent ?? extentOfBase(this.base);
        this.space = Space.of(frame.space, this.extent);
        this.tiles = frame.tiles ?? null;
        this.welcomed = true;
        this.tell("welcome"); // the map is drawn while the rest comes
      }
      const events = new Map(this.events);
      this.events.clear();
      await Promise.all([this.fetchEvents(), this.fetchThings("subscription"), this.fetchThings("fence"), this.fetchThings("composite")]);
      for (const [key, old] of events) {
        const again = this.events.get(key);
        if (again) [again.seen, again.parts, again.spokes] = [old.seen, old.parts, old.spokes];
      }
    } catch (error) {
      this.trouble = error instanceof Refused ? error.message : String(error);
    }
    if (!first) this.tell("again");
    this.tell("things");
    this.tell("status");
    this.soon();
  }

  private async fetchEvents(): Promise<void> {
    let after = 0;
    while (this.events.size < EVENTS) {
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const page: any = await ask("GET", `/v1/events?limit=1000&after=${after}`);
      if (!page.features.length) break;
      for (const each of page.features) {
        const one = happening(each, this.now());
        one.seen -= 60_000; // it does not come in now
        this.take(one);
      }
      after = page.next;
    }
  }

  private async fetchThings(kind: Kind): Promise<void> {
    const all = new Map<string, Thing>();
    let after = "";
    while (all.size < MOST_THINGS) {
      // eslint-disable-next-line @typescript-eslint/no-explicit-any
      const page: any = await ask("GET", `/v1/${kind}s?limit=1000&after=${encodeURIComponent(after)}`);
      for (const each of page[`${kind}s`]) all.set(each.id, each);
      if (page[`${kind}s`].length < 1000) break;
      after = page.next;
    }
    this.things[kind] = all;
  }

  /** A source has its place among all of them by name, so that it has the same colour at every start. */
  private from(source: string): number {
    const at = this.sources.indexOf(source);
    if (at >= 0) return at;
    this.sources = [...this.sources, source].sort();
    return this.sources.indexOf(source);
  }

  /** What it is drawn as: made of others, or by where it comes from. */
  group(one: Happening): number {
    return isMade(one) ? MADE : Math.min(this.from(one.source ?? ""), GROUPS - 1);
  }

  /** Those that are drawn: what is made of others may hold for good, and is news for a minute. */
  *shown(): Generator<Happening> {
    const now = this.now();
    for (const each of this.events.values()) if (!isMade(each) || each.at + MADE_HOLDS_MS > now) yield each;
  }

  take(one: Happening): void {
    if (!isMade(one)) this.from(one.source ?? "");
    if (isMade(one) && one.expires === Infinity) one.fades = one.at + MADE_HOLDS_MS;
    this.events.set(one.key, one);
    for (const [name, value] of Object.entries(one.properties)) {
      let values = this.vocabulary.get(name);
      if (!values) this.vocabulary.set(name, (values = new Set()));
      if (values.size < 60) values.add(typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value).toUpperCase());
    }
    if (this.events.size > EVENTS) this.events.delete(this.events.keys().next().value!);
  }

  private happen(frame: Frame): void {
    this.missed += frame.missed;
    for (const feature of frame.events ?? []) {
      this.take(happening(feature, this.now()));
      this.offset++;
    }
    for (const said of frame.told ?? []) {
      const told: Told = { ...said, seen: performance.now() };
      if (said.composite) {
        const made = happening(said.composite, this.now());
        made.parts = said.parts;
        made.spokes = said.parts.map((part: string) => this.event(part)?.place).filter(Boolean);
        this.take(made);
      }
      this.told.unshift(told);
      this.tell("told", told);
    }
    if (this.told.length > TOLD) this.told.length = TOLD;
    for (const { kind, id, source, thing } of frame.news ?? []) {
      if (kind === "event") this.events.delete(`${id}\n${source ?? ""}`);
      else if (thing) this.things[kind as Kind].set(id, thing);
      else this.things[kind as Kind].delete(id);
    }
    if (frame.news) this.tell("things");
  }

  private count(frame: Frame): void {
    this.heed(frame.now);
    const last = this.last;
    this.last = frame;
    if (frame.steps !== null) this.saved = Math.max(0, frame.steps - frame.reports);
    else if (last) this.saved += Math.max(0, (frame.connected ?? 0) - (frame.reports - last.reports));
    if (!last || frame.events < last.events) return;
    const spent = frame.calling_sum - last.calling_sum + frame.commit_sum - last.commit_sum;
    const calls = frame.calling_count - last.calling_count;
    this.figures.push({
      t: this.now() / 1000,
      events: frame.events - last.events,
      notifications: frame.notifications - last.notifications,
      delivered: frame.delivered - last.delivered,
      queue: frame.queue,
      reports: frame.reports - last.reports,
      steps: frame.steps,
      latency_ms: calls > 0 ? (1000 * spent) / calls : 0,
      streams: frame.streams,
    });
    if (this.figures.length > REMEMBERED) this.figures.shift();
    this.expire();
    this.tell("figures");
  }

  private expire(): void {
    const now = this.now();
    for (const [key, each] of this.events) if (each.expires <= now) this.events.delete(key);
  }

  private placed(bytes: ArrayBuffer): void {
    const view = new DataView(bytes);
    if (view.getUint16(0) !== 0x6e4d || view.getUint8(2) !== 1) return;
    const places = view.getUint8(3) === 1 ? this.simulated : this.reported;
    const count = view.getUint32(4, true);
    const [x, y] = [view.getFloat64(8, true), view.getFloat64(16, true)];
    const numbers = new Uint32Array(bytes, 24, count);
    const east = new Float32Array(bytes, 24 + 4 * count, count);
    const north = new Float32Array(bytes, 24 + 8 * count, count);
    for (let n = 0; n < count; n++) {
      places.xy[2 * numbers[n]] = x + east[n];
      places.xy[2 * numbers[n] + 1] = y + north[n];
    }
    places.version++;
    if (this.follows) this.step();
    this.soon();
  }

  /** Where the followed one is as far as anybody knows. */
  whereabouts(name: string): Point | null {
    return this.simulated.at(name) ?? this.reported.at(name);
  }

  private step(): void {
    const at = this.whereabouts(this.follows!);
    const last = this.trail[this.trail.length - 1];
    if (at && (!last || last[0] !== at[0] || last[1] !== at[1])) {
      this.trail.push(at);
      if (this.trail.length > TRAIL) this.trail.shift();
    }
  }

  follow(name: string | null): void {
    if (this.follows === name) return;
    this.follows = name;
    this.followed = null;
    this.trail = [];
    this.watch.follow(name);
    if (name) this.step();
    this.tell("followed");
    this.soon();
  }

  private close(frame: Frame): void {
    if (frame.subscriber !== this.follows) return;
    this.followed = frame.subscriber === null ? null : (frame as unknown as Followed);
    this.tell("followed");
  }

  /** What somebody wants: their subscriptions. */
  of(subscriber: string): Thing[] {
    return [...this.things.subscription.values()].filter((each) => each.subscriber === subscriber);
  }

  thing(id: string): { kind: Kind; thing: Thing } | null {
    for (const kind of ["subscription", "fence", "composite"] as Kind[]) {
      const thing = this.things[kind].get(id);
      if (thing) return { kind, thing };
    }
    return null;
  }

  /** The event that somebody was told of. */
  happened(told: Told): Happening | undefined {
    return this.events.get(`${told.event}\n${told.source ?? ""}`);
  }

  /** The event of an id, whatever its source. */
  event(id: string, source: string | null = null): Happening | undefined {
    return this.events.get(`${id}\n${source ?? ""}`) ?? [...this.events.values()].find((each) => each.id === id);
  }
}

function extentOfBase(base: unknown): Extent | null {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  const features: any[] = (base as any)?.features ?? [];
  let box: Extent | null = null;
  const look = (some: unknown): void => {
    const list = some as unknown[];
    if (typeof list?.[0] === "number") {
      const [x, y] = list as Point;
      box = box ? [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)] : [x, y, x, y];
    } else list?.forEach?.(look);
  };
  for (const each of features) look(each.geometry?.coordinates ?? []);
  return box;
}

/** Whether a pattern made it of other events: it says which one, and is named after it. */
export function isMade(one: Happening): boolean {
  const of = one.properties.composite;
  return one.parts !== undefined || (typeof of === "string" && one.id.startsWith(`${of}#`));
}

/** The last part of a source's address, which is how people call it. */
export function nameOf(source: string): string {
  return source.split("/").filter(Boolean).pop() ?? "events";
}

/** A subscription's filters as one CQL2 text. */
export function filterOf(thing: Thing): string {
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  return (thing.filters ?? []).map((each: any) => (typeof each.cql2 === "string" ? each.cql2 : JSON.stringify(each))).join(" AND ");
}
