/** All pages: a new one is a line here, and its path in `PAGES` of `server/dashboard.py`. */

import type { ComponentType } from "preact";

import { Activity } from "./pages/activity/Activity.tsx";
import { Channel } from "./pages/channels/Channel.tsx";
import { Channels } from "./pages/channels/Channels.tsx";
import { Enqueue } from "./pages/enqueue/Enqueue.tsx";
import { Flows } from "./pages/flows/Flows.tsx";
import { Job } from "./pages/job/Job.tsx";
import { Jobs } from "./pages/jobs/Jobs.tsx";
import { Overview } from "./pages/overview/Overview.tsx";
import { Schedule } from "./pages/schedules/Schedule.tsx";
import { Schedules } from "./pages/schedules/Schedules.tsx";
import { Topic } from "./pages/topics/Topic.tsx";
import { Topics } from "./pages/topics/Topics.tsx";
import { Workers } from "./pages/Workers.tsx";
import { Settings } from "./pages/settings/Settings.tsx";
import { DeadLetters } from "./pages/webhooks/DeadLetters.tsx";
import { Deliveries } from "./pages/webhooks/Deliveries.tsx";
import { Subscriptions } from "./pages/webhooks/Subscriptions.tsx";
import { matched } from "./router.ts";

/** A page gets the parts of its path. */
export type PageParts = Record<string, string>;

export interface Page {
  path: string;
  title: string;
  /** The page of the side bar that it belongs to. */
  under: string;
  show: ComponentType<PageParts>;
}

export const PAGES: readonly Page[] = [
  { path: "/", title: "Overview", under: "/", show: Overview },
  { path: "/jobs", title: "Jobs", under: "/jobs", show: Jobs },
  { path: "/jobs/new", title: "Enqueue a job", under: "/jobs", show: Enqueue },
  { path: "/jobs/{id}", title: "Job", under: "/jobs", show: Job },
  { path: "/topics", title: "Topics", under: "/topics", show: Topics },
  { path: "/topics/{topic}", title: "Topic", under: "/topics", show: Topic },
  { path: "/workers", title: "Workers", under: "/workers", show: Workers },
  { path: "/schedules", title: "Schedules", under: "/schedules", show: Schedules },
  { path: "/schedules/{name}", title: "Schedule", under: "/schedules", show: Schedule },
  { path: "/flows", title: "Flows", under: "/flows", show: Flows },
  { path: "/flows/{id}", title: "Flow", under: "/flows", show: Flows },
  { path: "/channels", title: "Channels", under: "/channels", show: Channels },
  { path: "/channels/{channel}", title: "Channel", under: "/channels", show: Channel },
  { path: "/webhooks", title: "Webhooks", under: "/webhooks", show: Subscriptions },
  { path: "/webhooks/deliveries", title: "Deliveries", under: "/webhooks", show: Deliveries },
  { path: "/webhooks/dead-letters", title: "Dead letters", under: "/webhooks", show: DeadLetters },
  { path: "/activity", title: "Activity", under: "/activity", show: Activity },
  { path: "/settings", title: "Settings", under: "/settings", show: Settings },
  { path: "/settings/{part}", title: "Settings", under: "/settings", show: Settings },
];

/** The side bar, in its order; a page that does not exist yet is left out. */
export const NAVIGATION: readonly { path: string; title: string }[] = [
  { path: "/", title: "Overview" },
  { path: "/jobs", title: "Jobs" },
  { path: "/topics", title: "Topics" },
  { path: "/workers", title: "Workers" },
  { path: "/schedules", title: "Schedules" },
  { path: "/flows", title: "Flows" },
  { path: "/channels", title: "Channels" },
  { path: "/webhooks", title: "Webhooks" },
  { path: "/activity", title: "Activity" },
  { path: "/settings", title: "Settings" },
];

/** The page of a path, with the parts of the path. */
export function pageAt(path: string): { page: Page; parts: PageParts } | null {
  for (const page of PAGES) {
    const parts = matched(page.path, path);
    if (parts) return { page, parts };
  }
  return null;
}
