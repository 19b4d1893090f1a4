// Curves with values under the pointer.

import { h, svg } from "./dom";
import { figure } from "./words";

export interface Curve { name: string; points: [number, number][]; color: number; dashed?: boolean }

export interface Plot {
  title: string;
  x: string;
  y: string;
  curves: Curve[];
  logX?: boolean;
  logY?: boolean;
  height?: number;
  rule?: number;
}

/** Points that are drawn of a curve. */
const DRAWN = 1200;

function ticks(low: number, high: number, log: boolean, most: number): number[] {
  if (log) {
    const first = Math.ceil(Math.log10(low) - 1e-9);
    const last = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((last - first + 1) / most));
    const all = [];
    for (let power = first; power <= last; power += step) all.push(10 ** power);
    return all.length > 1 ? all : [low, high];
  }
  const rough = (high - low) / most || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough) ?? rough;
  const all = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) {
    all.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  }
  return all;
}

const short = (value: number): string => {
  const size = Math.abs(value);
  if (size >= 1e4 || (size > 0 && size < 1e-3)) {
    const power = Math.floor(Math.log10(size) + 1e-9);
    const lead = value / 10 ** power;
    return `${Math.abs(lead - 1) < 1e-6 ? "" : `${+lead.toFixed(1)}·`}10${String(power)
      .replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(digit)]!)}`;
  }
  return String(+value.toPrecision(4)).replace("-", "−");
};

/** A chart that follows its width. */
export function plot(of: Plot): HTMLElement {
  const box = h("figure", { class: "plot" });
  const draw = () => {
    const width = Math.max(240, Math.round(box.clientWidth || 600));
    box.replaceChildren(h("figcaption", {}, of.title), chart(of, width), legend(of));
  };
  // Drawn once it stands in the page, and again when its width changes.
  let before = -1;
  new ResizeObserver(() => {
    if (box.clientWidth === before) return;
    before = box.clientWidth;
    draw();
  }).observe(box);
  return box;
}

function legend(of: Plot): HTMLElement | string {
  const named = of.curves.filter((curve) => curve.name);
  if (named.length < 1) return "";
  return h("ul", { class: "legend" }, named.map((curve) => h("li", {},
    h("i", { class: `swatch s${curve.color % 8}${curve.dashed ? " dashed" : ""}` }), curve.name)));
}

function chart(of: Plot, width: number): SVGElement {
  const height = of.height ?? 220;
  const [left, right, top, bottom] = [48, 12, 8, 36];
  const finite = of.curves.flatMap((curve) => curve.points)
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y)
      && (!of.logX || x > 0) && (!of.logY || y > 0));
  const range = (at: 0 | 1): [number, number] => {
    let [low, high] = [Infinity, -Infinity];
    for (const point of finite) {
      low = Math.min(low, point[at]);
      high = Math.max(high, point[at]);
    }
    if (!Number.isFinite(low)) return [0, 1];
    return low === high ? [low - (Math.abs(low) || 1) * 0.5, high + (Math.abs(high) || 1) * 0.5] : [low, high];
  };
  const [x0, x1] = range(0);
  let [y0, y1] = range(1);
  if (!of.logY) {
    const room = (y1 - y0) * 0.06;
    [y0, y1] = [y0 - room, y1 + room];
  }
  const scale = (log: boolean | undefined, low: number, high: number, from: number, to: number) => {
    const turn = (value: number) => (log ? Math.log10(value) : value);
    const [a, b] = [turn(low), turn(high)];
    return (value: number) => from + ((turn(value) - a) / (b - a || 1)) * (to - from);
  };
  const x = scale(of.logX, x0, x1, left, width - right);
  const y = scale(of.logY, y0, y1, height - bottom, top);
  const root = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `${of.title}: ${of.y}, ${of.x}`,
  });
  for (const tick of ticks(y0, y1, !!of.logY, 4)) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      svg("text", { class: "tick end", x: left - 6, y: y(tick) + 4 }, short(tick)));
  }
  for (const tick of ticks(x0, x1, !!of.logX, Math.max(2, Math.floor(width / 110)))) {
    root.append(svg("text", { class: "tick middle", x: x(tick), y: height - bottom + 16 }, short(tick)));
  }
  if (of.rule !== undefined && of.rule >= x0 && of.rule <= x1) {
    root.append(svg("line", { class: "rule", x1: x(of.rule), x2: x(of.rule), y1: top, y2: height - bottom }));
  }
  root.append(svg("text", { class: "tick middle", x: (left + width - right) / 2, y: height - 4 }, of.x));
  for (const curve of of.curves) root.append(path(curve, x, y));
  hover(root, of, { x, y, left, right: width - right, top, bottom: height - bottom });
  return root;
}

function path(curve: Curve, x: (v: number) => number, y: (v: number) => number): SVGElement {
  const step = Math.max(1, Math.ceil(curve.points.length / DRAWN));
  let d = "";
  let pen = false;
  curve.points.forEach(([at, value], i) => {
    if (i % step && i !== curve.points.length - 1) return;
    const [px, py] = [x(at), y(value)];
    if (!Number.isFinite(px) || !Number.isFinite(py)) {
      pen = false;
      return;
    }
    d += `${pen ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`;
    pen = true;
  });
  // A point by itself is a dot.
  const isDot = d !== "" && d.lastIndexOf("M") === 0 && !d.includes("L");
  if (isDot) d += "h.01";
  return svg("path", { class: `curve s${curve.color % 8}${curve.dashed ? " dashed" : ""}${isDot ? " dot" : ""}`, d });
}

interface Field {
  x: (v: number) => number; y: (v: number) => number;
  left: number; right: number; top: number; bottom: number;
}

function hover(root: SVGElement, of: Plot, field: Field): void {
  const line = svg("line", { class: "cross", y1: field.top, y2: field.bottom, visibility: "hidden" });
  const label = svg("text", { class: "tick value", y: field.top + 12, visibility: "hidden" });
  root.append(line, label);
  const hide = () => [line, label].forEach((e) => e.setAttribute("visibility", "hidden"));
  root.addEventListener("pointermove", (event) => {
    const box = root.getBoundingClientRect();
    const at = (event as PointerEvent).clientX - box.left;
    const nearest = (curve: Curve) => curve.points.reduce<[number, number] | null>((best, point) =>
      Number.isFinite(point[1]) && (!best || Math.abs(field.x(point[0]) - at) < Math.abs(field.x(best[0]) - at))
        ? point : best, null);
    const found = of.curves.map((curve) => ({ curve, point: nearest(curve) })).filter((f) => f.point);
    const first = found[0]?.point;
    if (!first || at < field.left - 8 || at > field.right + 8) return hide();
    const px = field.x(first[0]);
    line.setAttribute("x1", String(px));
    line.setAttribute("x2", String(px));
    const values = found.slice(0, 4).map(({ curve, point }) => `${curve.name} ${figure(point![1], 3)}`.trim());
    label.textContent = `${+first[0].toPrecision(6)}: ${values.join("  ")}`;
    const onRight = px > (field.left + field.right) / 2;
    label.setAttribute("x", String(onRight ? px - 6 : px + 6));
    label.setAttribute("text-anchor", onRight ? "end" : "start");
    [line, label].forEach((e) => e.setAttribute("visibility", "visible"));
  });
  root.addEventListener("pointerleave", hide);
}
