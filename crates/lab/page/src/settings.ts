// Fields for the settings of a choice, as its schema describes them.

import { h, select } from "./dom";
import type { Setting } from "./source";
import { say } from "./words";

export type Changes = Record<string, string>;

/** The name and the values of the only encoding of a model. */
export function settingsOf(position: unknown[]): { name: string; values: Record<string, unknown> } | null {
  const [only] = Array.isArray(position) ? position : [position];
  if (typeof only === "string") return { name: only, values: {} };
  if (typeof only !== "object" || only === null) return null;
  const { kind, ...values } = only as Record<string, unknown>;
  return typeof kind === "string" ? { name: kind, values } : null;
}

/** `key=value` pairs that begin with a prefix. */
export function changesOf(list: string[], prefix: string): Changes {
  const pairs = list.filter((change) => change.startsWith(prefix)).map((change) => {
    const [key, ...value] = change.slice(prefix.length).split("=");
    return [key!, value.join("=")];
  });
  return Object.fromEntries(pairs) as Changes;
}

/** How far a slider goes to both sides of what a number is without. */
const TIMES = 16;

/** A field for every setting; `change` gets those that differ from what they are, `move` the same while a slider is held. */
export function fields(
  settings: Setting[], now: Record<string, unknown>, given: Changes, change: (changes: Changes) => void,
  move?: (changes: Changes) => void,
): HTMLElement {
  const set = (key: string, value: string, plain: string, isHeld = false) => {
    const next = { ...given };
    // What belongs to another choice goes with it.
    for (const other of Object.keys(next)) if (other.startsWith(`${key}.`)) delete next[other];
    if (value === plain || value === "") delete next[key];
    else next[key] = value;
    if (isHeld) move?.(next);
    else change(next);
  };
  return h("div", { class: "settings" }, settings.map((setting) => {
    const usual = now[setting.key] ?? setting.default;
    if (setting.choices?.length) return chosen(setting, usual, given, set);
    return single(setting, usual, given, set);
  }));
}

type Set = (key: string, value: string, plain: string, isHeld?: boolean) => void;

function chosen(setting: Setting, usual: unknown, given: Changes, set: Set): HTMLElement[] {
  const plain = typeof usual === "string" ? usual : (usual as { kind?: string } | null)?.kind ?? "";
  const kind = given[`${setting.key}.kind`] ?? given[setting.key] ?? plain;
  const options: [string, string][] = setting.choices!.map((choice) => [choice.name, choice.name]);
  if (!plain) options.unshift(["", "–"]);
  const of = setting.choices!.find((choice) => choice.name === kind);
  const withFields = setting.choices!.some((choice) => choice.fields.length);
  const values = (typeof usual === "object" && kind === plain ? usual : {}) as Record<string, unknown>;
  const box = select(setting.key, options, kind, (value) =>
    set(withFields ? `${setting.key}.kind` : setting.key, value, plain));
  box.title = setting.doc;
  const inner = (of?.fields ?? []).map((field) => single(
    { ...field, key: `${setting.key}.${field.key}` }, values[field.key] ?? field.default, given, set));
  return [box, ...inner];
}

function single(setting: Setting, usual: unknown, given: Changes, set: Set): HTMLElement {
  const plain = usual === null || usual === undefined ? "" : typeof usual === "object" ? JSON.stringify(usual) : String(usual);
  const value = given[setting.key] ?? plain;
  const label = h("label", { class: "field", title: setting.doc }, h("span", {}, setting.key));
  if (typeof usual === "boolean") {
    label.append(h("input", { type: "checkbox", checked: value === "true",
      onchange: (e: Event) => set(setting.key, String((e.target as HTMLInputElement).checked), plain) }));
    return label;
  }
  const box = h("input", { type: "text", inputmode: typeof usual === "number" ? "decimal" : "text", value, size: 8,
    onchange: () => set(setting.key, box.value.trim(), plain) });
  // What is 1 is a share, or a factor that stays one: typed, not slid.
  if (typeof usual === "number" && usual > 0 && usual !== 1) {
    const whole = Number.isInteger(usual);
    const far = Math.log2(TIMES);
    label.append(h("input", { type: "range", min: -far, max: far, step: 0.125, "aria-label": setting.key,
      value: Math.log2((Number(value) || usual) / usual),
      oninput: (e: Event) => {
        const size = usual * 2 ** Number((e.target as HTMLInputElement).value);
        box.value = whole ? String(Math.max(1, Math.round(size))) : String(+size.toPrecision(4));
        set(setting.key, box.value, plain, true);
      },
      onchange: () => set(setting.key, box.value, plain) }));
  }
  label.append(box);
  if (given[setting.key] !== undefined) {
    label.append(h("button", { type: "button", class: "quiet", title: say("reset"), "aria-label": `${say("reset")}: ${setting.key}`,
      onclick: () => set(setting.key, plain, plain) }, "↺"));
  }
  return label;
}
