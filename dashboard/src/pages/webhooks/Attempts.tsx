/** Every attempt of a delivery, with what the receiver has answered, as text. */

import { useAsk } from "../../asking.ts";
import { type DeliveryAttempt, type Saga, api } from "../../client.ts";
import { Mark } from "../../parts/Mark.tsx";
import { ErrorNote, Loading } from "../../parts/notes.tsx";
import { Time } from "../../parts/Time.tsx";
import { duration, plain } from "../../words.ts";
import { ATTEMPTS } from "./states.ts";

export function Attempts({ saga }: { saga: Saga }) {
  const asked = useAsk((signal) => api.webhooks.sagas.attempts(saga.id, { signal }), [saga.id, saga.attempts, saga.status]);
  if (asked.error !== undefined && !asked.value) return <ErrorNote error={asked.error} again={asked.again} what="The attempts could not be read" />;
  if (!asked.value) return <Loading rows={1} />;
  return (
    <div class="attempts">
      {!asked.value.length && <p class="note">No attempt was made yet.</p>}
      {asked.value.map((attempt) => (
        <One key={attempt.id} attempt={attempt} of={saga} />
      ))}
      <p class="note">
        Delivery {saga.id} of event <code>{saga.event}</code>
        {saga.replayOf !== null && `, once more after delivery ${saga.replayOf}`}
      </p>
    </div>
  );
}

function One({ attempt, of }: { attempt: DeliveryAttempt; of: Saga }) {
  const { mark, word } = ATTEMPTS[attempt.status];
  const { responseStatus, errorCode, durationMs, excerpt, location, worker, leaseLosses } = attempt;
  return (
    <section aria-label={`Attempt ${attempt.number} of delivery ${of.id}`}>
      <p class="bar">
        <b>{attempt.number}</b>
        <Time at={attempt.madeAt} as="clock" />
        <Mark of={mark} word={word} />
        {responseStatus !== null && <span>answer {responseStatus}</span>}
        {errorCode !== null && errorCode !== `http_${responseStatus}` && <code>{plain(errorCode)}</code>}
        {durationMs !== null && <span>in {duration(durationMs)}</span>}
        {worker !== null && <bdi class="note">{plain(worker)}</bdi>}
        {leaseLosses > 0 && <span class="warned">lost by {leaseLosses} workers</span>}
      </p>
      {location !== null && (
        <p class="note">
          It answered with another address, which is not followed: <bdi>{plain(location)}</bdi>
        </p>
      )}
      {excerpt !== null && excerpt !== "" && (
        <pre tabIndex={0} aria-label={`Answer to attempt ${attempt.number} of delivery ${of.id}`} role="region">
          <bdi>{plain(excerpt)}</bdi>
        </pre>
      )}
    </section>
  );
}
