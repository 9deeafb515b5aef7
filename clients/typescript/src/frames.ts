/** What the server says of channels, over a WebSocket and in server-sent events. */

import { CursorReset, type TowpathError, errorOfFrame } from "./errors.ts";
import type { Batch, Wanted } from "./line.ts";

const FENCED = "another reader has attached as this consumer";

/** Each frame has one of these, and an answer the id of its question. */
export interface Frame {
  id?: number | null;
  ok?: { beat?: number; cursor?: string; generation?: number };
  error?: { code: string; message: string; details: unknown };
  events?: Batch & { channel: string };
  current?: { channel: string; cursor: string };
  closed?: { channel: string; cursor: string; ended: string };
  reset?: { channel: string; reason: string; oldest?: string; head?: string };
  bye?: { after?: number };
}

export function errorOfReset({ channel, reason, oldest, head }: NonNullable<Frame["reset"]>): TowpathError {
  const message = `channel ${channel} cannot go on from its cursor: ${reason}`;
  if (reason === "fenced") return errorOfFrame("consumer_fenced", FENCED, {});
  if (oldest === undefined) return errorOfFrame(reason, message, {});
  return new CursorReset(message, { code: "cursor_reset", details: { reason, oldest, head } });
}

/** The way to the end of a channel. With types, it may be behind events that were not sent. */
export function batchToEnd({ types }: Wanted, cursor: string): Batch {
  return { from: types ? "" : cursor, to: cursor, items: [] };
}
