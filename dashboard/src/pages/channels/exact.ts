/** The payload of an event as JSON text. */

import type { ChannelEvent } from "../../client.ts";

/** JSON text of a payload, as it is stored if that is known; bytes are shown as text where they are text. */
export function textOf(event: Pick<ChannelEvent, "payload"> & { payloadText?: string }): string {
  const { payload, payloadText } = event;
  if (!(payload instanceof Uint8Array)) return payloadText ?? JSON.stringify(payload) ?? "null";
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(payload);
  } catch {
    return Array.from(payload.subarray(0, 4096), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  }
}
