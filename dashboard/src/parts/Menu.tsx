/** A button that opens a list of choices. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { Chevron } from "./Mark.tsx";

export interface Choice {
  label: ComponentChildren;
  run: () => unknown;
  isChosen?: boolean;
  tone?: "danger";
}

export function Menu({ label, choices, kind = "plain", name }: { label: ComponentChildren; choices: Choice[]; kind?: string; name?: string }) {
  const [isOpen, open] = useState(false);
  const [spot, setSpot] = useState<Record<string, string>>({});
  const around = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const items = () => [...(around.current?.querySelectorAll<HTMLElement>("[role^=menuitem]") ?? [])];

  useEffect(() => {
    if (!isOpen) return;
    items()[0]?.focus({ preventScroll: true });
    const away = (event: Event) => {
      if (!around.current?.contains(event.target as Node)) open(false);
    };
    const shut = () => open(false);
    document.addEventListener("pointerdown", away);
    addEventListener("resize", shut);
    addEventListener("scroll", shut);
    return () => {
      document.removeEventListener("pointerdown", away);
      removeEventListener("resize", shut);
      removeEventListener("scroll", shut);
    };
  }, [isOpen]);

  const toggle = () => {
    if (!isOpen && button.current) setSpot(beside(button.current.getBoundingClientRect()));
    open(!isOpen);
  };

  const close = () => {
    open(false);
    button.current?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const all = items();
    const nth = all.indexOf(document.activeElement as HTMLElement);
    const moves: Record<string, number> = { ArrowDown: nth + 1, ArrowUp: nth - 1, Home: 0, End: -1 };
    if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key in moves) all.at((moves[event.key] ?? 0) % all.length)?.focus();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="menu" ref={around}>
      <button
        ref={button}
        type="button"
        class={kind}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        onClick={toggle}
      >
        {name && <span class="only-read">{name}: </span>}
        {label}
        <Chevron />
      </button>
      {isOpen && (
        <div role="menu" style={spot} aria-label={name ?? (typeof label === "string" ? label : "Choices")} onKeyDown={onKey}>
          {choices.map((choice) => (
            <button
              type="button"
              tabIndex={-1}
              role={choice.isChosen === undefined ? "menuitem" : "menuitemradio"}
              aria-checked={choice.isChosen}
              class={choice.tone}
              onClick={() => {
                close();
                void choice.run();
              }}
            >
              {choice.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

/** Where the list opens: below the button or above it, and within the window. A fixed place, as the
 * button may be in a part that scrolls. */
function beside(button: DOMRect): Record<string, string> {
  const isLow = button.bottom > innerHeight * 0.6;
  const isRight = button.left > innerWidth / 2;
  return {
    [isLow ? "bottom" : "top"]: `${(isLow ? innerHeight - button.top : button.bottom) + 4}px`,
    [isRight ? "right" : "left"]: `${Math.max(4, isRight ? innerWidth - button.right : button.left)}px`,
  };
}
