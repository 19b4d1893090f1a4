//! The page's own addresses: `/`, `/page/*`, which `files` has, and `/v1/attention/*`, `/v1/choices/*` and `/v1/runs/*`.
//!
//! Texts are read and looked into on one thread, which keeps the last few of them; questions wait in a bounded queue.
//! What is answered is the lab's ([`whatwhere_lab::view`]).

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Instant,
};

use axum::{
    Router,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::{sync::oneshot, time::timeout_at};
use whatwhere_lab::view::{self, Answer, MOST_BYTES, Opening, View, folder::Folders};
use whatwhere_training::Run;

use crate::{
    Refusal, Shared,
    address::{Pairs, Words},
    body::Json,
    described::Word,
    routes::json_response,
};

/// Questions that may wait.
const WAITING: usize = 256;

/// Texts that are kept open.
const KEPT: usize = 4;

/// Changed settings of a run at the most.
const CHANGES: usize = 64;

/// The thread that answers.
#[derive(Debug)]
pub(crate) struct Page {
    questions: SyncSender<Question>,
}

/// What is asked of the thread; dropped with whoever asked.
type Question = Box<dyn FnOnce(&mut Open) + Send>;

/// What the thread has.
struct Open {
    /// The last used comes last.
    views: Vec<(String, View)>,
    folders: Folders,
}

impl Page {
    pub(crate) fn start(folders: &[PathBuf]) -> io::Result<Self> {
        let (questions, asked): (SyncSender<Question>, Receiver<Question>) = sync_channel(WAITING);
        let folders = Folders { roots: folders.to_vec() };
        thread::Builder::new().name("page".into()).spawn(move || {
            let mut open = Open { views: Vec::new(), folders };
            while let Ok(question) = asked.recv() {
                // A question that breaks off must not end the thread for all others.
                let answered = std::panic::AssertUnwindSafe(|| question(&mut open));
                if std::panic::catch_unwind(answered).is_err() {
                    open.views.clear();
                }
            }
        })?;
        Ok(Self { questions })
    }

    /// Asks, and waits for the answer up to a deadline; nothing is asked for those who have left or waited too long.
    async fn ask<T: Send + 'static>(
        &self,
        deadline: Instant,
        question: impl FnOnce(&mut Open) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |open| {
            if !answer.is_closed() {
                let _ = answer.send(question(open));
            }
        });
        self.questions.try_send(question).map_err(|error| match error {
            TrySendError::Full(_) => {
                Refusal::busy(format!("{WAITING} questions of pages wait already"))
            }
            TrySendError::Disconnected(_) => Refusal::unavailable("the server stops"),
        })?;
        let broken = || Refusal::internal("the question could not be answered");
        match timeout_at(deadline.into(), answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| Err(broken())),
            Err(_) => Err(Refusal::late()),
        }
    }
}

impl Open {
    /// Opens a text, or finds it open.
    fn open(&mut self, name: &str, run: &Arc<Run>, opening: &Opening) -> Result<String, Refusal> {
        let mut hasher = DefaultHasher::new();
        (name, opening).hash(&mut hasher);
        let id = format!("{:016x}", hasher.finish());
        if self.find(&id).is_none() {
            // Makes room first, so that there is never one more.
            self.views.drain(..self.views.len().saturating_sub(KEPT - 1));
            let view = View::open(run, opening).map_err(refused)?;
            self.views.push((id.clone(), view));
            // Long texts are kept for as long as one of the longest would fill, the last one always.
            let bytes =
                |views: &[(String, View)]| views.iter().map(|(_, v)| v.bytes()).sum::<usize>();
            while self.views.len() > 1 && bytes(&self.views) > MOST_BYTES {
                self.views.remove(0);
            }
        }
        Ok(id)
    }

    fn find(&mut self, id: &str) -> Option<&View> {
        let at = self.views.iter().position(|(found, _)| found == id)?;
        let found = self.views.remove(at);
        self.views.push(found);
        self.views.last().map(|(_, view)| view)
    }
}

/// What a browser shows; what it asks then is described like everything else.
pub(crate) fn files() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", view::page())))
        .route("/page/page.js", get(async || file("text/javascript; charset=utf-8", view::SCRIPT)))
        .route("/page/page.css", get(async || file("text/css; charset=utf-8", view::STYLE)))
}

