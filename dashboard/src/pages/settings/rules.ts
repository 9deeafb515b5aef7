/** Access rules while they are edited, and what a save would change. */

import type { Access, AccessChange } from "../../client.ts";

export const GENERAL = {
  enqueue_rule: "to enqueue jobs",
  manage_rule: "to read jobs and to manage them",
  work_rule: "to work on jobs",
  webhook_rule: "to manage subscriptions of webhooks",
} as const;
export const OF_TOPICS = ["enqueue_rule", "manage_rule", "work_rule"] as const;
export const OF_CHANNELS = ["publish_rule", "subscribe_rule", "manage_rule"] as const;

/** The rules of one topic, or of channels that begin with a text; null: others decide. */
export type OwnRules = Record<string, string | null | undefined>;

/** What differs; a topic or channel that was removed is null. Undefined if nothing does. */
export function changesOf(stored: Access, draft: Access): AccessChange | undefined {
  const changes: AccessChange = {};
  for (const name of Object.keys(GENERAL) as (keyof typeof GENERAL)[]) {
    if (draft[name] !== stored[name]) changes[name] = draft[name];
  }
  if (draft.http_enabled !== stored.http_enabled) changes.http_enabled = draft.http_enabled;
  if (draft.allowed_topics.join() !== stored.allowed_topics.join()) changes.allowed_topics = draft.allowed_topics;
  const topics = differing(stored.topics, draft.topics);
  const channels = differing(stored.channels, draft.channels);
  if (topics) changes.topics = topics;
  if (channels) changes.channels = channels;
  return Object.keys(changes).length ? changes : undefined;
}

function differing(stored: Record<string, OwnRules>, draft: Record<string, OwnRules>): Record<string, OwnRules | null> | undefined {
  const names = [...new Set([...Object.keys(stored), ...Object.keys(draft)])];
  const changed = names.filter((name) => JSON.stringify(given(stored[name])) !== JSON.stringify(given(draft[name])));
  if (!changed.length) return undefined;
  return Object.fromEntries(changed.map((name) => [name, draft[name] ? given(draft[name]) : null]));
}

/** Without the rules that others decide, in one order. */
function given(rules: OwnRules | undefined): OwnRules {
  return Object.fromEntries(Object.entries(rules ?? { none: null }).filter(([, rule]) => typeof rule === "string").sort());
}
