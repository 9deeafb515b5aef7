/** A dialog over the page; the browser keeps the focus in it and gives it back. */

import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";

interface Given {
  title: string;
  children: ComponentChildren;
  /** Without it, Escape does not close the dialog. */
  onClose?: () => void;
  isWide?: boolean;
}

export function Dialog({ title, children, onClose, isWide }: Given) {
  const made = useRef<HTMLDialogElement>(null);
  const name = useId();
  // Before the browser paints: the keys that are pressed next belong to the dialog.
  useLayoutEffect(() => {
    const dialog = made.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog
      ref={made}
      aria-labelledby={name}
      class={isWide ? "wide" : ""}
      onCancel={(event) => {
        event.preventDefault();
        onClose?.();
      }}
      onClose={({ currentTarget }) => {
        // Chromium lets a page prevent one Escape; at the next one it closes the dialog by itself.
        if (!currentTarget.isConnected) return; // the page has closed it
        if (onClose) onClose();
        else currentTarget.showModal();
      }}
    >
      <header>
        <h2 id={name}>{title}</h2>
        {onClose && (
          <button type="button" class="quiet" aria-label="Close" onClick={onClose}>
            ×
          </button>
        )}
      </header>
      {children}
    </dialog>
  );
}
