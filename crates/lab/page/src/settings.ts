// Fields for the settings of a choice, as its schema describes them.

import { h, select } from "./dom";
import { numeric } from "./slide";
import type { Choice, Setting } from "./source";
import { say } from "./words";

export type Changes = Record<string, string>;

/** One of several encodings or patterns, with what was set of it. */
export interface Part { kind: string; [key: string]: unknown }

/** The parts of a list of encodings or patterns; nothing if it is something else. */
export function partsOf(value: unknown): Part[] {
  if (!Array.isArray(value)) return [];
  return value.map((part) => (typeof part === "string" ? { kind: part } : part as Part))
    .filter((part) => typeof part?.kind === "string");
}

/** `key=value` pairs that begin with a prefix. */
export function changesOf(list: string[], prefix: string): Changes {
  const pairs = list.filter((change) => change.startsWith(prefix)).map((change) => {
    const [key, ...value] = change.slice(prefix.length).split("=");
    return [key!, value.join("=")];
  });
  return Object.fromEntries(pairs) as Changes;
}

export interface Fields {
  settings: Setting[];
  /** What they are without a change, where that is not their default. */
  now?: Record<string, unknown>;
  given: Changes;
  /** Gets those that differ from what they are, when one was changed. */
  change: (changes: Changes) => void;
  /** The same while a slider is held. */
  move?: (changes: Changes) => void;
  /** What a list may have for parts. */
  all: Choice[];
  /** Whether parts can be added and taken away. */
  free?: boolean;
  /** Pairs of channels in a head. */
  pairs: number;
}

type Set = (key: string, value: string, plain: string, isHeld?: boolean, needed?: Changes) => void;

/** A field for every setting. */
export function fields(of: Fields): HTMLElement {
  const set: Set = (key, value, plain, isHeld = false, needed = {}) => {
    const next = { ...of.given };
    // What belongs to another choice goes with it.
    const [owner] = key.endsWith(".kind") ? [key.slice(0, -5)] : [key];
    for (const other of Object.keys(next)) if (other.startsWith(`${owner}.`)) delete next[other];
    if (value === plain || value === "") delete next[key];
    else Object.assign(next, { [key]: value }, needed);
    if (isHeld) of.move?.(next);
    else of.change(next);
  };
  return h("div", { class: "settings" }, of.settings.map((setting) => {
    const usual = of.now?.[setting.key] ?? setting.default;
    return partsOf(usual).length ? several(setting, usual, of, set) : one(setting, usual, of, set);
  }));
}

function one(setting: Setting, usual: unknown, of: Fields, set: Set): HTMLElement | HTMLElement[] {
  return setting.choices?.length ? chosen(setting, usual, of, set) : single(setting, usual, of, set);
}

function chosen(setting: Setting, usual: unknown, of: Fields, set: Set): HTMLElement[] {
  const { given } = of;
  const plain = typeof usual === "string" ? usual : (usual as { kind?: string } | null)?.kind ?? "";
  const kind = given[`${setting.key}.kind`] ?? given[setting.key] ?? plain;
  const options: [string, string][] = setting.choices!.map((choice) => [choice.name, choice.name]);
  if (!plain) options.unshift(["", "–"]);
  const withFields = setting.choices!.some((choice) => choice.fields.length);
  const values = (typeof usual === "object" && kind === plain ? usual : {}) as Record<string, unknown>;
  const inside = (name: string): Setting[] => (setting.choices!.find((choice) => choice.name === name)?.fields ?? [])
    .map((field) => ({ ...field, key: `${setting.key}.${field.key}` }));
  const box = select(word(setting.key), options, kind, (value) => {
    // What has no default begins somewhere, so that the choice can be computed at once.
    const needed = inside(value).filter((field) => /no default/.test(field.doc))
      .map((field): [string, string] => [field.key, numeric(field, undefined, of.pairs)?.start ?? ""]);
    set(withFields ? `${setting.key}.kind` : setting.key, value, plain, false, Object.fromEntries(needed.filter(([, v]) => v)));
  });
  box.title = setting.doc;
  return [box, ...inside(kind).map((field) => single(field, values[word(field.key)] ?? field.default, of, set))];
}

