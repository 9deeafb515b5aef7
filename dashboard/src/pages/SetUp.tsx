/** The first superuser, by the link that `towpath serve` prints. The token leaves the address at once. */

import { useEffect, useState } from "preact/hooks";

import { Brand } from "../Layout.tsx";
import { said } from "../client.ts";
import { Button } from "../parts/Button.tsx";
import { go, href, place } from "../router.ts";
import { setUp } from "../session.ts";

export function SetUp() {
  const [token] = useState(place.value.query.get("token") ?? "");
  const [problem, tell] = useState("");
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Set up Towpath";
    if (token) go("/setup", {}, true);
  }, []);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const [email, password, again] = ["email", "password", "again"].map((name) => String(given.get(name)));
    if (password !== again) {
      tell("The two passwords differ.");
      return;
    }
    setBusy(true);
    tell("");
    try {
      await setUp(token, email ?? "", password ?? "");
      go("/", {}, true);
    } catch (error) {
      tell(said(error));
      setBusy(false);
    }
  };
  return (
    <main class="alone">
      <h1>
        <Brand />
        Set up Towpath
      </h1>
      <p class="note">The link creates the first superuser, which may do everything, and works once.</p>
      <form class="stack" onSubmit={submit}>
        <label>
          E-mail
          <input name="email" type="email" autocomplete="username" required autofocus />
        </label>
        <label>
          Password, at least 8 characters
          <input name="password" type="password" autocomplete="new-password" minLength={8} required />
        </label>
        <label>
          Password again
          <input name="again" type="password" autocomplete="new-password" required />
        </label>
        <Button kind="primary" submits disabled={isBusy}>
          Create superuser and log in
        </Button>
        <p class="problem" role="alert">
          {problem}
        </p>
      </form>
      <p class="note">
        <a href={href("/login")}>Log in</a> if you have an account.
      </p>
    </main>
  );
}
