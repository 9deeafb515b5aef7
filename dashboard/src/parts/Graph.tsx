/** A flow as a graph: jobs in layers from left to right, each a link, with lines between them. */

import { useEffect, useMemo, useRef } from "preact/hooks";

import type { FlowGraph, JobBrief } from "../client.ts";
import { href } from "../router.ts";
import { counted, number, short } from "../words.ts";
import { layout } from "./graph.ts";
import { Mark, markOf } from "./Mark.tsx";

const SIZES = { width: 176, height: 44, across: 40, down: 8 };
const MOST_NAMED = 5; // jobs before another one that a screen reader is told

export function Graph({ graph, current }: { graph: FlowGraph; current?: string }) {
  const { nodes, edges } = graph;
  const shape = nodes.map(({ id }) => id).join() + edges.length;
  const placed = useMemo(() => layout(nodes.map(({ id }) => id), edges, SIZES), [shape]);
  const parents = useMemo(() => namesOfParents(graph), [shape]);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // A large flow opens where the job is.
    const spot = placed.spots.get(current ?? "");
    if (spot && box.current) box.current.scrollTo(spot.x - 80, spot.y - box.current.clientHeight / 2);
  }, [placed, current]);
  return (
    <>
      <div class="graph" role="region" aria-label={`Graph of ${counted(nodes.length, "job")}`} tabIndex={0} ref={box}>
        <ul style={{ width: `${placed.width}px`, height: `${placed.height}px` }}>
          <li class="lines" aria-hidden="true">
            <svg width={placed.width} height={placed.height}>
              {placed.edges.map(({ parent, child }) => {
                const [from, to] = [placed.spots.get(parent), placed.spots.get(child)];
                if (!from || !to) return null;
                const [x, y] = [from.x + SIZES.width, from.y + SIZES.height / 2];
                const end = to.y + SIZES.height / 2;
                const bend = (to.x - x) / 2;
                return <path key={parent + child} d={`M${x} ${y}C${x + bend} ${y} ${to.x - bend} ${end} ${to.x} ${end}`} />;
              })}
            </svg>
          </li>
          {nodes.map((job) => {
            const spot = placed.spots.get(job.id);
            return (
              <li key={job.id} style={{ left: `${spot?.x}px`, top: `${spot?.y}px` }}>
                <Node job={job} isCurrent={job.id === current} parents={parents.get(job.id) ?? []} />
              </li>
            );
          })}
        </ul>
      </div>
      {(!graph.whole || graph.gone > 0) && (
        <p class="note">
          {!graph.whole && `The flow has more jobs; ${number(nodes.length)} are shown. `}
          {graph.gone > 0 && `${counted(graph.gone, "job")} of it ${graph.gone === 1 ? "was" : "were"} forgotten already.`}
        </p>
      )}
    </>
  );
}

function Node({ job, isCurrent, parents }: { job: JobBrief; isCurrent: boolean; parents: string[] }) {
  return (
    <a class="node" href={href(`/jobs/${job.id}`)} title={`${job.topic} ${job.id}`} aria-current={isCurrent ? "true" : undefined}>
      <span>
        <bdi>{job.topic}</bdi> <code>{short(job.id)}</code>
      </span>
      <Mark of={markOf(job)} />
      {parents.length > 0 && (
        <span class="only-read">
          {" "}
          after {parents.slice(0, MOST_NAMED).join(", ")}
          {parents.length > MOST_NAMED && ` and ${parents.length - MOST_NAMED} more`}
        </span>
      )}
    </a>
  );
}

function namesOfParents({ nodes, edges }: FlowGraph): Map<string, string[]> {
  const names = new Map(nodes.map((job) => [job.id, `${job.topic} ${short(job.id)}`]));
  const found = new Map<string, string[]>();
  for (const { parent, child } of edges) {
    found.set(child, [...(found.get(child) ?? []), names.get(parent) ?? "a job that is gone"]);
  }
  return found;
}
