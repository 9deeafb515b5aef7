/** What can be done about a flow that does not go on. */

import type { FlowGraph, JobBrief } from "../../client.ts";
import { layout } from "../../parts/graph.ts";

const NO_SIZE = { width: 0, height: 0, across: 1, down: 0 };

type Nodes = Pick<FlowGraph, "edges"> & { nodes: Pick<JobBrief, "id" | "state">[] };

/** The jobs at which the flow has stopped: they failed or were cancelled, and no job before them was. */
export function culprits<T extends Nodes>({ nodes, edges }: T): T["nodes"] {
  const stopped = new Set(nodes.filter(hasStopped).map(({ id }) => id));
  const later = new Set(edges.filter(({ parent }) => stopped.has(parent)).map(({ child }) => child));
  return nodes.filter(({ id }) => stopped.has(id) && !later.has(id));
}

/** The jobs that have not ended, last ones first: a cancelled job would fail those behind it. */
export function unfinished<T extends Nodes>({ nodes, edges }: T): T["nodes"] {
  const { spots } = layout(nodes.map(({ id }) => id), edges, NO_SIZE);
  const layer = (id: string) => spots.get(id)?.layer ?? 0;
  const isOpen = ({ state }: { state: string }) => ["ready", "delayed", "blocked", "reserved"].includes(state);
  return nodes.filter(isOpen).sort((one, other) => layer(other.id) - layer(one.id));
}

function hasStopped({ state }: { state: string }): boolean {
  return state === "buried" || state === "cancelled";
}
