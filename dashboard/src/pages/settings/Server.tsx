/** What the server was started with; it is changed there, and not here. */

import { useAsk } from "../../asking.ts";
import { api } from "../../client.ts";
import { ErrorNote, Loading } from "../../parts/notes.tsx";
import { Table } from "../../parts/Table.tsx";
import { plain } from "../../words.ts";

const COLUMNS = [{ name: "Setting" }, { name: "Value" }, { name: "From" }, { name: "What it is", class: "cut" }];
const SOURCES: Record<string, string> = { default: "default", environment: "environment", given: "the program" };

export function Server() {
  const asked = useAsk((signal) => api.settings({ signal }), []);
  if (asked.error !== undefined && !asked.value) return <ErrorNote error={asked.error} again={asked.again} what="The settings could not be read" />;
  if (!asked.value) return <Loading />;
  return (
    <>
      <p class="note">These belong to the process that answers here. Change them where it is started; TOWPATH_ and the name in capitals is the variable of the environment. Times are in seconds; a limit of 0 is none.</p>
      <Table label="Settings of the server" columns={COLUMNS} class="server">
        {asked.value.map(({ name, value, default: otherwise, source, about }) => (
          <tr key={name} class={source === "default" ? "" : "chosen"}>
            <td class="mono">{name}</td>
            <td class="of mono" title={source === "default" ? undefined : `default: ${said(otherwise)}`}>
              <bdi>{plain(said(value))}</bdi>
            </td>
            <td>{SOURCES[source] ?? source}</td>
            <td class="cut">
              <bdi title={about}>{plain(about)}</bdi>
            </td>
          </tr>
        ))}
      </Table>
    </>
  );
}

function said(value: boolean | number | string): string {
  return value === "" ? "–" : String(value);
}
