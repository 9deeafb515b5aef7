/** An address without a page. */

import { Head } from "../Layout.tsx";
import { Empty } from "../parts/notes.tsx";
import { href } from "../router.ts";

export function NotFound() {
  return (
    <>
      <Head title="Not found" />
      <Empty title="There is no such page.">
        <p>
          <a href={href("/")}>Go to the first page</a>
        </p>
      </Empty>
    </>
  );
}
