/** What the palette finds: pages and topics by a part of their names, jobs by id, number or key. */

import { type JobBrief, type Topic, api } from "../client.ts";
import { PAGES } from "../pages.ts";
import { PARTS } from "../pages/settings/Settings.tsx";

export interface Found {
  path: string;
  kind: "Page" | "Topic" | "Job";
  name: string;
  job?: JobBrief;
}

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const NUMBER = /^#?(\d{1,15})$/;
const MOST_OF_KEY = 5; // jobs

export function pagesWith(text: string): Found[] {
  const pages = [
    ...PAGES.filter(({ path }) => !path.includes("{")),
    ...Object.entries(PARTS).map(([part, { title }]) => ({ path: `/settings/${part}`, title: `Settings: ${title}` })),
  ];
  return fitting(pages, text, ({ title }) => title).map(({ path, title }) => ({ path, kind: "Page", name: title }));
}

export function topicsWith(text: string, topics: readonly Topic[]): Found[] {
  const found = text ? fitting(topics, text, ({ topic }) => topic) : [];
  return found.map(({ topic }) => ({ path: `/topics/${encodeURIComponent(topic)}`, kind: "Topic", name: topic }));
}

/** Ask the server for jobs whose id, number or whole key it is. */
export async function jobsNamed(text: string, signal: AbortSignal): Promise<Found[]> {
  if (!text) return [];
  const number = NUMBER.exec(text)?.[1];
  const pages = await Promise.all([
    ID.test(text) ? api.jobs.page({ ids: [text.toLowerCase()], signal }) : null,
    // A number that no job has is searched for as a text.
    number ? api.jobs.page({ text: number, limit: 1, signal }) : null,
    api.jobs.page({ key: text, limit: MOST_OF_KEY, signal }),
  ]);
  const jobs = pages.flatMap((page) => page?.items ?? []);
  const named = jobs.filter(({ id, seq, key }) => id === text.toLowerCase() || String(seq) === number || key === text);
  const byId = new Map(named.map((job) => [job.id, job]));
  return [...byId.values()].map((job) => ({ path: `/jobs/${job.id}`, kind: "Job", name: job.topic, job }));
}

/** Those whose names have the text, the ones that begin with it first. */
function fitting<T>(all: readonly T[], text: string, nameOf: (each: T) => string): T[] {
  const wanted = text.toLowerCase();
  const at = (each: T) => nameOf(each).toLowerCase().indexOf(wanted);
  return all.filter((each) => at(each) >= 0).sort((one, other) => Math.sign(at(one)) - Math.sign(at(other)));
}
