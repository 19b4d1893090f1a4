//! What breaks inside, as a client sees it: the real listener and routes in this process, where a test can reach the engine.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use axum::routing;
use burn::tensor::Device;
use serde_json::Value;
use tokio::runtime::Runtime;
use whatwhere_data::Tokenizer;
use whatwhere_training::{Folder, Run, imported::Imported};
use whatwhere_transformer::ModelSettings;

use super::*;

/// A model that reads bytes.
fn run() -> Run {
    let tokenizer = Tokenizer::of_bytes(&[]).unwrap();
    let settings = format!(
        "vocabulary = {}\nwidth = 16\nlayers = 1\nattention = {{ heads = 2 }}",
        tokenizer.vocabulary()
    );
    let settings = ModelSettings::from_toml(&settings).unwrap();
    let model = settings.build(3, &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = Folder::new(folder.path());
    let tokenizer = tokenizer.to_json().unwrap();
    Imported::default().save(&at, settings, &model.parameters(), Some(&tokenizer)).unwrap();
    Run::open(folder.path()).unwrap()
}

/// A server on a port of its own, and what its requests share.
struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Runtime,
}

impl Server {
    fn start(options: &Options) -> Self {
        let options = Options { port: 0, context: Some(1_000_000), ..options.clone() };
        let shared = Shared::new(vec![("bytes".into(), run())], &options).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (ready, address) = mpsc::channel();
        let panics = routing::get(async || -> &'static str { panic!("a defect") });
        let router = routes::all(&shared).route("/panics", panics);
        let router = routes::guarded(router, shared.clone());
        runtime.spawn(async move {
            let say = move |address| ready.send(address).unwrap();
            listen::listen(router, &options, say).await.unwrap();
        });
        Self { shared, address: address.recv().unwrap(), runtime }
    }

    fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = format!("{head}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        read(self.send(&format!("{method} {path} HTTP/1.1\r\nHost: {}", self.address), body))
    }
}

fn read(mut stream: TcpStream) -> (u16, Value) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    let body = text.split_once("\r\n\r\n").unwrap().1;
    (status, serde_json::from_str(body).unwrap_or_default())
}

const ENDLESS: &str = r#"{"prompt": "a", "max_tokens": 900000, "ignore_eos": true}"#;

#[test]
fn an_engine_that_panics_answers_500_and_its_server_is_unhealthy() {
    let server = Server::start(&Options::default());
    assert_eq!(server.ask("GET", "/health", "").0, 200);
    let head = format!("POST /v1/completions HTTP/1.1\r\nHost: {}", server.address);
    let writing = server.send(&head, ENDLESS);
    let served = &server.shared.served[0];
    while served.engine.slots().is_empty() {
        std::thread::yield_now();
    }
    let until = Instant::now() + Duration::from_secs(60);
    let asked = served.ask(until, |_| -> u32 { panic!("a defect") });
    assert!(server.runtime.block_on(asked).is_err());
    // What was under way, what comes after it, and whoever only asks.
    let under_way = read(writing);
    let after = server.ask("POST", "/v1/completions", ENDLESS);
    let question = server.ask("POST", "/v1/embeddings", r#"{"input": "a"}"#);
    for (status, body) in [under_way, after, question] {
        assert_eq!(status, 500, "{body}");
        assert_eq!(body["error"]["type"], "server_error");
        assert!(body["error"]["message"].as_str().unwrap().contains("stopped"), "{body}");
    }
    for path in ["/health", "/v1/health"] {
        let (status, body) = server.ask("GET", path, "");
        assert_eq!((status, &body["error"]["type"]), (503, &"server_error".into()), "{body}");
    }
    assert_eq!(server.ask("GET", "/v1/models", "").0, 200);
}

#[test]
fn a_handler_that_panics_answers_500_and_the_server_goes_on() {
    let server = Server::start(&Options::default());
    for _ in 0..3 {
        let (status, body) = server.ask("GET", "/panics", "");
        assert_eq!(status, 500, "{body}");
        assert_eq!(body["error"]["type"], "server_error");
    }
    assert_eq!(server.ask("GET", "/health", "").0, 200);
}

#[test]
fn a_page_of_another_name_is_not_answered_on_the_loopback_address() {
    let server = Server::start(&Options::default());
    let port = server.address.port();
    for (said, expected) in [
        (format!("Host: localhost:{port}"), 200),
        (format!("Host: 127.0.0.1:{port}"), 200),
        ("Host: [::1]".into(), 200),
        (format!("Host: evil.example:{port}"), 403),
        (format!("Host: evil.example:{port}\r\nOrigin: http://evil.example:{port}"), 403),
        ("Host: 127.0.0.1.evil.example".into(), 403),
    ] {
        let (status, body) = read(server.send(&format!("GET /health HTTP/1.1\r\n{said}"), ""));
        assert_eq!(status, expected, "{said}: {body}");
        assert!(status == 200 || body["error"]["type"] == "permission_error", "{body}");
    }
    // Where others reach it by names of its own, these are as good.
    let host = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let server = Server::start(&Options { host, ..Options::default() });
    assert_eq!(server.ask("GET", "/health", "").0, 200);
    let named = server.send("GET /health HTTP/1.1\r\nHost: machine.example", "");
    assert_eq!(read(named).0, 200);
}

#[test]
fn keys_are_not_printed() {
    let options = Options { keys: vec!["a-secret".into()], ..Options::default() };
    let server = Server::start(&options);
    let printed = format!("{options:?} {:?}", server.shared);
    assert!(printed.contains("keys: 1 hidden"), "{printed}");
    assert!(!printed.contains("a-secret"), "{printed}");
}

/// What is described needs a key where everything does, and no key where nothing does.
#[test]
fn keys_are_described() {
    for (keys, expected) in [(vec![], "[]"), (vec!["k".to_owned()], r#"[{"key":[]}]"#)] {
        let has_keys = !keys.is_empty();
        let server = Server::start(&Options { keys, ..Options::default() });
        let mut head = format!("GET /openapi.json HTTP/1.1\r\nHost: {}", server.address);
        if has_keys {
            head += "\r\nAuthorization: Bearer k";
        }
        let (status, document) = read(server.send(&head, ""));
        assert_eq!(status, 200);
        assert_eq!(document["security"].to_string(), expected);
        assert_eq!(document["paths"]["/health"]["get"]["security"].to_string(), "[]");
        let schema = &document["components"]["schemas"]["CompletionRequest"];
        assert_eq!(schema["properties"]["model"]["enum"].to_string(), r#"["bytes",null]"#);
        assert_eq!(schema["required"].to_string(), r#"["prompt"]"#);
    }
}
