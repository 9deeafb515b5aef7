/** The difference of two texts, line by line. */

export interface DiffLine {
  kind: "same" | "gone" | "new";
  text: string;
}

const MOST = 2_000_000; // cells of the table; beyond it, the middle is shown as replaced

/** All lines of both texts: kept ones once, removed ones before those that replace them. */
export function diff(before: string, after: string): DiffLine[] {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  return [
    ...a.slice(0, head).map(same),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...a.slice(a.length - tail).map(same),
  ];
}

/** Only the changed lines, with some around them; null stands for lines that are left out. */
export function nearChanges(lines: readonly DiffLine[], around = 3): (DiffLine | null)[] {
  const isNear = lines.map(() => false);
  for (const [nth, line] of lines.entries()) {
    if (line.kind === "same") continue;
    for (let near = Math.max(0, nth - around); near <= Math.min(lines.length - 1, nth + around); near += 1) isNear[near] = true;
  }
  const found: (DiffLine | null)[] = [];
  for (const [nth, line] of lines.entries()) {
    if (isNear[nth]) found.push(line);
    else if (found.at(-1) !== null) found.push(null);
  }
  return found;
}

/** The longest common subsequence, by the usual table. */
function middle(a: string[], b: string[]): DiffLine[] {
  const gone = (text: string): DiffLine => ({ kind: "gone", text });
  const fresh = (text: string): DiffLine => ({ kind: "new", text });
  if (a.length * b.length > MOST) return [...a.map(gone), ...b.map(fresh)];
  const wide = b.length + 1;
  const common = new Uint32Array((a.length + 1) * wide);
  const at = (i: number, j: number) => common[i * wide + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      common[i * wide + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const found: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push({ kind: "same", text: a[i] as string });
      i += 1;
      j += 1;
    } else if (i < a.length && (j >= b.length || at(i + 1, j) >= at(i, j + 1))) {
      found.push(gone(a[i] as string));
      i += 1;
    } else {
      found.push(fresh(b[j] as string));
      j += 1;
    }
  }
  return found;
}
