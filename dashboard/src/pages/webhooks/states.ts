/** The words and marks of deliveries and subscriptions. */

import type { DeliveryAttempt, Saga, SagaStatus, WebhookHealth, WebhookSubscription } from "../../client.ts";
import { serverTime } from "../../client.ts";
import type { Marked } from "../../parts/Mark.tsx";

export const SAGAS: Record<SagaStatus, { mark: Marked; word: string }> = {
  Pending: { mark: "ready", word: "pending" },
  InProgress: { mark: "processing", word: "in progress" },
  PendingRetry: { mark: "delayed", word: "pending retry" },
  Held: { mark: "blocked", word: "held" },
  Completed: { mark: "completed", word: "completed" },
  DeadLettered: { mark: "failed", word: "dead-lettered" },
  Cancelled: { mark: "cancelled", word: "cancelled" },
};

export const ATTEMPTS: Record<DeliveryAttempt["status"], { mark: Marked; word: string }> = {
  Pending: { mark: "ready", word: "waits for a worker" },
  Leased: { mark: "processing", word: "under way" },
  Completed: { mark: "completed", word: "delivered" },
  Failed: { mark: "failed", word: "failed" },
  Cancelled: { mark: "cancelled", word: "cancelled" },
};

export const STATUSES = Object.keys(SAGAS) as SagaStatus[];

export function hasEnded({ status }: Pick<Saga, "status">): boolean {
  return status === "Completed" || status === "DeadLettered" || status === "Cancelled";
}

/** Whether a subscription delivers, and what must be done if it does not. */
export function stateOf(subscription: WebhookSubscription, health: WebhookHealth | undefined): { mark: Marked; word: string } {
  if (subscription.paused) return { mark: "blocked", word: "paused" };
  if (health?.stoppedAt) return { mark: "failed", word: "stopped" };
  return { mark: "completed", word: "on" };
}

/** Until when the breaker lets nothing start; null if it is closed. */
export function openUntil(health: WebhookHealth): string | null {
  return health.openUntil && new Date(health.openUntil).getTime() > serverTime() ? health.openUntil : null;
}

/** A list such as `order.*, ping`. */
export function listed(text: string): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}
