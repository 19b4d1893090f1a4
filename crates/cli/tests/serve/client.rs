//! A server of the real program, and a client that speaks HTTP by hand.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Runs of all families, trained for a moment.
pub(crate) struct Runs(TempDir);

impl Runs {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A chat template that says who said what, and refuses what it does not know.
pub(crate) const TEMPLATE: &str = "{% for message in messages %}{% if message.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ message['role'].upper() }}: {{ message['content'].strip() }}\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}";

pub(crate) static RUNS: LazyLock<Runs> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let small = [
        "width=32",
        "layers=2",
        "heads=2",
        "steps=40",
        "length=64",
        "batch=4",
        "evaluate_every=40",
        "evaluate_batches=1",
    ];
    let train = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
        command.arg("train").args(more).current_dir(at);
        small.iter().for_each(|set| {
            command.args(["--set", set]);
        });
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    train(&["--out", "words", "--set", "data.tokenizer=characters"]);
    train(&["--out", "alibi", "--set", "position=alibi"]);
    train(&["--out", "prefix", "--set", "data.objective=prefix"]);
    train(&["--preset", "masked", "--out", "blanks", "--set", "data.tokenizer=characters"]);
    let lines = |word: &str| {
        (0..60).map(|i| format!("{word} {}\n", "a b ".repeat(1 + i % 4))).collect::<String>()
    };
    fs::create_dir(at.join("pairs")).unwrap();
    for (name, language) in [("train", "en"), ("train", "de"), ("valid", "en"), ("valid", "de")] {
        fs::write(at.join(format!("pairs/{name}.{language}")), lines(language)).unwrap();
    }
    train(&[
        "--preset",
        "translation",
        "--data",
        "pairs",
        "--out",
        "pair",
        "--set",
        "data.tokenizer=characters",
    ]);
    let review =
        |i: usize| format!("{} film {i}\t{}\n", ["good", "bad"][i % 2], ["pos", "neg"][i % 2]);
    let reviews = (0..80).map(review).collect::<String>();
    fs::write(at.join("films.tsv"), reviews).unwrap();
    train(&[
        "--preset",
        "classify",
        "--data",
        "films.tsv",
        "--set",
        "data.source.field=1",
        "--set",
        "data.source.label_field=2",
        "--out",
        "classes",
        "--set",
        "data.tokenizer=characters",
    ]);
    // What an imported model has beside a trained one.
    let copy = at.join("chat");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(at.join("words")).unwrap().map(Result::unwrap) {
        if file.path().is_file() {
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let import = json!({ "family": "llama", "chat_template": TEMPLATE });
    fs::write(copy.join("import.json"), import.to_string()).unwrap();
    Runs(folder)
});

/// A server that ends with its owner.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Server {
    /// Serves runs of [`RUNS`] with more arguments.
    pub(crate) fn start(runs: &[&str], more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_whatwhere"));
        command.arg("serve").args(runs.iter().map(|run| RUNS.path(run))).args(["--port", "0"]);
        let child = command.args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").expect("says where it listens").into();
        Self { child, address }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends a request whose answer ends the connection.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let host = &self.address;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let _ = stream.write_all(body);
        stream
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        read(self.send(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, "Content-Type: application/json\r\n", body.to_string().as_bytes())
    }

    /// What a good request is answered.
    pub(crate) fn good(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body);
        assert_eq!(answer.status, 200, "{path} {body}: {}", answer.text());
        answer.json()
    }

    /// Texts that are being written.
    pub(crate) fn busy(&self) -> usize {
        let slots = self.get("/slots").json();
        slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count()
    }

    /// Texts that wait for a slot.
    fn waiting(&self) -> usize {
        let page = self.get("/metrics").text();
        let waiting = page.lines().filter(|line| line.starts_with("whatwhere_waiting{"));
        waiting.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    /// Whether so many texts are being written within some time.
    pub(crate) fn becomes_busy(&self, count: usize, within: Duration) -> bool {
        becomes(within, || self.busy() == count)
    }

    /// Whether so many texts wait within some time.
    pub(crate) fn becomes_waiting(&self, count: usize, within: Duration) -> bool {
        becomes(within, || self.waiting() == count)
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }
}

/// Whether something becomes true within some time.
fn becomes(within: Duration, is: impl Fn() -> bool) -> bool {
    let end = std::time::Instant::now() + within;
    loop {
        if is() {
            return true;
        }
        if std::time::Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The events of a stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.text();
        let said = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        said.filter(|event| *event != "[DONE]").map(|e| serde_json::from_str(e).unwrap()).collect()
    }
}

/// Reads an answer up to the end of the connection.
pub(crate) fn read(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = all[end + 4..].to_vec();
    let is_chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    Answer { status, head, body: if is_chunked { joined(&body) } else { body } }
}

/// A body that came in chunks.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            break;
        }
        all.extend(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    all
}
