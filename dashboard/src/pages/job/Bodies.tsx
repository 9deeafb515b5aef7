/** Payload and result, as the server stores them: with every digit, and with hidden values. */

import { useState } from "preact/hooks";

import { act, useAsk } from "../../asking.ts";
import { type JobDetail, api } from "../../client.ts";
import { Button, Copy } from "../../parts/Button.tsx";
import { Json } from "../../parts/Json.tsx";
import { hiddenIn } from "../../parts/json.ts";
import { LongText } from "../../parts/LongText.tsx";
import { Card, ErrorNote, Loading } from "../../parts/notes.tsx";
import { counted } from "../../words.ts";

type Part = "payload" | "result";

export function Bodies({ job }: { job: JobDetail }) {
  return (
    <>
      {job.encoding === "base64" ? <Bytes job={job} /> : <Body job={job} part="payload" title="Payload" />}
      {job.result !== null && <Body job={job} part="result" title="Result" />}
    </>
  );
}

function Body({ job, part, title }: { job: JobDetail; part: Part; title: string }) {
  const { id } = job;
  const [isRevealed, reveal] = useState(false);
  const asked = useAsk((signal) => api.jobs.payload(id, { part, ...(isRevealed ? { reveal: true } : {}), signal }), [
    id,
    isRevealed,
    part === "result" ? job.finishedAt : null,
  ]);
  const text = asked.value;
  const hidden = text === undefined || isRevealed ? 0 : Math.min(job.hidden, hiddenIn(text));
  const isJson = part === "result" || job.encoding === "json";
  const tools = text !== undefined && (
    <>
      {hidden > 0 && (
        <Button kind="quiet" onClick={() => reveal(true)} title="Activity will tell that you have looked at it">
          Reveal {counted(hidden, "hidden value")}
        </Button>
      )}
      <Copy text={text} label={`Copy the ${part}`} />
      <Button kind="quiet" label={`Download the ${part}`} onClick={() => download(job, part, isRevealed)}>
        Download
      </Button>
    </>
  );
  return (
    <Card title={title} tools={tools}>
      {asked.error !== undefined && <ErrorNote error={asked.error} again={asked.again} what={`The ${part} could not be read`} />}
      {text === undefined ? (
        asked.error === undefined && <Loading rows={3} />
      ) : isJson ? (
        <Json key={String(isRevealed)} text={text} label={title} />
      ) : (
        <LongText text={text} label={title} />
      )}
    </Card>
  );
}

function Bytes({ job }: { job: JobDetail }) {
  const count = job.payload instanceof Uint8Array ? job.payload.length : 0;
  return (
    <Card title="Payload" tools={<Button onClick={() => download(job, "payload", false)}>Download</Button>}>
      <p>{counted(count, "byte")} that are not text.</p>
    </Card>
  );
}

/** Save a part as a file. */
async function download(job: JobDetail, part: Part, reveal: boolean): Promise<void> {
  await act(`Download the ${part}`, async () => {
    const file = await api.jobs.download(job.id, { part, ...(reveal ? { reveal: true } : {}) });
    const kind = part === "result" || job.encoding === "json" ? "json" : job.encoding === "text" ? "txt" : "bin";
    save(file, `${part}-${job.id}.${kind}`);
  });
}

function save(file: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
