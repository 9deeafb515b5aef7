/** When the job runs, and how. */

import { type Draft, UNITS } from "./draft.ts";

export function Options({ draft, change }: { draft: Draft; change: (changes: Partial<Draft>) => void }) {
  return (
    <div class="filters">
      <label>
        Runs
        <select name="when" value={draft.when} onChange={(event) => change({ when: event.currentTarget.value as Draft["when"] })}>
          <option value="now">Now</option>
          <option value="after">After a while</option>
          <option value="at">At a time</option>
        </select>
      </label>
      {draft.when === "after" && (
        <>
          <label>
            Delay
            <input name="delay" type="number" min="0" step="any" value={draft.delay} onInput={(event) => change({ delay: event.currentTarget.value })} />
          </label>
          <label>
            Unit
            <select name="unit" value={draft.unit} onChange={(event) => change({ unit: event.currentTarget.value as Draft["unit"] })}>
              {Object.keys(UNITS).map((unit) => (
                <option key={unit}>{unit}</option>
              ))}
            </select>
          </label>
        </>
      )}
      {draft.when === "at" && (
        <label>
          Not before
          <input name="runAt" type="datetime-local" step="1" value={draft.runAt} onInput={(event) => change({ runAt: event.currentTarget.value })} />
        </label>
      )}
      <label>
        Priority (0 is the most urgent)
        <input name="priority" type="number" min="0" placeholder="50" value={draft.priority} onInput={(event) => change({ priority: event.currentTarget.value })} />
      </label>
      <label>
        Retries
        <input name="maxRetries" type="number" min="0" placeholder="default" value={draft.maxRetries} onInput={(event) => change({ maxRetries: event.currentTarget.value })} />
      </label>
      <label class="wide">
        Key (at most one unfinished job of the topic has it)
        <input name="key" autocomplete="off" value={draft.key} onInput={(event) => change({ key: event.currentTarget.value })} />
      </label>
    </div>
  );
}
