"""Does OpenAI's own client get what it asks for, at every endpoint and for every error?

    python bench/serving/clients.py URL
    python bench/serving/clients.py URL --limits KEY

The server has the runs `words` (a decoder), `chat` (the same with a chat template), `blanks` (a masked encoder) and `pair`
(an encoder-decoder). With `--limits` it was started with this key among its keys, `--slots 1 --queue 1 --deadline 3` and a
`--context` that no text fills by then, and is asked for what these refuse. Exits with 1 at the first answer that is wrong.
"""

import sys
import threading
import time

import openai

url = sys.argv[1]
limits = sys.argv[2:3] == ["--limits"]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=sys.argv[3] if limits else "none", max_retries=0)


def expect(right, what):
    if not right:
        sys.exit(f"wrong: {what}")


def refused(kind, status, part, ask, *positional, **arguments):
    what = str(arguments)[:200]
    try:
        answer = ask(*positional, **arguments)
        for _ in answer if arguments.get("stream") else ():
            pass
    except kind as error:
        expect(error.status_code == status, f"{what}: status {error.status_code}, expected {status}")
        expect(part in str(error), f"{what}: {error}, expected {part}")
        expect({"message", "type", "param", "code"} <= set(error.body), f"{what}: {error.body}")
        return error
    sys.exit(f"wrong: {what} was answered, expected {status}")


ENDLESS = {"model": "words", "prompt": "a", "max_tokens": 10**6, "extra_body": {"ignore_eos": True}}


def late_in_a_stream(ask, **arguments):
    """Some of the text, and then an error in its place."""
    events = 0
    try:
        for _ in ask(**arguments, stream=True):
            events += 1
    except openai.APIError as error:
        expect(events > 0, "a stream begins before it is late")
        expect("--deadline" in error.message, error)
        expect(isinstance(error.body, dict) and error.body["type"] == "timeout_error", error.body)
        return
    sys.exit(f"wrong: a stream of {events} events ended as if it were whole")


def slots():
    return client.get(f"{url}/slots", cast_to=object)


def is_full():
    """Whether a text is written and another one waits."""
    busy = sum(slot["is_processing"] for slot in slots() if slot["model"] == "words")
    waiting = client.get(f"{url}/metrics", cast_to=str)
    return busy == 1 and 'whatwhere_waiting{model="words"} 1' in waiting


def check_limits():
    complete, embed = client.completions.create, client.embeddings.create
    expect(complete(model="words", prompt="a", max_tokens=1).usage.completion_tokens == 1, "with a key")
    for wrong in ("none", f"{client.api_key}x"):
        stranger = client.with_options(api_key=wrong)
        for ask, arguments in [
            (stranger.models.list, {}),
            (stranger.completions.create, {"model": "words", "prompt": "a"}),
            (stranger.completions.create, {"model": "words", "prompt": "a", "stream": True}),
            (stranger.embeddings.create, {"model": "words", "input": "a"}),
        ]:
            error = refused(openai.AuthenticationError, 401, "API key", ask, **arguments)
            expect(error.code == "invalid_api_key", error.body)
    refused(openai.APIStatusError, 405, "not asked by GET", client.get, "/completions", cast_to=object)
    refused(openai.APIStatusError, 405, "not asked by POST", client.post, "/models", cast_to=object, body={})
    refused(openai.NotFoundError, 404, "there is no", client.get, "/nothing", cast_to=object)
    refused(openai.APIStatusError, 413, "4194304", complete, model="words", prompt="a" * (5 << 20))
    refused(openai.APIStatusError, 413, "4194304", embed, model="words", input=["a" * (5 << 20)])

    # One is written, one waits, a third one is told when to come again; the first two are told that they are late.
    late = []

    def endless():
        late.append(refused(openai.InternalServerError, 504, "--deadline", complete, **ENDLESS))

    first = [threading.Thread(target=endless) for _ in range(2)]
    for one in first:
        one.start()
    end = time.monotonic() + 3
    while not is_full():
        expect(time.monotonic() < end, "one text is written and one waits")
        time.sleep(0.01)
    for stream in (False, True):
        error = refused(openai.RateLimitError, 429, "wait already", complete, **ENDLESS, stream=stream)
        expect(error.code == "queue_full", error.body)
        expect(int(error.response.headers["retry-after"]) >= 1, error.response.headers)
    refused(openai.RateLimitError, 429, "wait already", embed, model="words", input="a")
    for one in first:
        one.join()
    expect([error.type for error in late] == 2 * ["timeout_error"], late)
    # The client's own way with them: to come again.
    patient = client.with_options(max_retries=10)
    first = threading.Thread(target=endless)
    first.start()
    waiting = threading.Thread(target=endless)
    waiting.start()
    answer = patient.completions.create(model="words", prompt="a", max_tokens=1)
    expect(answer.usage.completion_tokens == 1, answer)
    first.join()
    waiting.join()
    expect(len(late) == 4, "all that were late are told so")

    late_in_a_stream(complete, **ENDLESS)
    messages = [{"role": "user", "content": "Who is there?"}]
    arguments = ENDLESS | {"model": "chat", "messages": messages}
    del arguments["prompt"]
    late_in_a_stream(client.chat.completions.create, **arguments)
    refused(openai.InternalServerError, 504, "--deadline", embed, model="words", input=["a" * 8_000] * 256)
    expect(complete(model="words", prompt="a", max_tokens=1).usage.completion_tokens == 1, "the server lives on")
    print(f"openai {openai.__version__}: every limit as expected")


