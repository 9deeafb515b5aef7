/** The graph of one flow, with what can be done about it. */

import { act, useAsk } from "../../asking.ts";
import { Conflict, type FlowGraph, NotFound, api } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { Graph } from "../../parts/Graph.tsx";
import { changed, useChanges } from "../../parts/live.ts";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { toast } from "../../parts/Toast.tsx";
import { counted, short } from "../../words.ts";
import { culprits, unfinished } from "./remedies.ts";

const MOST_CULPRITS = 3; // that have a button of their own

export function FlowCard({ id, title = "Flow", version = 0 }: { id: string; title?: string; version?: number }) {
  const asked = useAsk((signal) => api.jobs.flow(id, { signal }), [id, version]);
  useChanges(asked.again);
  const graph = asked.value;
  if (!graph) {
    if (asked.error instanceof NotFound) return <Card title={title}><p class="note">Its jobs are gone.</p></Card>;
    return asked.error === undefined ? <Loading rows={4} /> : <ErrorNote error={asked.error} again={asked.again} what="The flow could not be read" />;
  }
  const open = unfinished(graph);
  return (
    <Card
      title={title}
      note={counted(graph.nodes.length, "job")}
      tools={
        <>
          <Requeues graph={graph} again={asked.again} />
          {open.length > 0 && (
            <Confirmed kind="danger" question={`Cancel ${counted(open.length, "job")}?`} onClick={() => cancelAll(graph, asked.again)}>
              Cancel what is left
            </Confirmed>
          )}
        </>
      }
    >
      <Graph graph={graph} current={id} />
    </Card>
  );
}

function Requeues({ graph, again }: { graph: FlowGraph; again: () => void }) {
  const found = culprits(graph);
  const requeue = async (ids: string[]) => {
    const isDone = await act(`Re-queue of ${counted(ids.length, "job")}`, async () => {
      for (const id of ids) await api.jobs.requeue(id);
    });
    if (isDone) toast({ text: `${ids.length === 1 ? `Job ${short(ids[0] ?? "")} is` : `${counted(ids.length, "job")} are`} in line again; the jobs behind wait.` });
    again();
    changed();
  };
  if (found.length > MOST_CULPRITS) {
    return <Button onClick={() => requeue(found.map(({ id }) => id))}>Re-queue the {found.length} that stopped</Button>;
  }
  return (
    <>
      {found.map((job) => (
        <Button key={job.id} onClick={() => requeue([job.id])}>
          Re-queue <bdi>{job.topic}</bdi> {short(job.id)}
        </Button>
      ))}
    </>
  );
}

async function cancelAll(graph: FlowGraph, again: () => void): Promise<void> {
  let count = 0;
  await act("Cancel what is left", async () => {
    for (const { id } of unfinished(graph)) {
      try {
        await api.jobs.cancel(id);
        count += 1;
      } catch (error) {
        // It has ended meanwhile.
        if (!(error instanceof Conflict || error instanceof NotFound)) throw error;
      }
    }
  });
  if (count) toast({ text: `${counted(count, "job")} ${count === 1 ? "is" : "are"} cancelled or asked to stop.` });
  again();
  changed();
}
