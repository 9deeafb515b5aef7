/** A field for JSON that says what is wrong with it, and where. */

import { useId, useMemo, useRef } from "preact/hooks";

import { Button } from "../../parts/Button.tsx";
import { pretty } from "../../parts/json.ts";
import { plain } from "../../words.ts";
import { type Mistake, mistakeIn } from "./mistake.ts";

const AROUND = 40; // characters that are shown before and behind a mistake

interface Given {
  text: string;
  onText: (text: string) => void;
  /** Raw text of any kind is not checked. */
  isJson: boolean;
}

export function Editor({ text, onText, isJson }: Given) {
  const area = useRef<HTMLTextAreaElement>(null);
  const name = useId();
  const mistake = useMemo(() => (isJson ? mistakeIn(text) : null), [text, isJson]);
  const isWrong = mistake !== null && text.trim() !== "";
  const goThere = () => {
    area.current?.focus();
    area.current?.setSelectionRange(mistake?.at ?? 0, (mistake?.at ?? 0) + 1);
  };
  return (
    <div class="editor">
      <label>
        Payload{isJson ? ", as JSON" : ", as text"}
        <textarea
          ref={area}
          name="payload"
          rows={12}
          spellcheck={false}
          autocomplete="off"
          value={text}
          aria-invalid={isWrong || undefined}
          aria-describedby={isWrong ? name : undefined}
          onInput={(event) => onText(event.currentTarget.value)}
        />
      </label>
      {isJson && !mistake && (
        <Button kind="quiet" onClick={() => onText(pretty(text))}>
          Format
        </Button>
      )}
      {isWrong && (
        <div class="mistake" id={name}>
          <p>
            <b>
              Line {mistake.line}, column {mistake.column}:
            </b>{" "}
            {mistake.message}
          </p>
          <Excerpt text={text} mistake={mistake} />
          <Button kind="quiet" onClick={goThere}>
            Go there
          </Button>
        </div>
      )}
    </div>
  );
}

/** The line of a mistake, with the sign marked. */
function Excerpt({ text, mistake: { at } }: { text: string; mistake: Mistake }) {
  const from = Math.max(text.lastIndexOf("\n", at - 1) + 1, at - AROUND);
  const next = text.indexOf("\n", at);
  const to = Math.min(next < 0 ? text.length : next, at + AROUND);
  return (
    <pre tabIndex={0}>
      {plain(text.slice(from, at))}
      <mark>{plain(text.slice(at, Math.min(at + 1, to))) || "␣"}</mark>
      {plain(text.slice(at + 1, to))}
    </pre>
  );
}
