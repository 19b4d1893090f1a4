//! llama.cpp's addresses: the same answers in its words.

use serde_json::{Value, json};
use whatwhere_training::{Pooling, Run};

use crate::client::{RUNS, Server};

#[test]
fn other_names_answer_the_same() {
    let server = Server::start(&["chat"], &[]);
    let chat =
        json!({ "messages": [{ "role": "user", "content": "Who?" }], "seed": 1, "max_tokens": 9 });
    let text = json!({ "prompt": "Who?", "seed": 1, "n_predict": 9 });
    let [first, second] = ["/v1/chat/completions", "/chat/completions"].map(|path| {
        let whole = server.good(path, &chat);
        assert_eq!(whole["object"], "chat.completion");
        whole["choices"].clone()
    });
    assert_eq!(first, second);
    let [first, second] =
        ["/completion", "/completions"].map(|path| server.good(path, &text)["content"].clone());
    assert_eq!(first, second);
    // Here -1 is no seed, but another text each time.
    let unseeded = json!({ "prompt": "Who?", "seed": -1, "n_predict": 40 });
    let [first, second] = [0, 1].map(|_| server.good("/completion", &unseeded)["content"].clone());
    assert_ne!(first, second);
    assert_eq!(server.get("/v1/health").json(), server.get("/health").json());
    let prompt = server.good("/apply-template", &json!({ "messages": chat["messages"] }));
    assert_eq!(prompt, json!({ "prompt": "USER: Who?\nASSISTANT:" }));
}

#[test]
fn vectors_are_those_of_the_run() {
    let server = Server::start(&["words"], &[]);
    let run = Run::open(RUNS.path("words")).unwrap();
    let numbers = |value: &Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
    };
    let texts = ["to be", "or not"];
    for (path, field, normalize) in
        [("/embedding", "content", 2), ("/embeddings", "input", 2), ("/embeddings", "content", -1)]
    {
        let mut request = json!({ "embd_normalize": normalize });
        request[field] = json!(texts);
        let found = server.good(path, &request);
        assert_eq!(found.as_array().unwrap().len(), 2);
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(found[index]["index"], index);
            let expected = run.embed(text, Pooling::Last, normalize == 2).unwrap();
            assert_eq!(numbers(&found[index]["embedding"][0]), expected, "{path} {text}");
        }
    }
    for (body, expected) in [
        (json!({}), "expected content or input"),
        (json!({ "content": "a", "input": "a" }), "found both"),
        (json!({ "content": "a", "embd_normalize": 1 }), "embd_normalize = 1, expected 2 or -1"),
    ] {
        let refused = server.post("/embedding", &body);
        assert_eq!(refused.status, 400);
        assert!(refused.text().contains(expected), "{}", refused.text());
    }
}

#[test]
fn probabilities_are_told_as_everywhere() {
    let server = Server::start(&["words"], &[]);
    let asked = json!({ "prompt": "MENENIUS:", "seed": 4, "max_tokens": 12, "logprobs": 3 });
    let expected = server.good("/v1/completions", &asked)["choices"][0]["logprobs"].clone();
    let mut request = json!({ "prompt": "MENENIUS:", "seed": 4, "n_predict": 12, "n_probs": 3 });
    let whole = server.good("/completion", &request);
    let told = whole["completion_probabilities"].as_array().unwrap();
    assert_eq!(told.len(), 12);
    for (at, told) in told.iter().enumerate() {
        assert_eq!(told["token"], expected["tokens"][at]);
        assert_eq!(told["logprob"], expected["token_logprobs"][at]);
        let top = told["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        for token in top {
            let name = token["token"].as_str().unwrap();
            assert_eq!(token["logprob"], expected["top_logprobs"][at][name]);
            let text = server.good("/detokenize", &json!({ "tokens": [token["id"]] }));
            assert_eq!(text["content"], name);
            assert_eq!(token["bytes"], json!(name.as_bytes()));
        }
    }
    request["stream"] = true.into();
    let events = server.post("/completion", &request).events();
    let streamed = events.iter().filter_map(|event| event["completion_probabilities"].as_array());
    assert_eq!(Value::from(streamed.flatten().cloned().collect::<Vec<_>>()), json!(told));
    request["n_probs"] = 0.into();
    request["stream"] = false.into();
    assert!(server.good("/completion", &request).get("completion_probabilities").is_none());
    for (field, value) in [
        ("n_probs", json!(21)),
        ("post_sampling_probs", json!(true)),
        ("grammar", json!("root ::= \"a\"")),
        ("json_schema", json!({})),
    ] {
        let mut request = request.clone();
        request[field] = value;
        let refused = server.post("/completion", &request);
        assert_eq!(refused.status, 400, "{field}: {}", refused.text());
        assert_eq!(refused.json()["error"]["param"], field);
    }
}
