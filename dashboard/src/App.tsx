/** Chooses what is shown: the login, the set-up, a page, or the dialog of a login that has ended. */

import { useEffect } from "preact/hooks";

import { Layout } from "./Layout.tsx";
import { pageAt } from "./pages.ts";
import { Ended, LogIn } from "./pages/LogIn.tsx";
import { NotFound } from "./pages/NotFound.tsx";
import { SetUp } from "./pages/SetUp.tsx";
import { ErrorNote } from "./parts/notes.tsx";
import { Toasts } from "./parts/Toast.tsx";
import { go, place } from "./router.ts";
import { ask, session, trouble } from "./session.ts";

export function App() {
  const { path } = place.value;
  return (
    <>
      {path === "/setup" ? <SetUp /> : path === "/login" ? <LogIn /> : <Inside />}
      {session.value === "ended" && <Ended />}
      <Toasts />
    </>
  );
}

function Inside() {
  const { path, query } = place.value;
  const state = session.value;
  useEffect(() => {
    if (state !== "out") return;
    const text = query.toString();
    go("/login", { next: path === "/" ? null : path + (text && `?${text}`) }, true);
  }, [state]);
  if (state === "unknown" || state === "out") return null;
  if (state === "unreachable") {
    return (
      <main class="alone">
        <ErrorNote error={trouble.value} what="The server does not answer" again={() => void ask()} />
      </main>
    );
  }
  const found = pageAt(path);
  return (
    <Layout under={found?.page.under ?? ""} title={found?.page.title ?? "Not found"}>
      {found ? <found.page.show key={found.page.path} {...found.parts} /> : <NotFound />}
    </Layout>
  );
}
