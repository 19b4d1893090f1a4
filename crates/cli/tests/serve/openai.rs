//! OpenAI's interface, and llama.cpp's and vLLM's beside it.

use serde_json::{Value, json};
use whatwhere_training::Run;

use crate::client::{RUNS, Server, TEMPLATE};

#[test]
fn echoed_probabilities_are_those_of_the_run() {
    let server = Server::start(&["words"], &["--context", "2000"]);
    let run = Run::open(RUNS.path("words")).unwrap();
    let text = "What is the city but the people? ".repeat(12);
    let expected = run.score(&text).unwrap();
    let ids = run.encode(&text).unwrap();
    for (prompt, count) in
        [(json!(text), 0), (json!(ids), 1), (json!([ids]), 5), (json!([text]), 20)]
    {
        let request = json!({ "prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": count, "echo": true });
        let whole = server.good("/v1/completions", &request);
        let told = &whole["choices"][0]["logprobs"];
        let logs = told["token_logprobs"].as_array().unwrap();
        assert_eq!(logs.len(), ids.len() + 1);
        assert_eq!(logs[0], Value::Null);
        for (found, (_, expected)) in logs[1..].iter().zip(&expected) {
            assert!((found.as_f64().unwrap() - expected).abs() < 1e-4, "{found}, {expected}");
        }
        // Greedy: the token that was written is the likeliest, by the same number.
        let written = logs[ids.len()].as_f64().unwrap();
        let tops = told["top_logprobs"].as_array().unwrap();
        let best = tops[ids.len()].as_object().unwrap().values().filter_map(Value::as_f64);
        assert_eq!(best.fold(f64::MIN, f64::max), written);
        assert!(
            tops[1..]
                .iter()
                .all(|top| (count..=count + 1).contains(&top.as_object().unwrap().len()))
        );
        let whole_text = whole["choices"][0]["text"].as_str().unwrap();
        assert!(whole_text.starts_with(&text) && whole_text.chars().count() == ids.len() + 1);
        assert_eq!(whole["usage"]["total_tokens"], ids.len() + 1);
    }
    let scored = server.good("/v1/score", &json!({ "text": text, "top": 2 }));
    let sum: f64 = expected.iter().map(|(_, log)| log).sum();
    assert!((scored["logprob"].as_f64().unwrap() - sum).abs() < 1e-3);
    assert_eq!(scored["tokens"][3]["top"].as_array().unwrap().len(), 2);
    // What is told does not change what is written.
    let plain = json!({ "prompt": text, "max_tokens": 9, "seed": 5 });
    let told = json!({ "prompt": text, "max_tokens": 9, "seed": 5, "echo": true, "logprobs": 1 });
    let [plain, told] = [plain, told]
        .map(|request| server.good("/v1/completions", &request)["choices"][0]["text"].clone());
    assert_eq!(told.as_str().unwrap(), format!("{text}{}", plain.as_str().unwrap()));
}

/// What sees a token in both directions predicts nothing of it: its probability is that of the text read forwards.
#[test]
fn probabilities_of_a_prompt_that_is_seen_in_both_directions_do_not_see_it() {
    let server = Server::start(&["prefix"], &["--context", "2000"]);
    let run = Run::open(RUNS.path("prefix")).unwrap();
    let text = "What is the city but the people? ".repeat(12);
    let expected = run.score(&text).unwrap();
    let ask = |echo: bool| {
        let request =
            json!({ "prompt": text, "max_tokens": 9, "seed": 5, "echo": echo, "logprobs": 1 });
        server.good("/v1/completions", &request)["choices"][0].clone()
    };
    let (plain, told) = (ask(false), ask(true));
    let logs = told["logprobs"]["token_logprobs"].as_array().unwrap();
    assert_eq!(logs.len(), expected.len() + 1 + 9);
    for (found, (_, expected)) in logs[1..].iter().zip(&expected) {
        assert!((found.as_f64().unwrap() - expected).abs() < 1e-4, "{found}, {expected}");
    }
    // What is told does not change what is written.
    assert_eq!(
        told["text"].as_str().unwrap(),
        format!("{text}{}", plain["text"].as_str().unwrap())
    );
    assert_eq!(logs[logs.len() - 9..], plain["logprobs"]["token_logprobs"].as_array().unwrap()[..]);
}

