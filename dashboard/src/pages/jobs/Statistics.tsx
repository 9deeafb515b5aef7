/** The statistics of the drawing: of all jobs, or of a topic, over a range that the address holds. */

import type { ComponentChildren } from "preact";

import { useAsk } from "../../asking.ts";
import { type Minute, api } from "../../client.ts";
import { Menu } from "../../parts/Menu.tsx";
import { counts } from "../../parts/live.ts";
import { useSeldom } from "../../parts/seldom.ts";
import { filter, place } from "../../router.ts";
import { duration, percent } from "../../words.ts";

const RANGES = {
  "1h": { label: "last hour", minutes: 60, step: 300 },
  "24h": { label: "last 24 hours", minutes: 24 * 60, step: 3600 },
  "7d": { label: "last 7 days", minutes: 7 * 24 * 60, step: 3600 },
} as const;
const EVER = "all";

interface Figures {
  successRate: number | null;
  avgExecutionTime: number | null;
}

export function Statistics({ topic, children }: { topic: string | undefined; children?: ComponentChildren }) {
  const chosen = place.value.query.get("range") ?? "1h";
  const range = chosen === EVER ? null : (RANGES[chosen as keyof typeof RANGES] ?? RANGES["1h"]);
  const asked = useAsk(
    async (signal): Promise<Figures | null> => {
      if (!range) return null;
      return summed((await api.jobs.history({ topic, minutes: range.minutes, step: range.step, signal })).items);
    },
    [chosen, topic],
  );
  useSeldom(() => range && asked.again(), 10_000);
  const found: Figures | null | undefined = range ? asked.value : counts.value;
  const { successRate = null, avgExecutionTime = null } = found ?? {};
  return (
    <div class="figures">
      <span>
        Success rate <b>{successRate === null ? "–" : percent(successRate)}</b>
      </span>
      <span>
        Average execution <b>{avgExecutionTime === null ? "–" : duration(avgExecutionTime)}</b>
      </span>
      <Menu
        kind="quiet"
        name="Range"
        label={range ? range.label : "since ever, all topics"}
        choices={[
          ...Object.entries(RANGES).map(([name, { label }]) => ({
            label,
            isChosen: range?.label === label,
            run: () => filter({ range: name === "1h" ? null : name }, true),
          })),
          { label: "since ever, all topics", isChosen: !range, run: () => filter({ range: EVER }, true) },
        ]}
      />
      {children}
    </div>
  );
}

/** The outcomes of all steps as one. */
export function summed(steps: readonly Minute[]): Figures {
  let completed = 0;
  let failed = 0;
  let time = 0;
  for (const step of steps) {
    completed += step.completed;
    failed += step.failed;
    time += (step.avgExecutionTime ?? 0) * step.completed;
  }
  const ended = completed + failed;
  return {
    successRate: ended ? completed / ended : null,
    avgExecutionTime: completed ? time / completed : null,
  };
}
