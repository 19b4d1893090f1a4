//! Bad requests: the shape of errors, the right status, and the server lives on.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::client::{RUNS, Server, read};

#[test]
fn bad_requests_are_refused_with_what_would_be_right() {
    let server = Server::start(&["words", "alibi"], &["--context", "100"]);
    let long = "a".repeat(101);
    let many: Vec<String> = vec!["a".into(); 129];
    let ask = |body: Value| {
        let mut request = json!({ "model": "words", "prompt": "a", "max_tokens": 2 });
        request.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        request
    };
    for (body, status, param, expected) in [
        (json!({ "prompt": "a" }), 400, "model", "model is missing, expected one of words, alibi"),
        (ask(json!({ "model": "other" })), 404, "model", "no model is called \"other\""),
        (ask(json!({ "model": 3 })), 400, "model", "invalid type"),
        (json!({ "model": "words" }), 400, "prompt", "prompt is missing"),
        (ask(json!({ "prompt": 3 })), 400, "prompt", "expected a string, a list of strings"),
        (ask(json!({ "prompt": [] })), 400, "prompt", "found 0 texts, expected 1 to 128"),
        (ask(json!({ "prompt": many })), 400, "prompt", "found 129 texts, expected 1 to 128"),
        (ask(json!({ "prompt": [[]] })), 400, "prompt", "no tokens, expected at least 1"),
        (
            ask(json!({ "prompt": [1, 9999] })),
            400,
            "prompt",
            "token 9999 is outside the vocabulary, expected 0 to 64",
        ),
        (ask(json!({ "prompt": [-1] })), 400, "prompt", "expected a string"),
        (ask(json!({ "prompt": long })), 400, "prompt", "101 tokens, the model reads 100"),
        (ask(json!({ "max_tokens": 100 })), 400, "max_tokens", "makes 101, the model reads 100"),
        (ask(json!({ "max_tokens": -1 })), 400, "max_tokens", "invalid value"),
        (ask(json!({ "max_tokens": 1.5 })), 400, "max_tokens", "expected a whole number"),
        (ask(json!({ "n": 0 })), 400, "n", "n = 0, expected 1 to 8"),
        (ask(json!({ "n": 9 })), 400, "n", "n = 9, expected 1 to 8"),
        (ask(json!({ "best_of": 2 })), 400, "best_of", "best_of = 2, expected n = 1"),
        (ask(json!({ "suffix": "z" })), 400, "suffix", "not supported"),
        (ask(json!({ "logprobs": 21 })), 400, "logprobs", "logprobs = 21, expected 0 to 20"),
        (ask(json!({ "temperature": -0.1 })), 400, "temperature", "expected 0 to 2"),
        (ask(json!({ "temperature": "hot" })), 400, "temperature", "invalid type"),
        (ask(json!({ "temperature": 1e300 })), 400, "temperature", "expected 0 to 2"),
        (ask(json!({ "top_p": 0 })), 400, "top_p", "top_p = 0, expected above 0 and at most 1"),
        (ask(json!({ "min_p": 2 })), 400, "min_p", "min_p = 2, expected 0 to 1"),
        (ask(json!({ "top_k": -2 })), 400, "top_k", "top_k = -2"),
        (
            ask(json!({ "logit_bias": { "9999": 1 } })),
            400,
            "logit_bias",
            "expected the number of a token, 0 to 64",
        ),
        (
            ask(json!({ "logit_bias": { "x": 1 } })),
            400,
            "logit_bias",
            "expected the number of a token",
        ),
        (ask(json!({ "logit_bias": { "1": 101 } })), 400, "logit_bias", "-100 to 100"),
        (ask(json!({ "stop": vec!["a"; 17] })), 400, "stop", "at most 16 strings"),
        (ask(json!({ "stop": 3 })), 400, "stop", "expected a string or a list of strings"),
        (ask(json!({ "stream": "yes" })), 400, "stream", "invalid type"),
    ] {
        let answer = server.post("/v1/completions", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{body}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(expected), "{body}: {message}");
        assert!(error["type"].is_string() && error.as_object().unwrap().contains_key("code"));
    }
    for body in [
        &b"{"[..],
        b"",
        b"[]",
        b"nonsense",
        b"{\"prompt\": \"\xff\xfe\"}",
        b"\x00",
        b"{\"prompt\": \"\\ud800\"}",
    ] {
        let answer = server.ask("POST", "/v1/completions", "", body);
        assert_eq!(answer.status, 400, "{body:?}: {}", answer.text());
        assert!(answer.json()["error"]["message"].as_str().unwrap().contains("JSON"));
    }
    let deep = "[".repeat(100_000);
    assert_eq!(server.ask("POST", "/v1/completions", "", deep.as_bytes()).status, 400);
    // Who sends all of it before reading anything hears why, too.
    let mut large = server.connect();
    let length = 20 << 20;
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    large.write_all(head.as_bytes()).unwrap();
    large.write_all(&vec![b' '; length]).unwrap();
    let large = read(large);
    assert_eq!(large.status, 413);
    assert!(large.text().contains("20971520 bytes, expected 4194304"), "{}", large.text());
    let mut broken = server.connect();
    let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    broken.write_all(format!("{head}zz\r\n").as_bytes()).unwrap();
    let broken = read(broken);
    assert_eq!((broken.status, broken.text().contains("broke off")), (400, true));
    for (method, path, status) in [
        ("GET", "/v1/completions", 405),
        ("POST", "/health", 405),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/v1/models/..%2f..", 404),
    ] {
        let answer = server.ask(method, path, "", b"");
        assert_eq!(answer.status, status, "{method} {path}");
        assert!(answer.json()["error"]["message"].is_string());
    }
    server.good("/v1/completions", &ask(json!({ "suffix": "" })));
}

