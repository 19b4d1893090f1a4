// Numbers as the server packs them: a header of JSON, then arrays of f16 (with a scale) or f32.

export interface Packed {
  header: Record<string, unknown>;
  arrays: Map<string, Float32Array>;
}

interface Described { name: string; kind: "f16" | "f32"; length: number; scale?: number }

let halves: Float32Array | null = null;

/** The number of every pattern of 16 bits. */
function table(): Float32Array {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const exponent = (bits >> 10) & 31;
    const fraction = bits & 1023;
    const size = exponent === 0 ? fraction * 2 ** -24
      : exponent === 31 ? (fraction ? NaN : Infinity)
      : (1 + fraction / 1024) * 2 ** (exponent - 15);
    halves[bits] = bits & 0x8000 ? -size : size;
  }
  return halves;
}

export function unpack(buffer: ArrayBuffer): Packed {
  const view = new DataView(buffer);
  const length = view.getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as
    Record<string, unknown>;
  const arrays = new Map<string, Float32Array>();
  let at = 4 + length;
  for (const array of header.arrays as Described[]) {
    const values = new Float32Array(array.length);
    if (array.kind === "f16") {
      const scale = array.scale ?? 1;
      const number = table();
      for (let i = 0; i < array.length; i++) {
        values[i] = scale * (number[view.getUint16(at + 2 * i, true)] ?? NaN);
      }
      at += Math.ceil(array.length / 2) * 4;
    } else {
      for (let i = 0; i < array.length; i++) values[i] = view.getFloat32(at + 4 * i, true);
      at += 4 * array.length;
    }
    arrays.set(array.name, values);
  }
  return { header, arrays };
}