if limits:
    check_limits()
    sys.exit()

names = [model.id for model in client.models.list()]
expect(names == ["words", "chat", "blanks", "pair"], names)
expect(client.models.retrieve("chat").id == "chat", "models.retrieve")

complete = client.completions.create
one = complete(model="words", prompt="ROMEO:", max_tokens=5, temperature=0, logprobs=5, echo=True)
choice = one.choices[0]
expect(one.usage.prompt_tokens == 6 and one.usage.completion_tokens == 5 and one.usage.total_tokens == 11, one.usage)
expect(choice.text.startswith("ROMEO:") and len(choice.logprobs.token_logprobs) == 11, choice)
expect(choice.logprobs.token_logprobs[0] is None and len(choice.logprobs.top_logprobs[6]) in (5, 6), choice.logprobs)
expect(choice.logprobs.token_logprobs[-1] == max(choice.logprobs.top_logprobs[-1].values()), "greedy is the likeliest")
for prompt in ["ab", ["ab"], [1, 2], [[1, 2]]]:
    expect(complete(model="words", prompt=prompt, max_tokens=3).usage.prompt_tokens == 2, prompt)
many = complete(model="words", prompt=["a", "b", "c"], n=2, seed=3, max_tokens=4, stop=["zzzz"])
expect([choice.index for choice in many.choices] == list(range(6)), many)
expect(len({choice.finish_reason for choice in many.choices} - {"length"}) == 0, many)
none = complete(model="words", prompt="abc", max_tokens=0, echo=True, logprobs=0)
expect(none.choices[0].text == "abc" and none.usage.completion_tokens == 0, none)
biased = complete(model="words", prompt="a", max_tokens=3, logit_bias={"7": 100})
expect(len(set(biased.choices[0].text)) == 1, biased)
whole = complete(model="words", prompt="a", max_tokens=30, seed=5).choices[0].text
events = list(
    complete(model="words", prompt="a", max_tokens=30, seed=5, stream=True, stream_options={"include_usage": True})
)
expect("".join(event.choices[0].text for event in events if event.choices) == whole, "a stream says the same")
expect(not events[-1].choices and events[-1].usage.completion_tokens == 30, events[-1])
expect(sum(bool(event.choices and event.choices[0].finish_reason) for event in events) == 1, "one reason to end")

chat = client.chat.completions.create
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who is there?"}]
answer = chat(model="chat", messages=messages, max_completion_tokens=20, seed=1, logprobs=True, top_logprobs=3, n=2)
expect(len(answer.choices) == 2 and answer.choices[0].message.role == "assistant", answer)
expect(len(answer.choices[0].logprobs.content) == 20, "logprobs of a chat")
expect(all(len(token.top_logprobs) == 3 for token in answer.choices[0].logprobs.content), "top_logprobs of a chat")
said = chat(model="chat", messages=messages, max_tokens=20, seed=1, stream=True)
said = "".join(event.choices[0].delta.content or "" for event in said)
expect(said == answer.choices[0].message.content, "a streamed chat says the same")

embed = client.embeddings.create
by_bytes = embed(model="blanks", input=["to be", "or not"])
by_numbers = embed(model="blanks", input=["to be", "or not"], encoding_format="float")
for left, right in zip(by_bytes.data, by_numbers.data):
    expect(max(abs(a - b) for a, b in zip(left.embedding, right.embedding)) < 1e-7, "base64 and float")
    expect(abs(sum(value * value for value in left.embedding) - 1) < 1e-5, "length 1")
expect(len(embed(model="words", input=[1, 2, 3], dimensions=4).data[0].embedding) == 4, "dimensions")

bad, unknown = openai.BadRequestError, openai.NotFoundError
refused(unknown, 404, "no model is called", complete, model="other", prompt="a")
refused(unknown, 404, "no model is called", client.models.retrieve, model="other")
for part, arguments in [
    ("logprobs = 21", {"logprobs": 21}),
    ("suffix", {"suffix": "x"}),
    ("best_of", {"best_of": 3}),
    ("n = 99", {"n": 99}),
    ("temperature", {"temperature": 9}),
    ("the model reads", {"max_tokens": 10**6}),
    ("outside the vocabulary", {"prompt": [10**6]}),
    ("the model reads", {"prompt": "a" * 10**5}),
    ("logit_bias", {"logit_bias": {"x": 1}}),
]:
    for stream in (False, True):
        refused(bad, 400, part, complete, **{"model": "words", "prompt": "a", "stream": stream} | arguments)
refused(bad, 400, "encoder", complete, model="blanks", prompt="a")
refused(bad, 400, "no chat template", chat, model="words", messages=messages)
refused(bad, 400, "messages", chat, model="chat", messages=[])
refused(bad, 400, "tools", chat, model="chat", messages=messages, tools=[{"type": "function", "function": {"name": "f"}}])
refused(bad, 400, "ghost", chat, model="chat", messages=[{"role": "ghost", "content": "boo"}])
refused(bad, 400, "dimensions", embed, model="words", input="a", dimensions=10**4)
refused(bad, 400, "one stack", embed, model="pair", input="a")
expect(complete(model="words", prompt="a", max_tokens=1).usage.completion_tokens == 1, "the server lives on")
print(f"openai {openai.__version__}: every endpoint and error as expected")