/** Parts side by side, each with its own fields. */
function several(setting: Setting, usual: unknown, of: Fields, set: Set): HTMLElement {
  const parts = listed(setting.key, usual, of.given);
  const plain = partsOf(usual).map((part) => part.kind).join();
  const kinds = parts.map((part) => part.kind);
  const toggle = (name: string) => {
    const next = kinds.includes(name) ? kinds.filter((kind) => kind !== name) : [...kinds, name];
    if (next.length) set(setting.key, next.join(), plain);
  };
  // A list of lists would need more than a row of names.
  const names = of.all.map((choice) => choice.name).filter((name) => !of.all.find((c) => c.name === name)!.fields
    .some((field) => partsOf(field.default).length));
  return h("div", { class: "parts" },
    of.free !== false && h("div", { class: "segments", role: "group", "aria-label": setting.key, title: setting.doc },
      names.map((name) => h("button", { type: "button", "aria-pressed": String(kinds.includes(name)), onclick: () => toggle(name) }, name))),
    parts.map(({ kind, ...values }, i) => {
      const inner = of.all.find((choice) => choice.name === kind)?.fields ?? [];
      return inner.length > 0 && h("fieldset", {}, h("legend", {}, kind), h("div", { class: "settings" }, inner.map((field) =>
        one({ ...field, key: `${setting.key}.${i}.${field.key}` }, values[field.key] ?? field.default, of, set))));
    }));
}

/** The parts as they are without what was given of each. */
function listed(key: string, usual: unknown, given: Changes): Part[] {
  const before = partsOf(usual);
  const kinds = given[key]?.split(",") ?? before.map((part) => part.kind);
  return kinds.map((kind, i) => (before[i]?.kind === kind ? before[i]! : { kind }));
}

/** What is to be asked for, `key` and `value`: of a list with changed parts the whole list. */
export function asked(settings: Setting[], now: Record<string, unknown>, given: Changes): [string, string][] {
  const isOf = (key: string, list: string) => key === list || key.startsWith(`${list}.`);
  const usual = (setting: Setting) => now[setting.key] ?? setting.default;
  const lists = settings.filter((setting) => partsOf(usual(setting)).length
    && Object.keys(given).some((key) => isOf(key, setting.key)));
  const others = Object.entries(given).filter(([key]) => !lists.some((list) => isOf(key, list.key)));
  return [...others, ...lists.map((list): [string, string] => {
    const parts = listed(list.key, usual(list), given).map((part, i) => {
      const whole = structuredClone(part) as Record<string, unknown>;
      for (const [path, value] of Object.entries(changesOf(Object.entries(given).map((pair) => pair.join("=")), `${list.key}.${i}.`))) {
        put(whole, path.split("."), value);
      }
      return whole;
    });
    return [list.key, toml(parts)];
  })];
}

function put(table: Record<string, unknown>, [first, ...rest]: string[], value: string): void {
  if (!rest.length) {
    table[first!] = value;
    return;
  }
  const before = table[first!];
  // Another kind begins anew.
  const isNew = typeof before !== "object" || before === null || (rest[0] === "kind" && (before as Part).kind !== value);
  const inner = (isNew ? {} : before) as Record<string, unknown>;
  table[first!] = inner;
  put(inner, rest, value);
}

/** A value as TOML has it in one line. */
function toml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(toml).join(", ")}]`;
  if (typeof value === "object" && value !== null) {
    const pairs = Object.entries(value).filter(([, inner]) => inner !== null && inner !== undefined);
    return `{${pairs.map(([key, inner]) => `${key} = ${toml(inner)}`).join(", ")}}`;
  }
  const text = String(value);
  return /^(true|false|[-+]?\d[\d.eE+-]*|\[.*\])$/.test(text) ? text : JSON.stringify(text);
}

/** The last part of a key, which is what a setting is called. */
const word = (key: string): string => key.split(".").at(-1)!;

function single(setting: Setting, usual: unknown, of: Fields, set: Set): HTMLElement {
  const { key } = setting;
  const plain = usual === null || usual === undefined ? "" : typeof usual === "object" ? JSON.stringify(usual) : String(usual);
  const value = of.given[key] ?? plain;
  const label = h("label", { class: "field", title: setting.doc }, h("span", {}, word(key)));
  if (typeof usual === "boolean") {
    label.append(h("input", { type: "checkbox", checked: value === "true",
      onchange: (e: Event) => set(key, String((e.target as HTMLInputElement).checked), plain) }));
    return label;
  }
  const slide = numeric(setting, usual, of.pairs);
  const box = h("input", { type: "text", inputmode: slide ? "decimal" : "text", value, size: 8,
    onchange: () => set(key, box.value.trim(), plain) });
  if (slide) {
    label.append(h("input", { type: "range", min: slide.low, max: slide.high, step: slide.step, "aria-label": key,
      "aria-valuetext": value, value: slide.place(value),
      oninput: (e: Event) => {
        const input = e.target as HTMLInputElement;
        box.value = slide.value(Number(input.value));
        input.setAttribute("aria-valuetext", box.value);
        set(key, box.value, plain, true);
      },
      onchange: () => set(key, box.value, plain) }));
  }
  label.append(box);
  if (of.given[key] !== undefined && !/no default/.test(setting.doc)) {
    label.append(h("button", { type: "button", class: "quiet", title: say("reset"), "aria-label": `${say("reset")}: ${key}`,
      onclick: () => set(key, plain, plain) }, "↺"));
  }
  return label;
}
