//! Every address that takes a body against everything that can be wrong with one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::client::{Answer, Server};

/// Tokens that a text may have.
const CONTEXT: usize = 300;

/// An address with a request that it answers.
struct Asked {
    path: &'static str,
    model: &'static str,
    body: Value,
    /// The field of the text.
    field: &'static str,
    /// The text as tokens, where it may be some; `outside` is one that the vocabulary has not.
    tokens: Option<fn(outside: u32) -> Value>,
    /// Such a text of some length, where a model reads it.
    long: Option<fn(text: String) -> Value>,
}

fn all() -> Vec<Asked> {
    let text: fn(String) -> Value = |text| text.into();
    let blank: fn(String) -> Value = |text| format!("[MASK]{text}").into();
    let said: fn(String) -> Value = |text| json!([{ "role": "user", "content": text }]);
    let tokens: fn(u32) -> Value = |outside| json!([1, outside]);
    let chat = || json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 2 });
    let completion = || json!({ "prompt": "a", "n_predict": 2 });
    let (none, no_tokens) = (None, None);
    let words =
        |path, body, field, tokens, long| Asked { path, model: "words", body, field, tokens, long };
    let of =
        |path, model, body, field, long| Asked { path, model, body, field, tokens: None, long };
    vec![
        words("/v1/completions", json!({ "prompt": "a" }), "prompt", Some(tokens), Some(text)),
        words("/completion", completion(), "prompt", Some(tokens), Some(text)),
        words("/completions", completion(), "prompt", Some(tokens), Some(text)),
        words("/v1/embeddings", json!({ "input": "a" }), "input", Some(tokens), Some(text)),
        words("/embedding", json!({ "content": "a" }), "content", Some(tokens), Some(text)),
        words("/embeddings", json!({ "content": "a" }), "content", Some(tokens), Some(text)),
        words("/v1/score", json!({ "text": "a" }), "text", no_tokens, Some(text)),
        words("/tokenize", json!({ "prompt": "a" }), "prompt", no_tokens, none),
        words("/detokenize", json!({ "tokens": [1] }), "tokens", Some(tokens), none),
        words("/v1/attention", json!({ "text": "ab" }), "text", no_tokens, none),
        of("/v1/chat/completions", "chat", chat(), "messages", Some(said)),
        of("/chat/completions", "chat", chat(), "messages", Some(said)),
        of("/apply-template", "chat", json!({ "messages": chat()["messages"] }), "messages", none),
        of("/v1/translate", "pair", json!({ "text": "en a" }), "text", Some(text)),
        of("/v1/fill", "blanks", json!({ "text": "a[MASK]" }), "text", Some(blank)),
        of("/v1/classify", "classes", json!({ "input": "good" }), "input", Some(text)),
    ]
}

impl Asked {
    /// The name of the field that says which run is asked.
    fn run(&self) -> &'static str {
        if self.path == "/v1/attention" { "run" } else { "model" }
    }

    fn good(&self) -> Value {
        let mut body = self.body.clone();
        body[self.run()] = self.model.into();
        body
    }

    fn with(&self, field: &str, value: Value) -> Value {
        let mut body = self.good();
        body[field] = value;
        body
    }
}

/// The error of a refusal, which has the one shape.
fn error(answer: &Answer, status: u16, what: &str) -> Value {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    let error = answer.json()["error"].clone();
    let fields: BTreeSet<&str> = error.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["code", "message", "param", "type"]), "{what}: {error}");
    assert_eq!(error["type"], "invalid_request_error", "{what}");
    error
}

fn message(error: &Value) -> &str {
    error["message"].as_str().unwrap()
}

/// A value that a field of this type cannot have; nothing where it takes any.
fn wrong(schema: &Value) -> Option<Value> {
    let kind = schema.get("type").map(Value::to_string);
    match kind {
        Some(kind) if kind.contains("object") => Some("no object".into()),
        Some(_) => Some(json!({ "an": "object" })),
        None if schema.get("anyOf").or(schema.get("$ref")).is_some() => Some(json!(1.5)),
        None => None,
    }
}