#[test]
fn text_is_that_of_the_command_and_streams_say_the_same() {
    let server = Server::start(&["words"], &[]);
    let run = Run::open(RUNS.path("words")).unwrap();
    for (seed, temperature, stop) in [(0, 0.0, ""), (3, 0.9, ""), (4, 1.0, "e"), (5, 1.0, "o ")] {
        let generation = whatwhere_training::Generation {
            sampling: whatwhere_training::Sampling { temperature, seed, ..Default::default() },
            limit: 60,
            stop: vec![stop.to_owned()].into_iter().filter(|stop| !stop.is_empty()).collect(),
        };
        let go_on = |_: &str| std::ops::ControlFlow::Continue(());
        let expected = run.generate("MENENIUS:", &generation, go_on).unwrap();
        let mut request = json!({ "prompt": "MENENIUS:", "max_tokens": 60, "temperature": temperature, "seed": seed, "stop": generation.stop });
        let whole = server.good("/v1/completions", &request);
        assert_eq!(whole["choices"][0]["text"], expected);
        let reason = if stop.is_empty() { "length" } else { "stop" };
        assert_eq!(whole["choices"][0]["finish_reason"], reason);
        request["stream"] = true.into();
        request["stream_options"] = json!({ "include_usage": true });
        let answer = server.post("/v1/completions", &request);
        assert!(
            answer.head.contains("text/event-stream")
                && answer.text().ends_with("data: [DONE]\n\n")
        );
        let events = answer.events();
        let said: String =
            events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
        assert_eq!(said, expected);
        let last = events.last().unwrap();
        assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
        let reasons: Vec<&str> = events
            .iter()
            .filter_map(|event| event["choices"][0]["finish_reason"].as_str())
            .collect();
        assert_eq!(reasons, [reason]);
        let llama = json!({ "prompt": "MENENIUS:", "n_predict": 60, "temperature": temperature, "seed": seed, "stop": generation.stop });
        let llama = server.good("/completion", &llama);
        assert_eq!(
            (&llama["content"], &llama["stop_type"]),
            (&json!(expected), &json!(if stop.is_empty() { "limit" } else { "word" }))
        );
    }
}

#[test]
fn several_prompts_and_texts_have_their_own_places() {
    let server = Server::start(&["words"], &[]);
    let ask = |prompt: Value, n: usize| {
        let request =
            json!({ "prompt": prompt, "n": n, "best_of": n, "max_tokens": 12, "seed": 9 });
        server.good("/v1/completions", &request)
    };
    let texts = |whole: &Value| -> Vec<String> {
        let choices = whole["choices"].as_array().unwrap();
        choices.iter().enumerate().for_each(|(at, choice)| assert_eq!(choice["index"], at));
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_owned()).collect()
    };
    let all = texts(&ask(json!(["KING:", "QUEEN:", "a"]), 3));
    assert_eq!(all.len(), 9);
    for (at, prompt) in ["KING:", "QUEEN:", "a"].into_iter().enumerate() {
        assert_eq!(texts(&ask(json!(prompt), 3)), all[3 * at..][..3]);
        assert_eq!(texts(&ask(json!(prompt), 1)), all[3 * at..][..1]);
    }
    assert!(all[0] != all[1] && all[1] != all[2], "{all:?}");
    assert_eq!(ask(json!(["KING:", "QUEEN:"]), 2)["usage"]["prompt_tokens"], 11);
    // A token that nothing else can stand against.
    let biased = json!({ "prompt": "a", "max_tokens": 4, "logit_bias": { "20": 100 } });
    let token = server.good("/detokenize", &json!({ "tokens": [20] }))["prompt"]
        .as_str()
        .unwrap()
        .repeat(4);
    assert_eq!(server.good("/v1/completions", &biased)["choices"][0]["text"], token);
    let never = json!({ "prompt": "a", "max_tokens": 4, "temperature": 0, "logit_bias": { "20": 100 }, "presence_penalty": 2, "frequency_penalty": 2, "repetition_penalty": 100 });
    assert_ne!(server.good("/v1/completions", &never)["choices"][0]["text"], token);
}

