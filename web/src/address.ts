// What is looked at, in the address: view, followed mover, moment. Never a key.

import type { Point } from "./space";

export interface Address {
  view: { centre: Point; zoom: number } | null;
  follow: string | null;
  moment: number | null;
}

export function read(): Address {
  const said = new URLSearchParams(location.hash.slice(1));
  const [zoom, lat, lon] = (said.get("map") ?? "").split("/").map(Number);
  const good = [zoom, lat, lon].every(Number.isFinite) && Math.abs(lat) <= 85;
  const moment = Date.parse(said.get("at") ?? "");
  return {
    view: said.has("map") && good ? { centre: [lon, lat], zoom } : null,
    follow: said.get("follow") || null,
    moment: Number.isNaN(moment) ? null : moment,
  };
}

export function write({ view, follow, moment }: Address): void {
  const said = new URLSearchParams();
  if (view) said.set("map", `${view.zoom.toFixed(2)}/${view.centre[1].toFixed(5)}/${view.centre[0].toFixed(5)}`);
  if (follow) said.set("follow", follow);
  if (moment !== null) said.set("at", new Date(moment).toISOString());
  const hash = `#${said.toString().replaceAll("%2F", "/").replaceAll("%3A", ":")}`;
  if (hash !== location.hash) history.replaceState(null, "", hash === "#" ? location.pathname : hash);
}
