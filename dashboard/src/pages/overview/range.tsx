/** The range of time of a page's figures, as the address holds it. */

import type { HistoryOptions } from "../../client.ts";
import { filter, place } from "../../router.ts";

export interface Span {
  label: string;
  /** As it stands in a sentence: "3 failed in the last hour". */
  words: string;
  minutes: number;
  /** Seconds of one bar, */
  step: NonNullable<HistoryOptions["step"]>;
  /** and how a chart says them. */
  each: string;
}

const HOUR = 60;
const DAY = 24 * HOUR;

export const SPANS: Record<string, Span> = {
  hour: { label: "Last hour", words: "in the last hour", minutes: HOUR, step: 60, each: "minute" },
  "6h": { label: "Last 6 hours", words: "in the last 6 h", minutes: 6 * HOUR, step: 300, each: "5 min" },
  day: { label: "Last day", words: "in the last day", minutes: DAY, step: 900, each: "15 min" },
  week: { label: "Last week", words: "in the last week", minutes: 7 * DAY, step: 3600, each: "hour" },
  month: { label: "Last 30 days", words: "in the last 30 d", minutes: 30 * DAY, step: 21_600, each: "6 h" },
  year: { label: "Last year", words: "in the last year", minutes: 365 * DAY, step: 86_400, each: "day" },
};

/** The span that the address names, or the last hour. */
export function chosenSpan(): Span {
  return SPANS[place.value.query.get("range") ?? ""] ?? (SPANS["hour"] as Span);
}

/** The choice of the range, for the head of a page. */
export function ChooseSpan() {
  const span = chosenSpan();
  return (
    <label class="inline">
      Range
      <select onChange={(event) => filter({ range: event.currentTarget.value === "hour" ? null : event.currentTarget.value })}>
        {Object.entries(SPANS).map(([name, each]) => (
          <option key={name} value={name} selected={each === span}>
            {each.label}
          </option>
        ))}
      </select>
    </label>
  );
}
