/** The login of superusers: as a page, and as a dialog over a page whose login has ended. */

import { useEffect, useState } from "preact/hooks";

import { Brand } from "../Layout.tsx";
import { said } from "../client.ts";
import { Button } from "../parts/Button.tsx";
import { Dialog } from "../parts/Dialog.tsx";
import { place, safe, visit } from "../router.ts";
import { logIn, logOut, me, session } from "../session.ts";

export function LogIn() {
  const next = safe(place.value.query.get("next"));
  const state = session.value;
  useEffect(() => {
    document.title = "Log in · Towpath";
    if (state === "in") visit(next, true);
  }, [state]);
  return (
    <main class="alone">
      <h1>
        <Brand />
        Towpath
      </h1>
      <Form />
      <p class="note">
        The first time, open the link that <code>towpath serve</code> has printed.
      </p>
    </main>
  );
}

/** Asks for the password over the page, which loses nothing and repeats no act. */
export function Ended() {
  return (
    <Dialog title="Your login has ended">
      <p class="note">The page stays as it is. What you were about to change was not changed.</p>
      <Form email={me.value?.record.email ?? ""} />
      <Button kind="quiet" onClick={logOut}>
        Log out
      </Button>
    </Dialog>
  );
}

function Form({ email = "" }: { email?: string }) {
  const [problem, tell] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    setBusy(true);
    tell("");
    try {
      await logIn(String(given.get("email")), String(given.get("password")));
    } catch (error) {
      tell(said(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="stack" onSubmit={submit}>
      <label>
        E-mail
        <input name="email" type="email" autocomplete="username" required defaultValue={email} autofocus={!email} />
      </label>
      <label>
        Password
        <input name="password" type="password" autocomplete="current-password" required autofocus={!!email} />
      </label>
      <Button kind="primary" submits disabled={isBusy}>
        Log in
      </Button>
      <p class="problem" role="alert">
        {problem}
      </p>
    </form>
  );
}
