/** Numbers, durations, times and foreign text, as people read them. */

const NUMBERS = new Intl.NumberFormat("en");
const PERCENT = new Intl.NumberFormat("en", { style: "percent", maximumFractionDigits: 1 });
const DAY_AND_TIME = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const ZONED = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export function number(value: number): string {
  return NUMBERS.format(value);
}

/** "1,204", or "100,000+" if there may be more. */
export function atLeast(value: number, isExact: boolean): string {
  return number(value) + (isExact ? "" : "+");
}

/** A count of one topic. Each of its counts ends at the same number, so a count that is cut is the largest. */
export function depth(value: number, of: Depths): string {
  return atLeast(value, of.exact || value < Math.max(of.ready, of.delayed, of.blocked, of.buried));
}

type Depths = Record<"ready" | "delayed" | "blocked" | "buried", number> & { exact: boolean };

/** "1 job", "1,204 jobs". */
export function counted(value: number, one: string, many = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

export function percent(share: number): string {
  return PERCENT.format(share).replace("%", " %");
}

/** "512 B", "40 KB", "3.1 MB", "1.2 GB". */
export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  if (size < 1024 ** 2) return `${Math.round(size / 1024)} KB`;
  return size < 1024 ** 3 ? `${(size / 1024 ** 2).toFixed(1)} MB` : `${(size / 1024 ** 3).toFixed(1)} GB`;
}

/** "35 ms", "1.2 s", "4 min 3 s", "2 h 5 min", "3 d 4 h". */
export function duration(milliseconds: number): string {
  const ms = Math.max(0, milliseconds);
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < MINUTE) return `${ms < 10 * SECOND ? (ms / SECOND).toFixed(1) : Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return two(ms, MINUTE, "min", SECOND, "s");
  if (ms < DAY) return two(ms, HOUR, "h", MINUTE, "min");
  return two(ms, DAY, "d", HOUR, "h");
}

/** "8 s ago", "in 4 min"; an instant a day away is a date. */
export function relative(at: number, now: number): string {
  const away = at - now;
  if (Math.abs(away) >= DAY) return DAY_AND_TIME.format(at);
  if (Math.abs(away) < SECOND) return "now";
  const text = rough(Math.abs(away));
  return away > 0 ? `in ${text}` : `${text} ago`;
}

/** The time of day, with the date if that is another day. */
export function clock(at: number, now: number): string {
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  return (isToday ? CLOCK : DAY_AND_TIME).format(at);
}

/** An instant with its zone, and in UTC. */
export function whole(at: number): string {
  return `${ZONED.format(at)}\n${new Date(at).toISOString()}`;
}

/** The end of an id, as lists show it. */
export function short(id: string): string {
  return `…${id.slice(-7)}`;
}

const ANSI = /\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)/g;
const CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g;
/** Signs that turn the direction of all that follows, also of our own words in the same sentence. */
const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text that others wrote: without the colours of a terminal, with other control signs shown. */
export function plain(text: string): string {
  const shown = text.replace(ANSI, "").replace(CONTROLS, (sign) => {
    const code = sign.charCodeAt(0);
    return String.fromCharCode(code === 0x7f ? 0x2421 : 0x2400 + code);
  });
  return shown.replace(TURNS, "\ufffd");
}

/** "8 s", "12 min", "1 h 4 min". */
export function rough(ms: number): string {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  return two(ms, HOUR, "h", MINUTE, "min");
}

function two(ms: number, large: number, its: string, small: number, others: string): string {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${its}${rest ? ` ${rest} ${others}` : ""}`;
}
