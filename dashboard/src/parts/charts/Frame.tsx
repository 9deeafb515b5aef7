/**
 * The frame of a chart over time: axes with units, the cursor, and the same figures as a table for
 * screen readers. The pointer and the arrow keys move the cursor, which several charts may share.
 */

import "./charts.css";

import { type Signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { type Range, scale, stepAt, timeTicks } from "./scale.ts";

export interface Place {
  x: (at: number) => number;
  y: (value: number) => number;
  /** The pixels of one step. */
  wide: number;
  bottom: number;
}

export interface Told {
  columns: string[];
  rows: string[][];
}

interface Given {
  label: string;
  range: Range;
  step: number;
  /** The lowest and the highest value of the vertical axis, */
  values: Range;
  /** the lines across the chart, */
  lines: { value: number; label: string }[];
  /** and what they count. */
  unit: string;
  table: Told;
  /** Where the cursor is: the beginning of a step. */
  at: Signal<number | null>;
  /** What the chart says of a step. */
  say: (nth: number) => string;
  children: (place: Place) => ComponentChildren;
}

const HEIGHT = 176;
const LEFT = 48;
const RIGHT = 4;
const TOP = 24;
const BOTTOM = 20;
const DAY = 86_400_000;
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
const BOTH = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

export function Frame({ label, range, step, values, lines, unit, table, at, say, children }: Given) {
  const around = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => (width.value = Math.floor(entry?.contentRect.width ?? 0)));
    if (around.current) watcher.observe(around.current);
    return () => watcher.disconnect();
  }, []);

  const [from, to] = range;
  const count = Math.max(1, Math.round((to - from) / step));
  const right = Math.max(LEFT + 1, width.value - RIGHT);
  const bottom = HEIGHT - BOTTOM;
  const place = {
    x: scale(range, [LEFT, right]),
    y: scale(values, [bottom, TOP]),
    wide: ((right - LEFT) * step) / Math.max(step, to - from),
    bottom,
  };
  const current = at.value === null ? count - 1 : stepAt(at.value, from, step, count);
  const move = (nth: number) => (at.value = from + Math.max(0, Math.min(count - 1, nth)) * step);

  const onPointer = (event: PointerEvent) => {
    const left = around.current?.getBoundingClientRect().left ?? 0;
    const share = (event.clientX - left - LEFT) / (right - LEFT);
    move(Math.floor(share * count));
  };
  const onKey = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: count - 1 };
    const nth = steps[event.key];
    if (nth !== undefined) move(nth);
    else if (event.key === "Escape") at.value = null;
    else return;
    event.preventDefault();
  };

  return (
    <div class="chart" ref={around}>
      <div
        class="plot"
        role="slider"
        tabIndex={0}
        aria-label={`${label}: time`}
        aria-valuemin={0}
        aria-valuemax={count - 1}
        aria-valuenow={current}
        aria-valuetext={`${moment(from + current * step, range)}: ${say(current)}`}
        onPointerMove={onPointer}
        onPointerDown={onPointer}
        onPointerLeave={() => (at.value = null)}
        onKeyDown={onKey}
        onBlur={() => (at.value = null)}
      >
        {width.value > 0 && (
          <svg width={width.value} height={HEIGHT} aria-hidden="true">
            <text class="unit" x={0} y={10}>
              {unit}
            </text>
            {lines.map(({ value, label: text }) => (
              <g key={value}>
                <path class="grid" d={`M${LEFT} ${crisp(place.y(value))}H${right}`} />
                <text x={LEFT - 6} y={place.y(value) + 4} text-anchor="end">
                  {text}
                </text>
              </g>
            ))}
            {timeTicks(range, Math.max(2, Math.floor(width.value / 90))).map((tick) => (
              <text key={tick} x={place.x(tick)} y={HEIGHT - 4} text-anchor={anchor(place.x(tick), right)}>
                {(to - from > 2 * DAY ? DATE : CLOCK).format(tick)}
              </text>
            ))}
            {children(place)}
            {at.value !== null && at.value >= from && at.value < to && (
              <path class="cursor" d={`M${crisp(place.x(from + (current + 0.5) * step))} ${TOP}V${bottom}`} />
            )}
          </svg>
        )}
      </div>
      <table class="unseen">
        <caption>{label}</caption>
        <thead>
          <tr>
            {table.columns.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((cells, nth) => (
            <tr key={nth}>
              {cells.map((text, column) => (
                <td key={column}>{text}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** An instant as a chart of this range says it. */
export function moment(at: number, [from, to]: Range): string {
  return (to - from > DAY / 2 ? BOTH : CLOCK).format(at);
}

/** A line of one pixel lies in the middle of one. */
function crisp(place: number): number {
  return Math.round(place) + 0.5;
}

function anchor(x: number, right: number): "start" | "middle" | "end" {
  if (x < LEFT + 16) return "start";
  return x > right - 16 ? "end" : "middle";
}
