// Elements without a framework.

type Props = Record<string, unknown>;
type Child = Node | string | number | false | null | undefined | Child[];

/** An element with attributes, listeners (`onclick`) and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Props = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  set(element, props);
  add(element, children);
  return element;
}

/** The same for SVG. */
export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, props);
  add(element, children);
  return element;
}

function set(element: Element, props: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (name === "value" && "value" in element) {
      (element as HTMLInputElement).value = String(value);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function add(element: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child instanceof Node) element.append(child);
    else if (child !== false && child !== null && child !== undefined) element.append(String(child));
  }
}

/** A choice of words, each with its name. */
export function select(
  label: string, options: [string, string][], value: string, change: (value: string) => void,
): HTMLElement {
  const box = h("select", { onchange: () => change(box.value) },
    options.map(([name, word]) => h("option", { value: name, selected: name === value }, word)));
  return h("label", { class: "field" }, h("span", {}, label), box);
}

/** One of a few, side by side. */
export function segments(
  label: string, options: [string, string][], value: string, change: (value: string) => void,
): HTMLElement {
  return h("div", { class: "segments", role: "group", "aria-label": label },
    options.map(([name, word]) => h("button", {
      type: "button", "aria-pressed": String(name === value), onclick: () => change(name),
    }, word)));
}

/** A number on a slider; `done` hears it when it is let go. */
export function slider(
  label: string, [low, high, step]: [number, number, number], value: number,
  change: (value: number) => void, shown: (value: number) => string, done: (value: number) => void,
): HTMLElement {
  const out = h("output", {}, shown(value));
  const input = h("input", {
    type: "range", min: low, max: high, step, value,
    oninput: () => {
      out.textContent = shown(Number(input.value));
      change(Number(input.value));
    },
    onchange: () => done(Number(input.value)),
  });
  return h("label", { class: "field slider" }, h("span", {}, label), input, out);
}

/** What stands where nothing can be shown. */
export function notice(text: string, kind: "empty" | "error" = "empty"): HTMLElement {
  return h("p", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "note" }, text);
}

/** Runs at most once per frame, with the last arguments. */
export function paced<A extends unknown[]>(run: (...args: A) => void): (...args: A) => void {
  let last: A | null = null;
  return (...args: A) => {
    const idle = last === null;
    last = args;
    if (idle) {
      requestAnimationFrame(() => {
        const now = last as A;
        last = null;
        run(...now);
      });
    }
  };
}
