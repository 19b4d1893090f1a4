//! Nobody waits longer than a request may take, whatever is asked.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Server, read};

/// Work that would take much longer than any deadline here, in texts of a moment each.
fn many_long_texts() -> Value {
    json!({ "input": vec!["a".repeat(12_000); 256] })
}

#[test]
fn questions_take_no_longer_than_they_may() {
    let server = Server::start(&["words"], &["--context", "20000", "--deadline", "1"]);
    let begun = Instant::now();
    let body = many_long_texts().to_string();
    let streams = ["/v1/embeddings", "/embeddings"]
        .map(|path| server.send("POST", path, "", body.as_bytes()));
    for answer in streams.map(read) {
        assert_eq!(answer.status, 504, "{}", answer.text().chars().take(200).collect::<String>());
        assert_eq!(answer.json()["error"]["type"], "timeout_error");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    // What was given up is not computed.
    server.good("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 }));
    let page = server.get("/metrics").text();
    assert!(page.contains("whatwhere_waiting{model=\"words\"} 0"), "{page}");
}

#[test]
fn a_text_that_ends_at_a_string_is_not_one_whose_client_left() {
    let server = Server::start(&["words"], &["--context", "1000000"]);
    let request = |stream: bool| json!({ "prompt": "a", "max_tokens": 900_000, "ignore_eos": true, "stop": ["e"], "seed": 1, "stream": stream });
    for stream in [false, true] {
        assert_eq!(server.post("/v1/completions", &request(stream)).status, 200);
        assert!(server.becomes_busy(0, Duration::from_secs(10)));
    }
    let page = server.get("/metrics").text();
    assert!(page.contains("whatwhere_cancelled_total{model=\"words\"} 0"), "{page}");
}

/// A question cannot be broken off; the server does not wait for it either.
#[test]
fn a_server_that_is_told_to_stop_does_not_wait_for_a_question() {
    let mut server = Server::start(&["words"], &["--context", "1000000", "--grace", "1"]);
    let body = json!({ "input": "a".repeat(250_000) }).to_string();
    // The second one waits once the first is under way.
    let _asking = [(); 2].map(|()| server.send("POST", "/v1/embeddings", "", body.as_bytes()));
    std::thread::sleep(Duration::from_millis(500));
    let end = Instant::now() + Duration::from_secs(30);
    while !server.get("/metrics").text().contains("whatwhere_waiting{model=\"words\"} 1") {
        assert!(Instant::now() < end);
    }
    let begun = Instant::now();
    server.signal("-TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