#[test]
fn what_is_asked_of_the_wrong_run_is_refused_by_its_field() {
    let server =
        Server::start(&["words", "chat", "blanks", "classes", "pair"], &["--context", "100"]);
    let chat = |format: Value| json!({ "model": "chat", "messages": [{ "role": "user", "content": "a" }], "max_tokens": 2, "response_format": format });
    let formats = [
        json!("json"),
        json!({}),
        json!([]),
        json!({ "type": 5 }),
        json!({ "type": "json_object" }),
    ];
    let formats = formats.map(|format| {
        ("/v1/chat/completions", chat(format), "response_format", "not supported but for")
    });
    let others = [
        ("/v1/score", json!({ "model": "words", "text": "" }), "text", "no tokens"),
        (
            "/v1/fill",
            json!({ "model": "blanks", "text": "[MASK]".repeat(101) }),
            "text",
            "101 tokens, the model reads 100",
        ),
        (
            "/v1/classify",
            json!({ "model": "classes", "input": "a", "second": "b" }),
            "second",
            "trained on single texts",
        ),
        (
            "/v1/translate",
            json!({ "model": "pair", "text": "en a", "to_language": "de" }),
            "to_language",
            "to_language = de",
        ),
    ];
    for (path, body, param, expected) in formats.into_iter().chain(others) {
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["param"], param, "{body}: {error}");
        assert!(error["message"].as_str().unwrap().contains(expected), "{body}: {error}");
    }
    for format in [json!({ "type": "text" }), Value::Null] {
        server.good("/v1/chat/completions", &chat(format));
    }
    assert_eq!(
        server.good("/v1/score", &json!({ "model": "words", "text": "a" }))["logprob"].to_string(),
        "0.0"
    );
}

#[test]
fn who_has_no_key_or_comes_from_another_page_is_not_answered() {
    let keys = RUNS.path("keys");
    std::fs::write(&keys, "first-key\n\nsecond-key\n").unwrap();
    let server = Server::start(&["words"], &["--api-key-file", keys.to_str().unwrap()]);
    for (header, status) in [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Authorization: Bearer first-ke\r\n", 401),
        ("Authorization: first-key\r\n", 401),
        ("Authorization: Bearer first-key\r\n", 200),
        ("Authorization: bearer second-key\r\n", 200),
    ] {
        let answer = server.ask("GET", "/v1/models", header, b"");
        assert_eq!(answer.status, status, "{header}");
        assert!(status == 200 || answer.json()["error"]["code"] == "invalid_api_key");
        let asks = answer.head.to_lowercase().contains("www-authenticate: bearer");
        assert_eq!(asks, status == 401, "{}", answer.head);
    }
    assert_eq!(server.get("/health").status, 200);
    let own = format!("Origin: http://{}\r\n", server.address);
    for (header, status) in [("Origin: https://example.org\r\n", 403), (&own[..], 200)] {
        assert_eq!(server.ask("GET", "/health", header, b"").status, status, "{header}");
    }
    let preflight =
        server.ask("OPTIONS", "/v1/completions", "Origin: https://example.org\r\n", b"");
    assert!(!preflight.head.to_lowercase().contains("access-control"), "{}", preflight.head);
}

/// Who sends half a request is left after a while, and holds up nobody meanwhile.
#[test]
fn half_a_request_is_not_waited_for() {
    let server = Server::start(&["words"], &[]);
    let mut half: Vec<_> = (0..30).map(|_| server.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n").unwrap();
    }
    server.good("/v1/completions", &json!({ "prompt": "a", "max_tokens": 3 }));
    let mut end = Vec::new();
    half[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let ended = std::io::Read::read_to_end(&mut half[0], &mut end);
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let serve = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
        let output = command.arg("serve").args(args).output().unwrap();
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let words = RUNS.path("words");
    let words = words.to_str().unwrap();
    let server = Server::start(&["words"], &[]);
    let port = server.address.split(':').next_back().unwrap();
    for (args, expected) in [
        (vec!["no-such-folder"], "no-such-folder"),
        (vec![words, words], "two runs are called \"words\"; name one of them: NAME=PATH"),
        (vec![words, "--port", port], "cannot be listened on"),
        (vec![words, "--api-key-file", "no-such-file"], "no-such-file could not be read"),
        (vec![words, "--slots", "0"], "--slots"),
        (vec![words, "--context", "0"], "--context"),
        (vec![words, "--host", "here"], "such as 127.0.0.1, ::1 or 0.0.0.0"),
        (vec!["=somewhere"], "a run has no name, expected NAME=PATH"),
        (
            vec![words, "--port", port, "--runs", "no-folder"],
            "--runs no-folder: there is no such folder",
        ),
    ] {
        let said = serve(&args);
        assert!(said.contains(expected), "{args:?}: {said}");
        // Names are told apart before anything is opened.
        assert!(!expected.contains("NAME=PATH") || !said.contains("opening"), "{said}");
    }
}

#[test]
fn whoever_lets_other_machines_ask_without_a_key_is_warned() {
    let keys = RUNS.path("one-key");
    std::fs::write(&keys, "a-key\n").unwrap();
    let keys = keys.to_str().unwrap();
    for (more, warns) in [
        (vec!["--host", "0.0.0.0"], true),
        (vec!["--host", "0.0.0.0", "--api-key-file", keys], false),
        (vec!["--host", "localhost"], false),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
        command.arg("serve").arg(RUNS.path("words")).args(["--port", "0"]).args(&more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Its address comes last.
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        child.kill().unwrap();
        let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        assert!(address.starts_with("http://"), "{address}");
        assert_eq!(said.contains("warning: other machines can ask"), warns, "{more:?}: {said}");
    }
}