/// What can be asked of an open text.
pub(crate) const ATTENTION: [Word; 9] = [
    Word { name: "about", says: "What was read.", needs: &[], may: &[] },
    Word { name: "text", says: "Its tokens.", needs: &[], may: &[] },
    Word {
        name: "surprise",
        says: "The surprise of tokens in nats.",
        needs: &[("from", "0"), ("to", "1")],
        may: &[],
    },
    Word {
        name: "next",
        says: "What the model says of a position.",
        needs: &[("at", "1")],
        may: &["count"],
    },
    Word {
        name: "layer",
        says: "Every head of a layer, in few cells.",
        needs: &[("site", "decoder"), ("layer", "0")],
        may: &["cells"],
    },
    Word {
        name: "tile",
        says: "A square of a head's map.",
        needs: &[
            ("site", "decoder"),
            ("layer", "0"),
            ("head", "0"),
            ("zoom", "0"),
            ("row", "0"),
            ("column", "0"),
        ],
        may: &[],
    },
    Word {
        name: "rows",
        says: "What queries look at, or who looks at keys.",
        needs: &[("site", "decoder"), ("layer", "0"), ("head", "all"), ("at", "1")],
        may: &["of"],
    },
    Word {
        name: "split",
        says: "The terms of a query's scores.",
        needs: &[("site", "decoder"), ("layer", "0"), ("head", "0"), ("at", "1")],
        may: &[],
    },
    Word {
        name: "heads",
        says: "How much each kind of term matters to each head.",
        needs: &[("site", "decoder"), ("layer", "0")],
        may: &[],
    },
];

/// What can be asked about encodings and patterns.
pub(crate) const CHOICES: [Word; 3] = [
    Word { name: "choices", says: "What there is and can be set.", needs: &[], may: &[] },
    Word {
        name: "position",
        says: "Scores of an encoding against distance.",
        needs: &[("name", "rotary")],
        may: &["set", "length"],
    },
    Word {
        name: "pattern",
        says: "Who sees whom.",
        needs: &[("name", "window")],
        may: &["set", "length"],
    },
];

/// What can be asked about runs and comparisons on disk.
pub(crate) const RUNS: [Word; 3] = [
    Word { name: "list", says: "The runs and comparisons there are.", needs: &[], may: &[] },
    Word {
        name: "curve",
        says: "The losses of a run.",
        needs: &[("name", "runs/one")],
        may: &["from"],
    },
    Word {
        name: "comparison",
        says: "The results of a comparison.",
        needs: &[("name", "comparisons/one")],
        may: &[],
    },
];

fn file(kind: &'static str, content: impl IntoResponse) -> Response {
    // The page runs its own script and talks to its own server, whatever a text may hold.
    let policy = "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'";
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, content).into_response()
}

fn answered(answer: Answer) -> Response {
    let headers =
        [(header::CONTENT_TYPE, answer.content_type), (header::CACHE_CONTROL, "no-store")];
    (headers, answer.bytes).into_response()
}

fn refused(error: whatwhere_lab::Error) -> Refusal {
    Refusal::bad(error.to_string())
}

pub(crate) async fn runs(State(shared): State<Arc<Shared>>) -> Response {
    let runs: Vec<&str> = shared.served.iter().map(|run| run.name.as_str()).collect();
    json_response(&json!({ "runs": runs }))
}

/// Which run is to read what.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenRequest {
    /// The name of a run; may be left out where only one is served.
    run: Option<String>,
    /// The text; the source, for an encoder-decoder.
    text: String,
    /// What is written to a source; the run's own translation by default.
    target: Option<String>,
    /// Settings to read under that leave the weights as they are.
    #[serde(default)]
    changes: Vec<String>,
    /// Position of the first token.
    #[serde(default)]
    first: usize,
}

pub(crate) async fn open(
    State(shared): State<Arc<Shared>>,
    Json(asked): Json<OpenRequest>,
) -> Result<Response, Refusal> {
    let deadline = shared.deadline();
    let OpenRequest { run, text, target, changes, first } = asked;
    if changes.len() > CHANGES {
        let found = changes.len();
        let message = format!("found {found} changes, expected at most {CHANGES}");
        return Err(Refusal::invalid("changes", message));
    }
    let served = shared.find(run.as_deref())?;
    let (name, run) = (served.name.clone(), served.run.clone());
    let opening = Opening { text, target, changes, first };
    let id = shared.page.ask(deadline, move |open| open.open(&name, &run, &opening)).await?;
    Ok(json_response(&json!({ "reading": id })))
}

pub(crate) async fn ask(
    State(shared): State<Arc<Shared>>,
    Words((reading, what)): Words<(String, String)>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let answer = shared.page.ask(shared.deadline(), move |open| match open.find(&reading) {
        Some(view) => view.answer(&what, &parameters).map_err(refused),
        None => Err(Refusal::not_found(format!("no text is open as {reading}; open it again"))),
    });
    answer.await.map(answered)
}

pub(crate) async fn choices(
    State(shared): State<Arc<Shared>>,
    Words(what): Words<String>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let ask = move |_: &mut Open| view::choices::answer(&what, &parameters).map_err(refused);
    let answer = shared.page.ask(shared.deadline(), ask);
    answer.await.map(answered)
}

pub(crate) async fn folder(
    State(shared): State<Arc<Shared>>,
    Words(what): Words<String>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let ask = move |open: &mut Open| open.folders.answer(&what, &parameters).map_err(refused);
    let answer = shared.page.ask(shared.deadline(), ask);
    answer.await.map(answered)
}
