// The server: requests, and the socket that shows what happens. A key goes into a header or the
// first frame, is kept for this tab only, and never comes into a URL.

export interface Problem {
  status: number;
  title: string;
  detail: string;
  field?: string | null;
  remedy?: string | null;
}

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail + (problem.remedy && !problem.detail.includes(problem.remedy) ? ` – ${problem.remedy}` : ""));
  }
}

const KEPT = "nearcast.key";
let key: string | null = sessionStorage.getItem(KEPT);

export function hasKey(): boolean {
  return key !== null;
}

export function useKey(given: string | null): void {
  key = given;
  if (given === null) sessionStorage.removeItem(KEPT);
  else sessionStorage.setItem(KEPT, given);
}

const PATIENCE = 5;

/** Ask the server, again if it is busy; Refused with its problem, or with one of ours if it cannot be reached. */
export async function ask<T>(method: string, path: string, body?: unknown): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await once<T>(method, path, body);
    } catch (error) {
      const busy = error instanceof Refused && [429, 503].includes(error.problem.status);
      if (!busy || tries >= PATIENCE) throw error;
      await new Promise((wake) => setTimeout(wake, 600 * tries));
    }
  }
}

async function once<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Refused({ status: 0, title: "No answer", detail: "the server cannot be reached", remedy: "is it running?" });
  }
  const text = await answer.text();
  let said: unknown = null;
  try {
    said = text ? JSON.parse(text) : null;
  } catch {
    said = null;
  }
  if (!answer.ok) {
    const title = answer.statusText || "Refused";
    throw new Refused({ title, detail: `${answer.status} ${title}`, ...(said as object), status: answer.status });
  }
  return said as T;
}

export type Status = "connecting" | "live" | "away" | "key";

export interface Frame {
  type: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  [member: string]: any;
}

/** The socket of the map: it is made again when it breaks, and says how it stands. */
export class Watch {
  status: Status = "connecting";
  why = "";
  private socket: WebSocket | null = null;
  private wait = 500;
  private again = 0;
  private following: string | null = null;

  constructor(
    private readonly heard: (frame: Frame) => void,
    private readonly placed: (bytes: ArrayBuffer) => void,
    private readonly changed: () => void,
  ) {}

  connect(): void {
    clearTimeout(this.again);
    this.socket?.close();
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/watch`;
    const socket = new WebSocket(url, "nearcast.watch.v1");
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => {
      socket.send(JSON.stringify(key ? { type: "hello", key } : { type: "hello" }));
      if (this.following) this.follow(this.following);
    };
    socket.onmessage = ({ data }) => {
      if (typeof data !== "string") return this.placed(data as ArrayBuffer);
      const frame = JSON.parse(data) as Frame;
      if (frame.type === "welcome") {
        this.wait = 500;
        this.stand("live");
      } else if (frame.type === "error") {
        this.why = frame.problem.detail;
        if ([401, 403].includes(frame.problem.status)) this.stand("key");
      }
      this.heard(frame);
    };
    socket.onclose = () => {
      if (this.socket !== socket) return;
      this.socket = null;
      if (this.status === "key") return;
      this.stand("away");
      this.again = window.setTimeout(() => void this.come(), this.wait);
      this.wait = Math.min(this.wait * 1.6, 5000);
    };
  }

  /** A browser does not say why a socket was refused: ask by a request first. */
  private async come(): Promise<void> {
    try {
      await ask("GET", "/v1/fences?limit=1");
    } catch (error) {
      if (error instanceof Refused && [401, 403].includes(error.problem.status)) {
        this.why = error.problem.detail;
        return this.stand("key");
      }
    }
    this.connect();
  }

  follow(subscriber: string | null): void {
    this.following = subscriber;
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify({ type: "follow", subscriber }));
    }
  }

  lamps(cpsl: string | null): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "lamps", cpsl }));
  }

  private stand(status: Status): void {
    this.status = status;
    this.changed();
  }
}
