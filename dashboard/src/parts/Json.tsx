/** Shows JSON folded and with exact digits; a large value never becomes more than 2,000 elements. */

import { useMemo, useState } from "preact/hooks";

import { plain } from "../words.ts";
import { Button } from "./Button.tsx";
import { Chevron } from "./Mark.tsx";
import { AT_ONCE, type Node, openAtFirst, parsed } from "./json.ts";

const AT_FIRST = 200; // lines
const LONGEST = 2_000; // characters of a text before it is cut

export function Json({ text, label }: { text: string; label: string }) {
  const root = useMemo(() => parsed(text), [text]);
  const open = useMemo(() => openAtFirst(root, AT_FIRST), [root]);
  return (
    <div class="json" role="region" aria-label={label} tabIndex={0}>
      <Value node={root} text={text} open={open} name={null} isLast />
    </div>
  );
}

interface Given {
  node: Node;
  text: string;
  open: Set<Node>;
  name: string | null;
  isLast: boolean;
}

function Value({ node, text, open, name, isLast }: Given) {
  const [isOpen, setOpen] = useState(open.has(node));
  const [shown, show] = useState(AT_ONCE);
  const end = isLast ? "" : ",";
  const before = name === null ? null : <Name text={name} />;
  if (node.kind !== "object" && node.kind !== "array") {
    return (
      <div class="line">
        {before}
        <Leaf node={node} text={text} />
        {end}
      </div>
    );
  }
  const [first, last] = node.kind === "object" ? ["{", "}"] : ["[", "]"];
  const count = node.items.length;
  if (!count) {
    return (
      <div class="line">
        {before}
        {first}
        {last}
        {end}
      </div>
    );
  }
  const what = `${count.toLocaleString("en")} ${node.kind === "object" ? "name" : "item"}${count === 1 ? "" : "s"}`;
  return (
    <div class="line">
      <button type="button" class="fold" aria-expanded={isOpen} aria-label={what} onClick={() => setOpen(!isOpen)}>
        <Chevron />
      </button>
      {before}
      {first}
      {!isOpen && (
        <>
          <span class="folded"> {what} </span>
          {last}
          {end}
        </>
      )}
      {isOpen && (
        <>
          <div class="inner">
            {node.items.slice(0, shown).map((item, nth) => (
              <Value key={nth} node={item.node} text={text} open={open} name={item.name} isLast={nth === count - 1} />
            ))}
            {shown < count && (
              <Button kind="quiet" onClick={() => show(shown + AT_ONCE)}>
                {(count - shown).toLocaleString("en")} more
              </Button>
            )}
          </div>
          {last}
          {end}
        </>
      )}
    </div>
  );
}

function Name({ text }: { text: string }) {
  return (
    <>
      <bdi class="name">{plain(text.slice(0, LONGEST))}</bdi>:{" "}
    </>
  );
}

function Leaf({ node, text }: { node: Node; text: string }) {
  const [isWhole, setWhole] = useState(false);
  const size = node.end - node.start;
  const stored = text.slice(node.start, isWhole ? node.end : Math.min(node.end, node.start + LONGEST));
  return (
    <>
      <bdi class={node.kind}>{plain(stored)}</bdi>
      {!isWhole && size > LONGEST && (
        <Button kind="quiet" onClick={() => setWhole(true)}>
          … all {size.toLocaleString("en")} characters
        </Button>
      )}
    </>
  );
}
