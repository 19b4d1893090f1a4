//! Encoders, encoder-decoders and decoders by one server.

use serde_json::{Value, json};
use whatwhere_training::{Pooling, Run, Translation};

use crate::client::{RUNS, Server};

#[test]
fn every_family_answers_what_it_can_and_says_what_it_cannot() {
    let server = Server::start(&["words", "blanks", "pair"], &[]);
    let filled =
        server.good("/v1/fill", &json!({ "model": "blanks", "text": "to [MASK]e", "count": 3 }));
    let blanks = Run::open(RUNS.path("blanks")).unwrap();
    assert_eq!(filled["blanks"], json!(blanks.fill("to [MASK]e", 3).unwrap()));

    let pair = Run::open(RUNS.path("pair")).unwrap();
    let lines = ["en a b", "en a b a b", ""];
    let expected: Vec<String> = lines
        .map(|line| pair.translate(&[line], &Translation::default()).unwrap().remove(0))
        .into();
    let translated = server.good("/v1/translate", &json!({ "model": "pair", "text": lines }));
    let found: Vec<&str> = translated["translations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["text"].as_str().unwrap())
        .collect();
    assert_eq!(found, expected);

    let vector = |model: &str, more: Value| {
        let mut request = json!({ "model": model, "input": ["hallo", "to be"] });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.good("/v1/embeddings", &request)["data"][1]["embedding"].clone()
    };
    let numbers = |value: &Value| -> Vec<f32> {
        value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
    };
    let words = Run::open(RUNS.path("words")).unwrap();
    for (name, run, pooling) in
        [("blanks", &blanks, Pooling::Mean), ("words", &words, Pooling::Last)]
    {
        let found = vector(name, json!({}));
        assert_eq!(numbers(&found), run.embed("to be", pooling, true).unwrap());
        assert_eq!(numbers(&vector(name, json!({ "dimensions": 8 }))).len(), 8);
        let text = vector(name, json!({ "encoding_format": "base64" }));
        assert_eq!(text.as_str().unwrap().len(), (4usize * 32).div_ceil(3) * 4);
    }

    for (path, model, body, expected) in [
        ("/v1/completions", "blanks", json!({ "prompt": "a" }), "is an encoder"),
        ("/v1/completions", "pair", json!({ "prompt": "a" }), "/v1/translate"),
        ("/v1/score", "pair", json!({ "text": "ab" }), "/v1/translate"),
        ("/v1/embeddings", "pair", json!({ "input": "a" }), "one stack"),
        ("/v1/translate", "words", json!({ "text": "a" }), "translates nothing"),
        ("/v1/fill", "words", json!({ "text": "[MASK]" }), "fills no blanks"),
        ("/v1/fill", "blanks", json!({ "text": "a" }), "found no [MASK]"),
        ("/v1/fill", "blanks", json!({ "text": "[MASK]", "count": 0 }), "count = 0"),
        ("/v1/classify", "words", json!({ "input": "a" }), "classify needs a run"),
        (
            "/v1/translate",
            "pair",
            json!({ "text": "a", "beam": 99 }),
            "beam = 99, expected 1 to 16",
        ),
        (
            "/v1/translate",
            "pair",
            json!({ "text": vec!["a"; 65] }),
            "found 65 texts, expected 1 to 64",
        ),
        (
            "/v1/embeddings",
            "words",
            json!({ "input": "a", "dimensions": 33 }),
            "dimensions = 33, expected 1 to 32",
        ),
        (
            "/v1/embeddings",
            "words",
            json!({ "input": [[9999]] }),
            "token 9999 is outside the vocabulary",
        ),
    ] {
        let mut request = body;
        request["model"] = model.into();
        let answer = server.post(path, &request);
        assert_eq!(answer.status, 400, "{path} {request}: {}", answer.text());
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(expected), "{path} {request}: {message}");
    }
}
