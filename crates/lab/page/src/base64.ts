// Bytes that stand in a page as text.

export function bytes(base64: string): ArrayBuffer {
  const text = atob(base64);
  const made = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) made[i] = text.charCodeAt(i);
  return made.buffer;
}
