// Colors for canvases, which know no style sheets: read from it once, and again when the screen turns dark.

const dark = matchMedia("(prefers-color-scheme: dark)");

type Rgb = [number, number, number];

let ramp: Uint32Array | null = null;

const LIGHT: Rgb[] = [[250, 250, 248], [196, 220, 240], [92, 158, 212], [0, 83, 156], [0, 32, 72]];
const DARK: Rgb[] = [[22, 26, 33], [24, 58, 96], [38, 108, 176], [112, 182, 250], [228, 242, 255]];

/** 256 colors from nothing to all, as pixels. */
export function pixels(): Uint32Array {
  if (ramp) return ramp;
  const stops = dark.matches ? DARK : LIGHT;
  ramp = new Uint32Array(256);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    const [a, b] = [stops[low]!, stops[low + 1]!];
    const mix = (channel: 0 | 1 | 2) =>
      Math.round(a[channel] + (b[channel] - a[channel]) * (at - low));
    ramp[i] = (255 << 24) | (mix(2) << 16) | (mix(1) << 8) | mix(0);
  }
  return ramp;
}

/** Calls back when the screen changes between light and dark. */
export function onTheme(change: () => void): void {
  dark.addEventListener("change", () => {
    ramp = null;
    change();
  });
}

/** Draws values as pixels of an image; `strong` and above have full color. */
export function paint(values: ArrayLike<number>, columns: number, rows: number, strong: number): ImageData {
  const image = new ImageData(columns, rows);
  const out = new Uint32Array(image.data.buffer);
  const colors = pixels();
  for (let i = 0; i < out.length; i++) {
    const share = Math.min(1, Math.max(0, (values[i] ?? 0) / strong));
    // Small weights stay visible beside large ones.
    out[i] = colors[Math.round(255 * Math.sqrt(share))]!;
  }
  return image;
}

/** The value that only few exceed: first rows see little and have large weights, beside which all others would be pale. */
export function strong(values: Float32Array, share = 0.98): number {
  const sorted = values.filter((value) => value > 0).sort();
  return sorted[Math.floor(sorted.length * share)] ?? sorted[sorted.length - 1] ?? 1;
}
