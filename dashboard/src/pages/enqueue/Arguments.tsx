/** What the task of the topic wants, as far as the server knows it. */

import { Button } from "../../parts/Button.tsx";
import { Card } from "../../parts/notes.tsx";
import { plain } from "../../words.ts";
import { type Schema, argumentsOf, misfits, skeleton } from "./schema.ts";

/** `text`: the payload, or null while it is no JSON. */
export function Arguments({ schema, text, fill }: { schema: Schema; text: string | null; fill: (text: string) => void }) {
  const all = argumentsOf(schema);
  const isEmpty = text !== null && /^\s*(\{\s*\})?\s*$/.test(text);
  const wrong = text?.trim() ? misfits(schema, JSON.parse(text)) : [];
  return (
    <Card title="Arguments of the task" tools={isEmpty && all.length > 0 && <Button onClick={() => fill(skeleton(schema))}>Fill in</Button>}>
      {all.length === 0 && <p class="note">The task takes none.</p>}
      <dl>
        {all.map(({ name, kind, isRequired, otherwise }) => (
          <>
            <dt>
              <code>{plain(name)}</code>
            </dt>
            <dd>
              {plain(kind)}
              <span class="note">{isRequired ? ", required" : otherwise === null ? "" : `, else ${plain(otherwise)}`}</span>
            </dd>
          </>
        ))}
      </dl>
      {wrong.map((each) => (
        <p key={each} class="warned">
          {plain(each)}
        </p>
      ))}
    </Card>
  );
}
