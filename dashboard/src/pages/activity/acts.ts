/** What people did, in words. */

import type { Act } from "../../client.ts";
import { href } from "../../router.ts";
import { counted, duration, short } from "../../words.ts";

/** What is told of an act: words, and where it can be seen. */
export interface Told {
  verb: string;
  object: string;
  link: string | null;
  more: string;
}

export const KINDS: Record<string, string> = {
  job: "jobs",
  bulk: "bulk acts",
  value: "revealed values",
  topic: "topics",
  schedule: "schedules",
  worker: "workers",
  channel: "channels",
  consumer: "consumers",
  webhook: "webhooks",
  saga: "deliveries",
  dead_letter: "dead letters",
  account: "accounts",
  key: "API keys",
  access: "access rules",
};

const VERBS: Record<string, string> = {
  "schedule.run": "ran",
  "worker.stopped": "asked to stop",
  "bulk.begun": "began",
  "access.changed": "changed",
  "webhook.rotated": "rotated the secret of",
  "channel.limited": "changed what is kept of",
  "value.revealed": "revealed a value of",
};

export function kindOf(type: string): string {
  return type.split(".")[1] ?? "";
}

export function told(type: string, act: Act): Told {
  const [, kind = "", ...rest] = type.split(".");
  const of = (name: string) => (act[name] === undefined || act[name] === null ? "" : String(act[name]));
  const verb = VERBS[`${kind}.${rest.join(".")}`] ?? rest.join(" ").replaceAll("_", " ");
  const count = typeof act["count"] === "number" ? act["count"] : null;
  const names = Array.isArray(act["changed"]) ? act["changed"].map(String).join(", ") : "";
  const seconds = typeof act["duration"] === "number" ? act["duration"] : null;
  const more = [
    kind === "bulk" && count !== null ? `${of("verb")} of ${counted(count, "job")}` : kind !== "bulk" && count !== null && count !== 1 ? counted(count, kind === "webhook" ? "delivery" : "job", kind === "webhook" ? "deliveries" : "jobs") : "",
    seconds === null ? "" : `for ${duration(seconds * 1000)}`,
    names,
    kind === "job" || kind === "value" || kind === "bulk" ? of("topic") : "",
  ]
    .filter(Boolean)
    .join(" · ");
  return { verb, more, ...objectOf(kind, of) };
}

function objectOf(kind: string, of: (name: string) => string): Pick<Told, "object" | "link"> {
  const path = (start: string, name: string) => href(`${start}/${encodeURIComponent(name)}`);
  if (kind === "schedule" || of("schedule")) return { object: `schedule ${of("schedule")}`, link: path("/schedules", of("schedule")) };
  if (kind === "job" || kind === "value") return of("job") ? { object: `job ${short(of("job"))}`, link: path("/jobs", of("job")) } : { object: "jobs", link: null };
  if (kind === "topic") return { object: `topic ${of("topic")}`, link: path("/topics", of("topic")) };
  if (kind === "consumer") return { object: `consumer ${of("consumer")} of channel ${of("channel")}`, link: path("/channels", of("channel")) };
  if (kind === "channel") return { object: `channel ${of("channel")}`, link: path("/channels", of("channel")) };
  if (kind === "webhook") return { object: `subscription ${of("subscription")}`, link: href("/webhooks/deliveries", { subscription: of("subscription") }) };
  if (kind === "saga") return { object: `delivery ${of("saga")}`, link: href("/webhooks/deliveries", { subscription: of("subscription") }) };
  if (kind === "dead_letter") return { object: `dead letter ${of("letter")}`, link: href("/webhooks/dead-letters", { subscription: of("subscription") }) };
  if (kind === "account") {
    const [noun, part] = of("collection") === "_superusers" ? ["superuser", "superusers"] : ["user", "users"];
    return { object: `${noun} ${short(of("account"))}`, link: href(`/settings/${part}`) };
  }
  if (kind === "key") return { object: `API key ${of("name") || of("key")}`, link: href("/settings/keys") };
  if (kind === "access") return { object: "access rules", link: href("/settings/access") };
  if (kind === "worker") return { object: `worker ${of("session")}`, link: href("/workers") };
  if (kind === "bulk") return { object: "a bulk act", link: null };
  return { object: "", link: null };
}