#[test]
fn every_address_refuses_everything_that_is_wrong() {
    let context = CONTEXT.to_string();
    let runs = ["words", "chat", "pair", "blanks", "classes"];
    let server = Server::start(&runs, &["--context", &context]);
    let document = server.get("/openapi.json").json();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<&str> = paths
        .iter()
        .filter(|(_, methods)| methods.get("post").is_some())
        .map(|(path, _)| path.as_str())
        .collect();
    let all = all();
    assert_eq!(all.iter().map(|asked| asked.path).collect::<BTreeSet<_>>(), described);
    let mut wrong_types = 0;
    for asked in &all {
        let (path, field) = (asked.path, asked.field);
        server.good(path, &asked.good());

        let content = &paths[path]["post"]["requestBody"]["content"]["application/json"];
        let schema = content["schema"]["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        let fields = document["components"]["schemas"][schema]["properties"].as_object().unwrap();
        assert!(fields.contains_key(field) && fields.contains_key(asked.run()), "{path}");
        let needed = document["components"]["schemas"][schema]["required"].to_string();
        assert!(needed.contains(&format!("{:?}", asked.run())), "{path}: {needed}");
        for (name, schema) in fields {
            let Some(wrong) = wrong(schema) else { continue };
            let what = format!("{path} {name} = {wrong}");
            let error = error(&server.post(path, &asked.with(name, wrong)), 400, &what);
            assert_eq!(error["param"], name.as_str(), "{what}: {error}");
            wrong_types += 1;
        }

        let mut without = asked.good();
        without.as_object_mut().unwrap().remove(field);
        let missing = error(&server.post(path, &without), 400, path);
        assert!(message(&missing).contains("missing"), "{path}: {missing}");

        let other = asked.with(asked.run(), "other".into());
        let unknown = error(&server.post(path, &other), 404, path);
        assert_eq!(unknown["code"], "model_not_found", "{path}");
        assert!(message(&unknown).contains("expected one of words, chat, pair, blanks, classes"));

        for body in [
            &b"{"[..],
            b"",
            b"[]",
            b"null",
            b"{\"model\": \"words\",}",
            b"{\"model\": \"\xff\xfe\"}",
            b"{\"model\": \"\\ud800\"}",
            b"\xef\xbb\xbf{}",
        ] {
            let what = format!("{path} {}", String::from_utf8_lossy(body));
            let broken = error(&server.ask("POST", path, "", body), 400, &what);
            assert!(message(&broken).contains("JSON"), "{what}: {broken}");
        }

        if let Some(long) = asked.long {
            let body = asked.with(field, long("a".repeat(CONTEXT + 7)));
            let long = error(&server.post(path, &body), 400, path);
            assert_eq!(
                (&long["code"], &long["param"]),
                (&json!("context_length_exceeded"), &json!(field))
            );
            let numbers: Vec<usize> = message(&long)
                .split(|character: char| !character.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect();
            let [found, most] = numbers[..] else { panic!("{path}: {long}") };
            assert!(
                (CONTEXT + 1..CONTEXT + 40).contains(&found) && most == CONTEXT,
                "{path}: {long}"
            );
        }

        if let Some(tokens) = asked.tokens {
            let outside = error(&server.post(path, &asked.with(field, tokens(65))), 400, path);
            assert_eq!(outside["param"], field, "{path}: {outside}");
            let expected = "token 65 is outside the vocabulary, expected 0 to 64";
            assert_eq!(message(&outside), expected, "{path}");
            server.good(path, &asked.with(field, tokens(64)));
        }
        server.good(path, &asked.good());
    }
    assert!(wrong_types > 130, "{wrong_types}");
}

#[test]
fn addresses_without_a_body_refuse_in_the_same_shape() {
    let server = Server::start(&["words", "chat"], &[]);
    for (path, status, expected) in [
        ("/v1/models/other", 404, "no model is called \"other\""),
        ("/v1/models/%ff", 400, "UTF-8"),
        ("/tokenizer_info", 400, "model is missing"),
        ("/tokenizer_info?model=other", 404, "no model is called"),
        ("/tokenizer_info?model=%ff", 404, "no model is called"),
        ("/v1/attention/none/about", 404, "no text is open as none"),
        ("/v1/attention/none/%ff", 400, "UTF-8"),
        ("/v1/choices/none", 400, "nothing is called none"),
        ("/v1/choices/%ff", 400, "UTF-8"),
        ("/v1/choices/position?name=nowhere", 400, "nowhere"),
        ("/v1/runs/list?deep=1", 400, "expected no parameters"),
        ("/v1/runs/%ff", 400, "UTF-8"),
        ("/v1/none", 404, "there is no /v1/none"),
    ] {
        let error = error(&server.get(path), status, path);
        assert!(message(&error).contains(expected), "{path}: {error}");
    }
}
