/** What an edit changes, line by line. */

import { useMemo } from "preact/hooks";

import { Card } from "../../parts/notes.tsx";
import { counted, plain } from "../../words.ts";
import { diff, nearChanges } from "./diff.ts";

const SIGNS = { same: " ", gone: "−", new: "+" } as const;
const MOST = 400; // lines that are shown
const LONGEST = 500; // characters of a line

export function Diff({ before, after }: { before: string; after: string }) {
  const lines = useMemo(() => diff(before, after), [before, after]);
  const changes = lines.filter(({ kind }) => kind !== "same").length;
  if (!changes) {
    return (
      <Card title="Changes">
        <p class="note">The payload is the same as that of the job.</p>
      </Card>
    );
  }
  const shown = nearChanges(lines);
  return (
    <Card title="Changes" note={counted(changes, "line")}>
      <pre class="diff" tabIndex={0} role="region" aria-label="Changes of the payload">
        {shown.slice(0, MOST).map((line, nth) =>
          line ? (
            <div key={nth} class={line.kind}>
              <span class="only-read">{line.kind === "same" ? "" : `${line.kind}: `}</span>
              <span aria-hidden="true">{SIGNS[line.kind]} </span>
              {plain(line.text.slice(0, LONGEST))}
              {line.text.length > LONGEST && "…"}
            </div>
          ) : (
            <div key={nth} class="left-out">
              …
            </div>
          ),
        )}
      </pre>
      {shown.length > MOST && <p class="note">More lines are changed than are shown here.</p>}
    </Card>
  );
}
