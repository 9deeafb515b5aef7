/** Pages of a list that the server gives forward only: the address holds the way back. */

import { filter, place } from "../router.ts";

const BETWEEN = "~"; // no cursor, id or name has it

export interface Steps {
  page: number;
  prev: (() => void) | undefined;
  next: (() => void) | undefined;
}

/** The steps from this page: `name` is the filter that holds where it begins. */
export function stepsBy(name: string, next: string | number | null | undefined): Steps {
  const { query } = place.value;
  const at = query.get(name);
  const trail = (query.get("trail") ?? "").split(BETWEEN).filter((_, nth, all) => all.length > 1 || all[nth] !== "");
  const move = (to: string | number | null, way: string[]) => () => {
    filter({ [name]: to, trail: way.join(BETWEEN) });
    scrollTo(0, 0);
  };
  return {
    page: at === null ? 1 : Math.max(2, trail.length + 1),
    prev: at === null ? undefined : move(trail.at(-1) || null, trail.slice(0, -1)),
    next: next === null || next === undefined ? undefined : move(next, at === null ? [] : [...(trail.length ? trail : [""]), at]),
  };
}

/** What another choice takes back. */
export const FIRST = { trail: null, before: null, after: null };
