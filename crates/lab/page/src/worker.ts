// Runs the module apart from the page, which moves while it computes. Bundled by itself: the page starts it from its text.

interface Module {
  memory: WebAssembly.Memory;
  room(length: number): number;
  ask(): number;
  answer(): number;
  length(): number;
}

export interface Asked { id: number; question: unknown; parts: ArrayBuffer[] }

/** An answer, why there is none, or how the module ended. */
export interface Answered { id: number; answer?: ArrayBuffer; refused?: string; ended?: string }

let module: Promise<Module>;

async function begun(bytes: ArrayBuffer): Promise<Module> {
  const start = new Uint8Array(bytes, 0, 2);
  const packed = start[0] === 0x1f && start[1] === 0x8b;
  const whole = packed
    ? new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")))
    : new Response(bytes);
  const made = await WebAssembly.compile(await whole.arrayBuffer());
  // What crates below the module would ask of a browser: it never comes to that.
  const imports: WebAssembly.Imports = {};
  for (const { module, name } of WebAssembly.Module.imports(made)) {
    const asked = () => {
      throw new Error(`${name} is not here`);
    };
    Object.assign(imports[module] ??= {}, { [name]: asked });
  }
  return (await WebAssembly.instantiate(made, imports)).exports as unknown as Module;
}

function said(module: Module): Uint8Array<ArrayBuffer> {
  // A copy: the module's memory moves when it grows.
  return new Uint8Array(module.memory.buffer as ArrayBuffer, module.answer(), module.length()).slice();
}

function ask(module: Module, { id, question, parts }: Asked): Answered {
  const line = new TextEncoder().encode(`${JSON.stringify(question)}\n`);
  const all = [line, ...parts.map((part) => new Uint8Array(part))];
  const length = all.reduce((sum, part) => sum + part.length, 0);
  let at = module.room(length);
  for (const part of all) {
    new Uint8Array(module.memory.buffer, at, part.length).set(part);
    at += part.length;
  }
  try {
    const answered = module.ask() === 1;
    const bytes = said(module);
    return answered ? { id, answer: bytes.buffer } : { id, refused: new TextDecoder().decode(bytes) };
  } catch (error) {
    return { id, ended: new TextDecoder().decode(said(module)) || String(error) };
  }
}

self.onmessage = async ({ data }: MessageEvent<ArrayBuffer | Asked>) => {
  if (data instanceof ArrayBuffer) {
    module = begun(data);
    return;
  }
  let answered: Answered;
  try {
    answered = ask(await module, data);
  } catch (error) {
    answered = { id: data.id, ended: String(error) };
  }
  postMessage(answered, { transfer: answered.answer ? [answered.answer] : [] });
};
