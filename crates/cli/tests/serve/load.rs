//! What is served beside a text does not show in its bytes, and who leaves frees what was kept for him.

use std::{
    io::Read,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use crate::client::{Server, read};

const SOON: Duration = Duration::from_secs(10);

/// Requests of all kinds: greedy and sampled, short and long, one text and several, streamed and not, and of prompts that
/// begin alike.
fn requests() -> Vec<Value> {
    let text = "ROMEO: But soft, what light through yonder window breaks? It is the east and Juliet is the sun. "
        .repeat(5);
    (0..200)
        .map(|i: usize| {
            let length = [1, 7, 63, 64, 65, 130, 200, 300, 401][i % 9] + i % 3;
            let first = [0, 0, 0, 7][i % 4];
            let prompt: String = text.chars().skip(first).take(length).collect();
            json!({
                "prompt": prompt,
                "max_tokens": 1 + i * 7 % 40,
                "temperature": ([0.0, 0.7, 1.0][i % 3]),
                "top_p": ([1.0, 0.9][i / 3 % 2]),
                "top_k": ([0, 10][i / 5 % 2]),
                "repetition_penalty": ([1.0, 1.2][i / 7 % 2]),
                "presence_penalty": ([0.0, 0.5][i / 11 % 2]),
                "seed": i / 2,
                "n": ([1, 1, 1, 3][i % 4]),
                "logprobs": if i.is_multiple_of(5) { json!(3) } else { Value::Null },
                "echo": i % 10 == 5,
                "stop": if i.is_multiple_of(6) { json!(["the", "e "]) } else { Value::Null },
                "stream": i % 8 == 1,
            })
        })
        .collect()
}

/// Everything of an answer but its name, its time and what was known before.
fn bytes(server: &Server, request: &Value) -> String {
    let answer = server.post("/v1/completions", request);
    assert_eq!(answer.status, 200, "{request}: {}", answer.text());
    if request["stream"] == true {
        // Several texts come in any order, each in its own.
        let mut events: Vec<Value> =
            answer.events().iter().map(|event| event["choices"].clone()).collect();
        events.sort_by_key(|choices| choices[0]["index"].as_u64());
        return json!(events).to_string();
    }
    let whole = answer.json();
    json!([whole["choices"], whole["usage"]["total_tokens"]]).to_string()
}

fn among_others(server: &Server, requests: &[Value], clients: usize) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let mut answers: Vec<(usize, String)> = std::thread::scope(|scope| {
        let work = || {
            let mut own = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(request) = requests.get(at) else { return own };
                own.push((at, bytes(server, request)));
            }
        };
        let clients: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    answers.sort_unstable();
    answers.into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn the_bytes_of_an_answer_do_not_depend_on_what_else_is_served() {
    let requests = requests();
    for (run, more) in [
        ("words", &["--context", "600"][..]),
        ("alibi", &["--context", "600"]),
        ("words", &["--context", "600", "--weights", "int8", "--slots", "12"]),
    ] {
        let server = Server::start(&[run], more);
        let together = among_others(&server, &requests, 8);
        // A server of its own, which remembers other prompts in another order, one request after the other.
        let fresh = Server::start(&[run], more);
        let alone: Vec<String> =
            requests.iter().rev().map(|request| bytes(&fresh, request)).collect();
        for ((request, together), alone) in requests.iter().zip(together).zip(alone.iter().rev()) {
            assert_eq!(&together, alone, "{run} {more:?}: {request}");
        }
    }
}

#[test]
fn a_prompt_that_begins_like_another_is_read_from_there() {
    let server = Server::start(&["words"], &["--context", "2000"]);
    let text = "All the world is a stage, and all the men and women merely players. ".repeat(20);
    let request = |length: usize| json!({ "prompt": text[..length], "max_tokens": 8, "seed": 1, "logprobs": 2 });
    for (length, cached) in [
        (700, 0),
        (700, 512),
        (640, 512),
        (512, 256),
        (513, 512),
        (300, 256),
        (1200, 512),
        (1200, 1024),
    ] {
        let whole = server.good("/v1/completions", &request(length));
        assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], cached, "{length}");
        let fresh = Server::start(&["words"], &["--context", "2000"]);
        let expected = fresh.good("/v1/completions", &request(length));
        assert_eq!(whole["choices"], expected["choices"], "{length}");
    }
    let other = json!({ "prompt": format!("x{}", &text[..700]), "max_tokens": 1 });
    let whole = server.good("/v1/completions", &other);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

/// A text that takes longer than any test.
fn endless(stream: bool) -> Value {
    json!({ "prompt": "a", "max_tokens": 900_000, "ignore_eos": true, "stream": stream })
}

#[test]
fn whoever_leaves_frees_his_slot() {
    let server = Server::start(&["words"], &["--context", "1000000"]);
    for stream in [false, true] {
        let body = endless(stream).to_string();
        let json = "Content-Type: application/json\r\n";
        let mut clients: Vec<_> =
            (0..3).map(|_| server.send("POST", "/v1/completions", json, body.as_bytes())).collect();
        assert!(server.becomes_busy(3, SOON));
        if stream {
            clients[0].read_exact(&mut [0; 1000]).unwrap();
        }
        drop(clients.pop());
        assert!(server.becomes_busy(2, SOON), "stream = {stream}");
        drop(clients);
        assert!(server.becomes_busy(0, SOON), "stream = {stream}");
    }
    let page = server.get("/metrics").text();
    assert!(page.contains("whatwhere_cancelled_total{model=\"words\"} 6"), "{page}");
}

#[test]
fn who_waits_too_long_in_the_queue_or_finds_it_full_is_told() {
    let server = Server::start(
        &["words"],
        &["--context", "1000000", "--slots", "1", "--queue", "2", "--deadline", "5"],
    );
    let body = endless(false).to_string();
    let send = || server.send("POST", "/v1/completions", "", body.as_bytes());
    let first = send();
    assert!(server.becomes_busy(1, SOON));
    let waiting = [send(), send()];
    assert!(server.becomes_waiting(2, SOON), "the queue fills");
    let full = server.post("/v1/completions", &json!({ "prompt": "b", "max_tokens": 1 }));
    assert_eq!(full.status, 429, "{}", full.text());
    assert!(full.head.to_lowercase().contains("retry-after: "), "{}", full.head);
    assert_eq!(full.json()["error"]["code"], "queue_full");
    for late in [first].into_iter().chain(waiting) {
        let late = read(late);
        assert_eq!(late.status, 504, "{}", late.text());
        assert_eq!(late.json()["error"]["type"], "timeout_error");
    }
    assert!(server.becomes_busy(0, SOON));
}

#[test]
fn a_client_that_never_reads_holds_up_nobody() {
    let server = Server::start(&["words"], &["--context", "1000000", "--slots", "2"]);
    let body = endless(true).to_string();
    let deaf = server.send("POST", "/v1/completions", "", body.as_bytes());
    assert!(server.becomes_busy(1, SOON));
    for _ in 0..20 {
        server.good("/v1/completions", &json!({ "prompt": "a", "max_tokens": 20 }));
    }
    drop(deaf);
    assert!(server.becomes_busy(0, SOON));
}

#[test]
fn a_server_that_is_told_to_stop_finishes_what_is_under_way() {
    let mut server = Server::start(&["words"], &["--context", "1000000", "--grace", "20"]);
    let request = json!({ "prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true });
    let stream = server.send("POST", "/v1/completions", "", request.to_string().as_bytes());
    assert!(server.becomes_busy(1, SOON));
    server.signal("-TERM");
    let answer = read(stream);
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    // What does not end in time is ended.
    let mut server = Server::start(&["words"], &["--context", "1000000", "--grace", "1"]);
    let _stream = server.send("POST", "/v1/completions", "", endless(false).to_string().as_bytes());
    assert!(server.becomes_busy(1, SOON));
    let begun = std::time::Instant::now();
    server.signal("-INT");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < SOON);
}
