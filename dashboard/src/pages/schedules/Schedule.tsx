/** One schedule: its fires, and a form that changes it. */

import { useAsk } from "../../asking.ts";
import { api } from "../../client.ts";
import { Head } from "../../Layout.tsx";
import type { PageParts } from "../../pages.ts";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { useEvery, useSeldom } from "../../parts/seldom.ts";
import { Time } from "../../parts/Time.tsx";
import { href } from "../../router.ts";
import { plain } from "../../words.ts";
import { Form } from "./Form.tsx";
import { Acts, Fires, ruleOf } from "./Schedules.tsx";

export function Schedule({ name = "" }: PageParts) {
  const asked = useAsk((signal) => api.schedules.get(name, { signal }), [name]);
  useSeldom(asked.again, 5_000);
  useEvery(asked.again, 60_000);
  const schedule = asked.value;
  return (
    <>
      <a class="back" href={href("/schedules")}>
        ‹ Schedules
      </a>
      <Head
        title={
          <>
            Schedule <bdi>{plain(name)}</bdi>
          </>
        }
      />
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} />}
      {!schedule && asked.error === undefined && <Loading />}
      {schedule && (
        <>
          <Acts schedule={schedule} again={asked.again} isAlone />
          <div class="two">
            <Card title="Edit">
              {schedule.declared && (
                <p class="warned">Code declares this schedule: a change here lasts until the next deploy.</p>
              )}
              <Form schedule={schedule} onDone={asked.again} />
            </Card>
            <Card title="Fires">
              <dl>
                <dt>Rule</dt>
                <dd>
                  {schedule.words}
                  {schedule.cron !== null && (
                    <>
                      <br />
                      <code>{ruleOf(schedule)}</code>
                    </>
                  )}
                </dd>
                <dt>Last</dt>
                <dd>
                  <Fires of={schedule} />
                </dd>
                <dt>Next</dt>
                <dd>
                  {schedule.paused && "paused"}
                  {!schedule.paused && !schedule.nextFires.length && "never"}
                  {!schedule.paused &&
                    schedule.nextFires.map((at) => (
                      <div key={at}>
                        <Time at={at} as="next" />
                      </div>
                    ))}
                </dd>
                <dt>Enqueues</dt>
                <dd>
                  <a href={href(`/topics/${encodeURIComponent(schedule.topic)}`)}>
                    <bdi>{plain(schedule.topic)}</bdi>
                  </a>
                </dd>
                {schedule.error && (
                  <>
                    <dt>Error</dt>
                    <dd class="failed">
                      <bdi>{plain(schedule.error)}</bdi>
                    </dd>
                  </>
                )}
              </dl>
            </Card>
          </div>
        </>
      )}
    </>
  );
}
