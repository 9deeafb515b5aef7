/** Short news in the corner: what was done, with a way to undo it, or what was not. */

import { signal } from "@preact/signals";

import { Button } from "./Button.tsx";

export interface News {
  text: string;
  tone?: "good" | "bad";
  /** Such as Undo. */
  action?: { label: string; run: () => unknown };
}

const STAYS = 8_000; // milliseconds; bad news stays until it is closed

const shown = signal<(News & { key: number })[]>([]);
let keys = 0;

export function toast(news: News): void {
  const key = (keys += 1);
  shown.value = [...shown.value.slice(-3), { ...news, key }];
  if (news.tone !== "bad") setTimeout(() => close(key), STAYS);
}

function close(key: number): void {
  shown.value = shown.value.filter((each) => each.key !== key);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map(({ key, text, tone, action }) => (
        <div key={key} class={`toast ${tone ?? ""}`}>
          <span>
            <bdi>{text}</bdi>
          </span>
          {action && (
            <Button
              onClick={async () => {
                await action.run();
                close(key);
              }}
            >
              {action.label}
            </Button>
          )}
          <Button kind="quiet" label="Close this message" onClick={() => close(key)}>
            ×
          </Button>
        </div>
      ))}
    </div>
  );
}
