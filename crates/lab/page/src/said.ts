// What is said while something is computed, and when it could not be.

import { h, notice } from "./dom";
import { NotSaved } from "./source";
import { say } from "./words";

export const busy = (text: string): HTMLElement =>
  h("p", { class: "busy", role: "status" }, text);

/** An error in words. */
function said(error: unknown): string {
  if (error instanceof NotSaved) return say("notSaved");
  return error instanceof Error ? error.message : String(error);
}

/** The same where the answer would stand; what a saved page does not hold is no fault. */
export const apology = (error: unknown): HTMLElement =>
  notice(said(error), error instanceof NotSaved ? "empty" : "error");
