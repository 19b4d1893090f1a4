// What is said while something is computed, and when it could not be.

import { h } from "./dom";
import { NotSaved } from "./source";
import { say } from "./words";

export const busy = (text: string): HTMLElement =>
  h("p", { class: "busy", role: "status" }, text);

/** An error in words. */
export function said(error: unknown): string {
  if (error instanceof NotSaved) return say("notSaved");
  return error instanceof Error ? error.message : String(error);
}