#[test]
fn a_chat_is_the_text_that_its_template_makes() {
    let server = Server::start(&["chat", "words"], &["--context", "2000"]);
    let messages = json!([
        { "role": "developer", "content": " Be brief. " },
        { "role": "user", "content": [{ "type": "text", "text": "Who is" }, { "type": "text", "text": " there?" }] },
    ]);
    let prompt = "SYSTEM: Be brief.\nUSER: Who is there?\nASSISTANT:";
    let mut request = json!({ "model": "chat", "messages": messages, "seed": 2, "max_completion_tokens": 30, "logprobs": true, "top_logprobs": 2 });
    let whole = server.good("/v1/chat/completions", &request);
    let text = json!({ "model": "words", "prompt": prompt, "seed": 2, "max_tokens": 30 });
    let expected = server.good("/v1/completions", &text);
    let choice = &whole["choices"][0];
    assert_eq!(choice["message"]["content"], expected["choices"][0]["text"]);
    assert_eq!(whole["usage"]["prompt_tokens"], prompt.len());
    let told = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(told.len(), 30);
    assert!(told.iter().all(
        |told| told["top_logprobs"].as_array().unwrap().len() == 2 && told["bytes"].is_array()
    ));
    request["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &request).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let said: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(said, choice["message"]["content"].as_str().unwrap());
    request["model"] = "words".into();
    let refused = server.post("/v1/chat/completions", &request);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("no chat template"), "{}", refused.text());
    let tool = json!({ "model": "chat", "messages": [{ "role": "tool", "content": "x" }] });
    let refused = server.post("/v1/chat/completions", &tool);
    assert_eq!(
        (refused.status, refused.text().contains("no tools")),
        (400, true),
        "{}",
        refused.text()
    );
    assert_eq!(server.get("/props").json()["chat_template"], TEMPLATE);
}

#[test]
fn tokens_go_there_and_back_in_everybodys_words() {
    let server = Server::start(&["words", "chat"], &["--slots", "3"]);
    for field in ["prompt", "content"] {
        let mut request = json!({ "model": "words" });
        request[field] = "To be".into();
        let tokens = server.good("/tokenize", &request)["tokens"].clone();
        assert_eq!(tokens.as_array().unwrap().len(), 5);
        let text = server.good("/detokenize", &json!({ "model": "words", "tokens": tokens }));
        assert_eq!(text, json!({ "prompt": "To be", "content": "To be" }));
    }
    assert_eq!(server.get("/tokenizer_info").status, 400);
    let info = server.get("/tokenizer_info?model=words").json();
    assert!(info.as_object().unwrap().contains_key("eos_token"));
    let names: Vec<Value> = server.get("/v1/models").json()["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect();
    assert_eq!(names, ["words", "chat"]);
    assert_eq!(server.get("/v1/models/chat").json()["id"], "chat");
    assert_eq!(server.get("/v1/models/other").status, 404);
    assert_eq!(server.get("/slots").json().as_array().unwrap().len(), 6);
    assert_eq!(server.get("/health").json(), json!({ "status": "ok" }));
}

/// A client that joins the events of a stream has what it would have had at once.
#[test]
fn streamed_probabilities_are_those_of_the_whole() {
    let server = Server::start(&["words"], &[]);
    let prompt = "What is the city but the people? ".repeat(4);
    for (echo, n) in [(false, 1), (true, 1), (true, 2)] {
        let mut request = json!({ "prompt": prompt, "max_tokens": 9, "seed": 3, "logprobs": 2, "echo": echo, "n": n });
        let whole = server.good("/v1/completions", &request);
        request["stream"] = true.into();
        let events = server.post("/v1/completions", &request).events();
        for (index, expected) in whole["choices"].as_array().unwrap().iter().enumerate() {
            let told = &expected["logprobs"];
            let text = expected["text"].as_str().unwrap();
            assert_eq!(text.starts_with(&prompt), echo, "{index}");
            let said: String = events
                .iter()
                .filter(|event| event["choices"][0]["index"] == index)
                .filter_map(|event| event["choices"][0]["text"].as_str())
                .collect();
            assert_eq!(said, text);
            let offsets = told["text_offset"].as_array().unwrap();
            assert_eq!(offsets.len(), 9 + if echo { prompt.len() } else { 0 });
            for field in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
                let joined: Vec<Value> = events
                    .iter()
                    .map(|event| &event["choices"][0])
                    .filter(|choice| choice["index"] == index)
                    .filter_map(|choice| choice["logprobs"][field].as_array())
                    .flatten()
                    .cloned()
                    .collect();
                assert_eq!(Value::from(joined), told[field], "{field}, echo = {echo}, {index}");
            }
        }
    }
}
