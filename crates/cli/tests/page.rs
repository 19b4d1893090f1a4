//! The page's addresses of `whatwhere serve`: the lab's own answers over HTTP, and refusals in the server's one shape.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use whatwhere_lab::view::{self, CELLS, Opening, Parameters, View};
use whatwhere_training::Run;

use common::command;

fn trained() -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = "what a token looks at, and where it stands\n".repeat(20);
    fs::write(folder.path().join("text.txt"), text).unwrap();
    let settings = [
        "model.width=16",
        "model.layers=2",
        "model.attention.heads=2",
        "training.steps=3",
        "training.length=24",
        "training.evaluate_batches=1",
        "model.attention.position=rotary",
    ];
    let mut args = vec!["train", "--preset", "tiny", "--data", "text.txt", "--out", "runs/one"];
    args.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    assert!(command(folder.path(), &args).stderr(Stdio::null()).status().unwrap().success());
    folder
}

/// A server on a port of its own, ended with the test.
struct Server {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start() -> Self {
        let folder = trained();
        let args = ["serve", "runs/one", "--port", "0", "--runs", "runs"];
        let mut child = command(folder.path(), &args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().to_owned();
        Self { child, address, folder }
    }

    /// The status, the headers and the body of an answer.
    fn send(&self, method: &str, path: &str, body: &str) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
            self.address
        )
        .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(!head.contains("transfer-encoding: chunked"), "answers have a length");
        (status, head, bytes[end + 4..].to_vec())
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let (status, _, body) = self.send("GET", path, "");
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        body
    }

    fn open(&self, asked: &Value) -> String {
        let (status, _, body) = self.send("POST", "/v1/attention", &asked.to_string());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let body: Value = serde_json::from_slice(&body).unwrap();
        body["reading"].as_str().unwrap().to_owned()
    }

    /// The status and the message of a refusal, which has the one shape of errors.
    fn refused(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let (status, _, body) = self.send(method, path, body);
        let found: Value = serde_json::from_slice(&body)
            .unwrap_or_else(|_| panic!("{path}: {}", String::from_utf8_lossy(&body)));
        let error = &found["error"];
        assert!(error["type"].is_string() && error.get("code").is_some(), "{path}: {found}");
        (status, error["message"].as_str().unwrap().to_owned())
    }
}

#[test]
fn answers_are_the_labs_own_and_refusals_have_one_shape() {
    let server = Server::start();
    for (path, kind, content) in [
        ("/", "text/html", view::page()),
        ("/page/page.js", "text/javascript", view::SCRIPT.to_owned()),
        ("/page/page.css", "text/css", view::STYLE.to_owned()),
    ] {
        let (status, head, body) = server.send("GET", path, "");
        assert_eq!((status, body), (200, content.into_bytes()), "{path}");
        assert!(head.contains(kind) && head.contains("default-src 'self'"), "{path}: {head}");
    }

    let run = Arc::new(Run::open(server.folder.path().join("runs/one")).unwrap());
    for (first, changes) in [(0, vec![]), (1000, vec!["model.attention.position.base=500"])] {
        let asked =
            json!({ "run": "one", "text": "what and where", "first": first, "changes": changes });
        let reading = server.open(&asked);
        assert_eq!(server.open(&asked), reading, "it is open already");
        let changes = changes.into_iter().map(Into::into).collect();
        let opening = Opening { text: "what and where".into(), target: None, changes, first };
        let own = View::open(&run, &opening).unwrap();
        let place = [("site", "decoder"), ("layer", "1"), ("head", "1"), ("at", "7")];
        let questions: [(&str, &[(&str, &str)]); 5] = [
            ("about", &[]),
            ("text", &[]),
            ("layer", &place[..2]),
            ("rows", &place),
            ("split", &place),
        ];
        for (what, pairs) in questions {
            let query: Vec<String> = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect();
            let found = server.get(&format!("/v1/attention/{reading}/{what}?{}", query.join("&")));
            let expected = own.answer(what, &Parameters::new(pairs.iter().copied())).unwrap();
            assert!(found == expected.bytes, "{what}");
        }
    }
    let found = server.get("/v1/choices/position?name=rotary&set=base%3D500&length=16");
    let pairs = [("name", "rotary"), ("set", "base=500"), ("length", "16")];
    let expected = view::choices::answer("position", &Parameters::new(pairs)).unwrap();
    assert!(found == expected.bytes);

    let listed: Value = serde_json::from_slice(&server.get("/v1/runs/list")).unwrap();
    assert_eq!(listed["runs"][0]["name"], "runs/one");
    let curve = server.get("/v1/runs/curve?name=runs%2Fone");
    let curve: Value = serde_json::from_slice(&curve).unwrap();
    assert!(!curve["points"].as_array().unwrap().is_empty());

    // Others push a text out; it is named as gone, and can be opened again.
    let first = server.open(&json!({ "text": "what" }));
    for text in ["a", "and", "at", "it"] {
        server.open(&json!({ "run": "one", "text": text }));
    }
    let (status, message) = server.refused("GET", &format!("/v1/attention/{first}/about"), "");
    assert!(status == 404 && message.contains("open it again"), "{status} {message}");
    let first = server.open(&json!({ "text": "what" }));

    let long = json!({ "text": "a".repeat(70_000) }).to_string();
    let many = "x=1&".repeat(100);
    let cases: [(&str, String, &str, u16, &str); 12] = [
        ("POST", "/v1/attention".into(), "{", 400, "no JSON"),
        ("POST", "/v1/attention".into(), "{\"text\": 3}", 400, "text: invalid type"),
        ("POST", "/v1/attention".into(), "{}", 400, "text is missing"),
        ("POST", "/v1/attention".into(), "{\"text\": \"a\", \"x\": 1}", 400, "unknown field `x`"),
        ("POST", "/v1/attention".into(), "{\"text\": \"a\", \"run\": \"two\"}", 404, "two"),
        ("POST", "/v1/attention".into(), "{\"text\": \"\"}", 400, "no tokens"),
        ("POST", "/v1/attention".into(), &long, 400, "expected at most 65536"),
        ("GET", format!("/v1/attention/{first}/tile?site=decoder"), "", 400, "layer is missing"),
        ("GET", format!("/v1/attention/{first}/tiles"), "", 400, "nothing is called tiles"),
        ("GET", format!("/v1/attention/{first}/about?{many}"), "", 400, "at most 64"),
        ("GET", "/v1/choices/position?name=%ff%fe".into(), "", 400, ""),
        ("GET", "/v1/runs/curve?name=..%2F..%2Fetc".into(), "", 400, "nothing is called"),
    ];
    for (method, path, body, status, expected) in cases {
        let (found, message) = server.refused(method, &path, body);
        assert!(found == status && message.contains(expected), "{path}: {found} {message}");
    }
    server.get("/v1/choices/choices");
}

