// What is looked at, in the address behind `#`, so that a link shows the same.

export type State = Record<string, string>;

let current: State = read();
const listeners = new Set<(state: State, before: State) => void>();

function read(): State {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

export const state = (): Readonly<State> => current;

/** A number of the state that lies below an end, or 0. */
export function index(name: string, end: number, without = 0): number {
  const found = Number(current[name] ?? without);
  return Number.isInteger(found) && found >= 0 && found < end ? found : Math.min(without, end - 1);
}

/** A number of the state within bounds. */
export function bounded(name: string, [low, high]: readonly [number, number], without: number): number {
  const found = Number(current[name] ?? without);
  return Number.isFinite(found) ? Math.min(high, Math.max(low, found)) : without;
}

/** How tokens are chosen: bounds of the temperature and of top-p. */
export const TEMPERATURES = [0.1, 2] as const;
export const SHARES = [0.05, 1] as const;

/** Changes the state; what is empty is left out of the address. */
export function go(changes: Record<string, string | number | null>, replace = true): void {
  const next: State = { ...current };
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") delete next[name];
    else next[name] = String(value);
  }
  const before = current;
  if (JSON.stringify(next) === JSON.stringify(before)) return;
  current = next;
  const address = `#${new URLSearchParams(next)}`;
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  tell(before);
}

export const listen = (listener: (state: State, before: State) => void): void => {
  listeners.add(listener);
};

function tell(before: State): void {
  for (const listener of listeners) listener(current, before);
}

/** The address that changes would lead to. */
export const link = (changes: Record<string, string>): string =>
  `#${new URLSearchParams({ ...current, ...changes })}`;

function moved(): void {
  const before = current;
  current = read();
  if (JSON.stringify(before) !== JSON.stringify(current)) tell(before);
}

addEventListener("hashchange", moved);
addEventListener("popstate", moved);
