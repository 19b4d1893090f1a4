// A text as tokens that are colored and chosen. Long texts are laid out in blocks, of which the browser draws what is seen.

import { h } from "./dom";
import { visible } from "./words";

const BLOCK = 300;

export class Tokens {
  readonly element: HTMLElement;
  private readonly spans: HTMLElement[] = [];
  private focus = 0;

  constructor(
    tokens: string[], label: string,
    private readonly pick: (index: number, event: MouseEvent | KeyboardEvent) => void,
  ) {
    this.element = h("div", {
      class: "tokens", role: "listbox", "aria-label": label, "aria-multiselectable": "true",
      onclick: (event: MouseEvent) => this.chosen(event),
      onkeydown: (event: KeyboardEvent) => this.key(event),
    });
    for (let start = 0; start < tokens.length; start += BLOCK) {
      const block = h("div", { class: "block", role: "none" });
      for (let i = start; i < Math.min(start + BLOCK, tokens.length); i++) {
        const span = h("span", {
          role: "option", "aria-selected": "false", tabindex: i === 0 ? 0 : -1, "data-i": i,
          "aria-label": tokens[i]!.trim() ? false : visible(tokens[i]!),
        }, shown(tokens[i]!));
        this.spans.push(span);
        block.append(span);
        if (tokens[i]!.includes("\n")) block.append(h("br"));
      }
      this.element.append(block);
    }
  }

  /** Colors tokens by shares from 0 to 1; what is no number stays plain. */
  shade(values: ArrayLike<number>, from = 0, kind: "warm" | "cool" = "warm"): void {
    for (let i = 0; i < values.length; i++) {
      const span = this.spans[from + i];
      if (!span) continue;
      const value = values[i]!;
      if (Number.isFinite(value) && value > 0.004) {
        span.style.setProperty("--share", value.toFixed(3));
        span.dataset.kind = kind;
      } else {
        delete span.dataset.kind;
      }
    }
  }

  /** Marks the chosen ones. */
  mark(chosen: ReadonlySet<number>): void {
    for (const span of this.element.querySelectorAll('[aria-selected="true"]')) {
      span.setAttribute("aria-selected", "false");
    }
    for (const index of chosen) this.spans[index]?.setAttribute("aria-selected", "true");
    const first = chosen.values().next().value;
    if (first !== undefined) this.rove(first);
  }

  /** Says something of a token where the pointer rests. */
  title(index: number, text: string): void {
    this.spans[index]?.setAttribute("title", text);
  }

  private rove(index: number): void {
    this.spans[this.focus]?.setAttribute("tabindex", "-1");
    this.focus = index;
    this.spans[index]?.setAttribute("tabindex", "0");
  }

  private chosen(event: MouseEvent): void {
    const span = (event.target as Element).closest<HTMLElement>("[data-i]");
    if (span) this.pick(Number(span.dataset.i), event);
  }

  private key(event: KeyboardEvent): void {
    const at = Number((event.target as HTMLElement).dataset.i);
    if (!Number.isInteger(at)) return;
    const last = this.spans.length - 1;
    const to: Record<string, number> = {
      ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last, PageDown: at + 50, PageUp: at - 50,
    };
    if (event.key in to) {
      const next = Math.max(0, Math.min(last, to[event.key]!));
      this.rove(next);
      this.spans[next]?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      this.pick(at, event);
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Blanks as they are, which their color shows; ends of lines and what is empty as a sign. */
const shown = (token: string): string =>
  token ? token.replaceAll("\n", "⏎").replaceAll("\r", "␍") : visible(token);
