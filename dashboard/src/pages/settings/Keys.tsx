/** API keys: for programs, with scopes instead of rules. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type CreatedKey, type Key, type Scope, api, isLoggedOut, notDone } from "../../client.ts";
import { Button, Confirmed, Copy } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { ended } from "../../session.ts";
import { plain } from "../../words.ts";
import { listed } from "../webhooks/states.ts";

const SCOPES: Record<Scope, string> = {
  enqueue: "enqueue jobs",
  manage: "read and manage jobs",
  work: "work on jobs",
  publish: "publish to channels",
  subscribe: "read channels",
  webhooks: "manage webhooks",
  metrics: "read metrics",
};
const LIVES = { "": "for good", "86400": "for a day", "2592000": "for 30 days", "31536000": "for a year" };
const COLUMNS = [{ name: "Name", class: "cut" }, { name: "Begins with" }, { name: "May" }, { name: "Only" }, { name: "Used", isNumber: true }, { name: "Ends", isNumber: true }, { name: "Actions" }];

export function Keys() {
  const asked = useAsk((signal) => api.keys.list({ signal }), []);
  const [isMaking, make] = useState(false);
  const [made, setMade] = useState<CreatedKey | null>(null);
  const keys = asked.value;
  return (
    <>
      <div class="bar">
        <span class="note">For programs: a key may do what its scopes say; rules do not apply to it.</span>
        <Button kind="primary" class="push" onClick={() => make(true)}>
          New API key
        </Button>
      </div>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The keys could not be read" />}
      {!keys && asked.error === undefined && <Loading />}
      {keys && !keys.length && <Empty title="There is no API key yet." commands={["towpath keys create backend --scope enqueue"]} />}
      {keys && keys.length > 0 && (
        <Table label="API keys" columns={COLUMNS} class="keys">
          {keys.map((key) => (
            <Row key={key.id} of={key} again={asked.again} />
          ))}
        </Table>
      )}
      {isMaking && (
        <Form
          close={() => make(false)}
          done={(key) => {
            make(false);
            setMade(key);
            asked.again();
          }}
        />
      )}
      {made && (
        <Dialog title="The key is shown only now">
          <div class="stack">
            <p>
              Give it to the program <bdi>{plain(made.name)}</bdi>; it cannot be read again.
            </p>
            <div class="command">
              <pre tabIndex={0}>{made.secret}</pre>
              <Copy text={made.secret} label="Copy the key" />
            </div>
            <Button kind="primary" onClick={() => setMade(null)}>
              I have copied it
            </Button>
          </div>
        </Dialog>
      )}
    </>
  );
}

function Row({ of, again }: { of: Key; again: () => void }) {
  const revoke = async () => {
    if (await act(`Revoke ${of.name}`, () => api.keys.revoke(of.id))) toast({ text: `The key ${of.name} is revoked: requests with it are refused.` });
    again();
  };
  const only = [...of.topics.map((name) => `topic ${name}`), ...of.channels.map((name) => `channels ${name}…`)].join(", ");
  return (
    <tr data-id={of.id}>
      <td class="cut">
        <bdi title={of.name}>{plain(of.name)}</bdi>
      </td>
      <td class="mono">{of.prefix}…</td>
      <td>{of.scopes.join(", ")}</td>
      <td class="of">
        <bdi title={only}>{only ? plain(only) : "everything"}</bdi>
      </td>
      <td class="num" data-label="used">{of.lastUsedAt ? <Time at={of.lastUsedAt} /> : "never"}</td>
      <td class="num" data-label="ends">{of.expiresAt ? <Time at={of.expiresAt} /> : "never"}</td>
      <td class="acts">
        <Confirmed question="Revoke?" label={`Revoke ${of.name}`} onClick={revoke}>
          Revoke
        </Confirmed>
      </td>
    </tr>
  );
}

function Form({ close, done }: { close: () => void; done: (key: CreatedKey) => void }) {
  const [problem, tell] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const scopes = form.getAll("scope") as Scope[];
    if (!scopes.length) {
      tell("Choose at least one thing that the key may do.");
      return;
    }
    const life = text("life");
    try {
      const given = { name: text("name"), scopes, topics: listed(text("topics")), channels: listed(text("channels")) };
      done(await api.keys.create({ ...given, ...(life ? { expiresIn: Number(life) } : {}) }));
    } catch (error) {
      if (isLoggedOut(error)) ended();
      tell(notDone(error));
    }
  };
  return (
    <Dialog title="New API key" onClose={close}>
      <form class="stack" onSubmit={submit}>
        <label>
          Name, of the program that uses it
          <input name="name" required maxLength={200} autocomplete="off" autofocus />
        </label>
        <fieldset class="scopes">
          <legend>It may</legend>
          {Object.entries(SCOPES).map(([scope, words]) => (
            <label key={scope} class="tick">
              <input type="checkbox" name="scope" value={scope} /> {words}
            </label>
          ))}
        </fieldset>
        <label>
          Only these topics; empty for all
          <input name="topics" placeholder="mail, reports" autocomplete="off" />
        </label>
        <label>
          Only channels that begin so; empty for all but system
          <input name="channels" placeholder="chat:" autocomplete="off" />
        </label>
        <label>
          It is valid
          <select name="life">
            {Object.entries(LIVES).map(([seconds, words]) => (
              <option key={seconds} value={seconds}>
                {words}
              </option>
            ))}
          </select>
        </label>
        <p class="problem" role="alert">
          <bdi>{plain(problem)}</bdi>
        </p>
        <div class="bar">
          <Button kind="primary" submits>
            Create API key
          </Button>
          <Button onClick={close}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}
