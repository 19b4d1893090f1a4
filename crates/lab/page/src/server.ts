// A server behind the page.

import { say } from "./words";
import { json, query, type About, type Opening, type Pairs, type Reading, type Source, type Text } from "./source";

/** Where a key stays until the tab is closed, for servers that ask for one. */
const KEY = "whatwhere-key";

async function fetched(address: string, options?: RequestInit): Promise<ArrayBuffer> {
  let response: Response;
  try {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...options?.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    response = await fetch(address, { ...options, headers });
    if (response.status === 401) {
      const given = prompt(say("apiKey"));
      if (given) {
        sessionStorage.setItem(KEY, given);
        return fetched(address, options);
      }
    }
  } catch {
    throw new Error("the server does not answer");
  }
  const bytes = await response.arrayBuffer();
  if (response.ok) return bytes;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = json<{ error: { message: string } }>(bytes).error.message;
  } catch {
    // Not the server's own words, such as a proxy's page.
  }
  throw Object.assign(new Error(message), { status: response.status });
}

const post = (address: string, body: unknown): Promise<ArrayBuffer> =>
  fetched(address, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

const at = (address: string, pairs: Pairs): string =>
  pairs.length ? `${address}?${query(pairs)}` : address;

export class Server implements Source {
  readonly live = true;
  readonly folders = true;
  readonly sample = null;

  async runs(): Promise<string[]> {
    return json<{ runs: string[] }>(await fetched("v1/attention")).runs;
  }

  async saved(): Promise<Reading[]> {
    return [];
  }

  async open(run: string, opening: Opening): Promise<Reading> {
    const { reading } = json<{ reading: string }>(
      await post("v1/attention", { run, ...opening }));
    const [about, text] = await Promise.all(["about", "text"].map((what) =>
      fetched(`v1/attention/${reading}/${what}`)));
    return {
      id: reading, run, opening, about: json<About>(about!), text: json<Text>(text!),
    };
  }

  async ask(reading: Reading, what: string, pairs: Pairs): Promise<ArrayBuffer> {
    try {
      return await fetched(at(`v1/attention/${reading.id}/${what}`, pairs));
    } catch (error) {
      if ((error as { status?: number }).status !== 404) throw error;
      // The server keeps a few texts; this one has given way to others.
      const { id } = await this.open(reading.run, reading.opening);
      reading.id = id;
      return fetched(at(`v1/attention/${id}/${what}`, pairs));
    }
  }

  choices(what: string, pairs: Pairs): Promise<ArrayBuffer> {
    return fetched(at(`v1/choices/${what}`, pairs));
  }

  folder(what: string, pairs: Pairs): Promise<ArrayBuffer> {
    return fetched(at(`v1/runs/${what}`, pairs));
  }

  async write(
    run: string, prompt: string, tokens: number, temperature: number, topP: number,
  ): Promise<string> {
    const asked = { model: run, prompt, max_tokens: tokens, temperature, top_p: topP };
    const answer = json<{ choices: { text: string }[] }>(await post("v1/completions", asked));
    return answer.choices[0]?.text ?? "";
  }
}
