/** The accounts of a collection: users, or superusers, which may do everything. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type AccountRecord, api, isLoggedOut, notDone } from "../../client.ts";
import { Button, Confirmed } from "../../parts/Button.tsx";
import { Dialog } from "../../parts/Dialog.tsx";
import { Empty, ErrorNote, Loading } from "../../parts/notes.tsx";
import { Pager } from "../../parts/Pager.tsx";
import { Table } from "../../parts/Table.tsx";
import { Time } from "../../parts/Time.tsx";
import { toast } from "../../parts/Toast.tsx";
import { filter, place } from "../../router.ts";
import { ended, me } from "../../session.ts";
import { counted, number, plain } from "../../words.ts";

const AT_ONCE = 50;
const COLUMNS = [{ name: "E-mail", class: "cut" }, { name: "Name" }, { name: "ID" }, { name: "Created", isNumber: true }, { name: "Actions" }];

type Collection = "users" | "_superusers";

export function Accounts({ collection }: { collection: Collection }) {
  const page = Math.max(1, Number(place.value.query.get("page")) || 1);
  const asked = useAsk((signal) => api.collection(collection).list({ page, perPage: AT_ONCE, signal }), [collection, page]);
  const [open, setOpen] = useState<AccountRecord | "new" | null>(null);
  const found = asked.value;
  const noun = collection === "users" ? "user" : "superuser";
  const done = () => {
    setOpen(null);
    asked.again();
  };
  return (
    <>
      <div class="bar">
        <span class="note">{collection === "users" ? "Users may do what the access rules allow." : "Superusers may do everything, also in this dashboard."}</span>
        <Button kind="primary" class="push" onClick={() => setOpen("new")}>
          New {noun}
        </Button>
      </div>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what="The accounts could not be read" />}
      {!found && asked.error === undefined && <Loading />}
      {found && !found.items.length && (
        <Empty title={page > 1 ? "No more accounts." : `There is no ${noun} yet.`} commands={page > 1 ? [] : ["towpath users create ann@example.com"]}>{collection === "users" && <p>Users log in over HTTP, and access rules decide what they may do.</p>}</Empty>
      )}
      {found && found.items.length > 0 && (
        <Table label={`${noun}s`} columns={COLUMNS} class="accounts">
          {found.items.map((account) => (
            <Row key={account.id} account={account} collection={collection} again={asked.again} change={() => setOpen(account)} />
          ))}
        </Table>
      )}
      {found && (page > 1 || found.totalPages > 1) && (
        <Pager
          where={`Page ${number(page)} of ${number(Math.max(page, found.totalPages))}`}
          prev={page > 1 ? () => filter({ page: page > 2 ? page - 1 : null }) : undefined}
          next={page < found.totalPages ? () => filter({ page: page + 1 }) : undefined}
          note={counted(found.totalItems, "account")}
        />
      )}
      {open && <Form collection={collection} noun={noun} of={open === "new" ? null : open} close={() => setOpen(null)} done={done} />}
    </>
  );
}

function Row({ account, collection, again, change }: { account: AccountRecord; collection: Collection; again: () => void; change: () => void }) {
  const { id, email, name } = account;
  const isMe = id === me.value?.record.id;
  const remove = async () => {
    if (await act(`Delete ${email}`, () => api.collection(collection).delete(id))) toast({ text: `${email} is deleted; its logins have ended.` });
    again();
  };
  return (
    <tr data-id={id}>
      <td class="cut">
        <bdi title={email}>{plain(email)}</bdi>
        {isMe && <span class="note"> that is you</span>}
      </td>
      <td class="of">
        <bdi>{plain(name)}</bdi>
      </td>
      <td class="of mono">
        <bdi title={id}>{id}</bdi>
      </td>
      <td class="num">
        <Time at={account.created} />
      </td>
      <td class="acts">
        <Button kind="quiet" label={`Change password of ${email}`} onClick={change}>
          Change password
        </Button>
        {!isMe && (
          <Confirmed question="Delete?" label={`Delete ${email}`} onClick={remove}>
            Delete
          </Confirmed>
        )}
      </td>
    </tr>
  );
}

function Form({ collection, noun, of, close, done }: { collection: Collection; noun: string; of: AccountRecord | null; close: () => void; done: () => void }) {
  const [problem, tell] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const text = (name: string) => String(form.get(name) ?? "");
    if (text("password") !== text("again")) {
      tell("The two passwords differ.");
      return;
    }
    try {
      if (of) await api.collection(collection).update(of.id, { password: text("password") });
      else await api.collection(collection).create({ email: text("email").trim(), password: text("password"), name: text("name").trim() });
      toast({ text: of ? `The password of ${of.email} is changed; its other logins have ended.` : `${text("email").trim()} is created.` });
      done();
    } catch (error) {
      if (isLoggedOut(error)) ended();
      tell(notDone(error));
    }
  };
  return (
    <Dialog title={of ? `Password of ${plain(of.email)}` : `New ${noun}`} onClose={close}>
      <form class="stack" onSubmit={submit}>
        {!of && (
          <>
            <label>
              E-mail
              <input name="email" type="email" required autocomplete="off" autofocus />
            </label>
            <label>
              Name
              <input name="name" maxLength={200} autocomplete="off" />
            </label>
          </>
        )}
        <label>
          Password, at least 8 characters
          <input name="password" type="password" minLength={8} maxLength={1000} required autocomplete="new-password" />
        </label>
        <label>
          Password again
          <input name="again" type="password" required autocomplete="new-password" />
        </label>
        <p class="problem" role="alert">
          <bdi>{plain(problem)}</bdi>
        </p>
        <div class="bar">
          <Button kind="primary" submits>
            {of ? "Change password" : `Create ${noun}`}
          </Button>
          <Button onClick={close}>{of ? "Keep it" : "Cancel"}</Button>
        </div>
      </form>
    </Dialog>
  );
}
