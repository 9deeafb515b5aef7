/** Text of others, as it was written; a very long one is cut until a person wants it all. */

import { useState } from "preact/hooks";

import { number, plain } from "../words.ts";
import { Button } from "./Button.tsx";

const AT_FIRST = 20_000; // characters

export function LongText({ text, label, isWrapped = true }: { text: string; label: string; isWrapped?: boolean }) {
  const [isWhole, setWhole] = useState(false);
  const isCut = !isWhole && text.length > AT_FIRST;
  return (
    <>
      <pre class={`long ${isWrapped ? "wrapped" : ""}`} role="region" aria-label={label} tabIndex={0}>
        <bdi>{plain(isCut ? text.slice(0, AT_FIRST) : text)}</bdi>
      </pre>
      {isCut && (
        <Button kind="quiet" onClick={() => setWhole(true)}>
          Show all {number(text.length)} characters
        </Button>
      )}
    </>
  );
}
