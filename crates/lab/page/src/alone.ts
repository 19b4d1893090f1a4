// A page with everything inside: the program as a WebAssembly module, and runs to open. Nothing is asked of a network.

import { bytes } from "./base64";
import { json, NotSaved, type About, type Opening, type Pairs, type Reading, type Source, type Text } from "./source";
import type { Answered, Asked } from "./worker";

export interface Within {
  version: string;
  /** What is read at first. */
  text: string;
  /** Base64 of `config.toml`, `tokenizer.json` and `model.safetensors`. */
  runs: { name: string; files: string[] }[];
}

interface Waiting { resolve: (answer: ArrayBuffer) => void; reject: (error: Error) => void }

/** What a text is called that another has pushed out. */
const GONE = /is open no longer/;

const element = (id: string): string => document.getElementById(id)?.textContent ?? "";

export class Alone implements Source {
  readonly live = true;
  readonly folders = false;
  readonly sample: string;
  private worker: Worker | null = null;
  private readonly waiting = new Map<number, Waiting>();
  private loaded = new Map<string, Promise<unknown>>();
  private asked = 0;
  /** How often the module was begun: numbers of readings begin anew with it. */
  private begun = 0;

  constructor(private readonly within: Within) {
    this.sample = within.text;
  }

  async runs(): Promise<string[]> {
    return this.within.runs.map((run) => run.name);
  }

  async saved(): Promise<Reading[]> {
    return [];
  }

  async open(run: string, opening: Opening): Promise<Reading> {
    await this.load(run);
    const found = json<{ reading: number }>(await this.post({ ask: "open", run, opening }));
    const reading = { id: `${this.begun}.${found.reading}`, run, opening };
    const [about, text] = await Promise.all(["about", "text"].map((what) => this.of(reading.id, what, [])));
    return { ...reading, about: json<About>(about!), text: json<Text>(text!) };
  }

  async ask(reading: Reading, what: string, pairs: Pairs): Promise<ArrayBuffer> {
    try {
      return await this.of(reading.id, what, pairs);
    } catch (error) {
      if (!GONE.test((error as Error).message)) throw error;
      reading.id = (await this.open(reading.run, reading.opening)).id;
      return this.of(reading.id, what, pairs);
    }
  }

  choices(what: string, pairs: Pairs): Promise<ArrayBuffer> {
    return this.post({ ask: "choices", what, pairs: words(pairs) });
  }

  folder(): Promise<ArrayBuffer> {
    return Promise.reject(new NotSaved());
  }

  async write(
    run: string, prompt: string, tokens: number, temperature: number, topP: number,
  ): Promise<string> {
    await this.load(run);
    const seed = Math.floor(Math.random() * 2 ** 32);
    const sampling = { temperature, top_p: topP, seed };
    return json<{ text: string }>(await this.post({ ask: "write", run, prompt, tokens, sampling })).text;
  }

  /** The module's version, and the instructions it computes with. */
  async about(): Promise<unknown> {
    return json(await this.post({ ask: "about" }));
  }

  private of(id: string, what: string, pairs: Pairs): Promise<ArrayBuffer> {
    const [begun, reading] = id.split(".").map(Number);
    if (begun !== this.begun) return Promise.reject(new Error("the text is open no longer"));
    return this.post({ ask: "reading", reading, what, pairs: words(pairs) });
  }

  private load(name: string): Promise<unknown> {
    let found = this.loaded.get(name);
    if (!found) {
      const files = this.within.runs.find((run) => run.name === name)?.files.map(bytes) ?? [];
      const lengths = files.map((file) => file.byteLength);
      found = this.post({ ask: "load", run: name, lengths }, files);
      this.loaded.set(name, found);
      found.catch(() => this.loaded.delete(name));
    }
    return found;
  }

  private post(question: unknown, parts: ArrayBuffer[] = []): Promise<ArrayBuffer> {
    const worker = this.worker ??= this.start();
    const id = ++this.asked;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      worker.postMessage({ id, question, parts } satisfies Asked, parts);
    });
  }

  private start(): Worker {
    const address = URL.createObjectURL(new Blob([element("worker")], { type: "text/javascript" }));
    const worker = new Worker(address);
    URL.revokeObjectURL(address);
    this.begun += 1;
    this.loaded = new Map();
    worker.onmessage = ({ data }: MessageEvent<Answered>) => this.answered(data);
    worker.onerror = (event) => this.end(event.message);
    const module = bytes(element("module"));
    worker.postMessage(module, [module]);
    return worker;
  }

  private answered({ id, answer, refused, ended }: Answered): void {
    if (ended !== undefined) return this.end(ended);
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (answer) waiting?.resolve(answer);
    else waiting?.reject(new Error(refused));
  }

  /** A module that has broken off is not asked again; the next question begins another. */
  private end(reason: string): void {
    this.worker?.terminate();
    this.worker = null;
    for (const { reject } of this.waiting.values()) reject(new Error(reason));
    this.waiting.clear();
  }
}

const words = (pairs: Pairs): [string, string][] =>
  pairs.map(([name, value]) => [name, String(value)]);
