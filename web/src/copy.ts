// A request as somebody would write it elsewhere. A key never stands in it, only the name of a variable.

import { hasKey } from "./server";

export type Call = { method: string; path: string; body?: object };

export function curl({ method, path, body }: Call): string {
  const parts = [`curl -X ${method} '${location.origin}${path}'`];
  if (hasKey()) parts.push(`-H "Authorization: Bearer $NEARCAST_KEY"`);
  if (body) parts.push(`-d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
  return parts.join(" \\\n  ");
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Any = any;

export function python({ path, body }: Call): string {
  const key = hasKey() ? ', key=os.environ["NEARCAST_KEY"]' : "";
  const head = [...(hasKey() ? ["import os"] : []), "from nearcast.client import Client"];
  const open = `client = Client(${JSON.stringify(location.origin)}${key})`;
  const said = literal(body ?? null);
  if (path.includes("/events")) {
    head.push("from nearcast.model.codec import feature_from_json");
    return `${head.join("\n")}\n\n${open}\nclient.publish(feature_from_json(${said}))`;
  }
  if (path.includes("/composites")) {
    const { id, subscriber, text } = body as Any;
    return `from nearcast import Composite\n${head.join("\n")}\n\n${open}\nclient.detect(Composite(id=${literal(id)}, subscriber=${literal(subscriber)}, text=${literal(text)}))`;
  }
  const kind = path.includes("/fences") ? "fence" : "subscription";
  head.push(`from nearcast.model.codec import ${kind}_from_json`);
  return `${head.join("\n")}\n\n${open}\nclient.subscribe(${kind}_from_json(${said}))`;
}

/** A value as Python writes it. */
function literal(value: Any): string {
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
