/** A worker in a process of its own, which says each word of a job's payload; a test kills it. */

import { setTimeout as pause } from "node:timers/promises";

import { superuser } from "./here.ts";

const topic = process.argv[2] ?? "";
const towpath = await superuser();
towpath.worker<string[]>(topic, async ({ payload }, { stream }) => {
  for (const word of payload) {
    await stream(word);
    await pause(20);
  }
  return payload.length;
});