/// Bytes of memory that a process has now, as Linux says it.
#[cfg(target_os = "linux")]
fn resident(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// A text of so many tokens for a model of bytes.
#[cfg(target_os = "linux")]
fn long(tokens: usize) -> String {
    "what a token looks at, and where it stands\n".chars().cycle().take(tokens).collect()
}

/// Times are printed and not held to, since other work may share the machine; memory is held to.
#[test]
#[cfg(target_os = "linux")]
fn long_texts_open_at_once_and_scroll_in_flat_memory() {
    let server = Server::start();
    let memory = || resident(server.child.id());
    let idle = memory();
    for tokens in [8_000, 32_000] {
        let start = Instant::now();
        let reading = server.open(&json!({ "text": long(tokens) }));
        let ask = |what: &str| server.get(&format!("/v1/attention/{reading}/{what}"));
        let read = start.elapsed();
        let picture = ask("layer?site=decoder&layer=0&cells=48");
        println!("{tokens} tokens: read in {read:?}, first picture after {:?}", start.elapsed());
        assert!(picture.len() < 48 * 48 * 2 * 2 + 4096, "{}", picture.len());
        let text: Value = serde_json::from_slice(&ask("text")).unwrap();
        assert_eq!(text["tokens"].as_array().unwrap().len(), tokens);

        // The whole map, then down the diagonal, token by token.
        let tile = |zoom: usize, row: usize, column: usize| {
            let place =
                format!("site=decoder&layer=0&head=1&zoom={zoom}&row={row}&column={column}");
            let tile = ask(&format!("tile?{place}"));
            assert!(tile.len() <= CELLS * CELLS * 2 + 1024, "{place}: {} bytes", tile.len());
        };
        let levels = (0..).take_while(|zoom| CELLS << zoom < tokens).count();
        let squares = tokens.div_ceil(CELLS);
        (0..=levels).rev().for_each(|zoom| tile(zoom, 0, 0));
        let scroll = |from: usize, to: usize| {
            let start = Instant::now();
            for at in from..to {
                tile(0, at, at);
                tile(0, at, at / 2);
            }
            start.elapsed() / (2 * (to - from) as u32)
        };
        scroll(0, squares / 5);
        let before = memory();
        let each = scroll(squares / 5, squares);
        for at in (0..tokens).step_by(tokens / 20) {
            ask(&format!("rows?site=decoder&layer=1&head=all&at={at}"));
            ask(&format!("split?site=decoder&layer=1&head=0&at={at}"));
        }
        let after = memory();
        println!("{tokens} tokens: a tile in {each:?}, {} MiB over idle", (after - idle) >> 20);
        // All pairs of 32 000 tokens are 4 GB for each head.
        assert!(after < before + (64 << 20), "{tokens}: from {before} to {after} bytes");
        assert!(after < idle + (512 << 20), "{tokens}: from {idle} to {after} bytes");
    }
}
