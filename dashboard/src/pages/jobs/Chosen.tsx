/** The bar over the list while jobs are chosen: a few by their ids, or all that fit the filters. */

import { useState } from "preact/hooks";

import { Preview, type Wanted } from "../../bulk/Preview.tsx";
import type { JobBrief } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { atLeast, counted, number } from "../../words.ts";
import { LABELS, VERBS, type Verb, verbsFor, verbsOf } from "./acts.ts";
import { choiceOf, described } from "./filters.ts";
import type { Rows } from "./list.ts";

const FEW = 10; // jobs that are done at once; more get a preview and an undo

interface Given {
  value: Rows;
  chosen: JobBrief[];
  /** Whether all jobs that fit are chosen, also those of other pages. */
  isEvery: boolean;
  chooseEvery: () => void;
  clear: () => void;
  run: (verb: Verb) => Promise<void>;
}

export function ChosenBar({ value, chosen, isEvery, chooseEvery, clear, run }: Given) {
  const [wanted, want] = useState<Wanted | null>(null);
  const { filters, total } = value;
  const fitting = (verb: Verb) => chosen.filter((job) => verbsOf(job).includes(verb));
  const verbs = isEvery ? verbsFor(filters) : VERBS.filter((verb) => fitting(verb).length);
  const every = choiceOf(filters);
  const canBeMore = every !== null && verbsFor(filters).length > 0 && (!total?.exact || total.count > chosen.length);
  const figure = total ? ` ${atLeast(total.count, total.exact)}` : "";
  const start = (verb: Verb): unknown => {
    if (isEvery) return every && want({ verb, choice: every, words: described(filters) });
    const ids = fitting(verb).map(({ id }) => id);
    if (ids.length <= FEW) return run(verb);
    return want({ verb, choice: { ids }, words: `${counted(chosen.length, "job")} chosen on this page` });
  };
  return (
    <div class="bar chosen-bar" role="region" aria-label="Chosen jobs">
      <b>{isEvery ? `All${figure} that fit are chosen` : `${number(chosen.length)} chosen`}</b>
      {verbs.map((verb) =>
        verb === "delete" && !isEvery && fitting(verb).length <= FEW ? (
          <Confirmed key={verb} kind="danger" question={`Delete ${counted(fitting(verb).length, "job")}?`} onClick={() => start(verb)}>
            Delete
          </Confirmed>
        ) : (
          <Button key={verb} kind={verb === "delete" ? "danger" : "plain"} onClick={() => start(verb)}>
            {LABELS[verb]}
          </Button>
        ),
      )}
      {!isEvery && canBeMore && (
        <Button kind="quiet" onClick={chooseEvery}>
          Choose all{figure} that fit
        </Button>
      )}
      <Button kind="quiet" class="push" onClick={clear}>
        Clear
      </Button>
      {wanted && (
        <Preview
          wanted={wanted}
          close={() => want(null)}
          done={() => {
            want(null);
            clear();
          }}
        />
      )}
    </div>
  );
}
