//! The page's own addresses: `/`, `/page/*`, `/v1/attention/*`, `/v1/choices/*` and `/v1/runs/*`.
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
};

use axum::{
    Router,
    extract::{FromRequestParts, Path, Query, State},
    http::{header, request::Parts},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::oneshot;
use whatwhere_lab::view::{self, Answer, MOST_BYTES, Opening, Parameters, View, folder::Folders};
use whatwhere_training::Run;

use crate::{Refusal, Shared, body::Json, routes::json_response};

/// Questions that may wait.
const WAITING: usize = 256;

/// Texts that are kept open.
const KEPT: usize = 4;

/// Parameters of a question.
const PARAMETERS: usize = 64;

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

    /// Asks, and waits for the answer; nobody is asked for those who have left.
    async fn ask<T: Send + 'static>(
        &self,
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
        answered.await.unwrap_or_else(|_| Err(broken()))
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

/// What the page asks for; opened runs are in [`Shared::served`].
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(async || file("text/html; charset=utf-8", view::page())))
        .route("/page/page.js", get(async || file("text/javascript; charset=utf-8", view::SCRIPT)))
        .route("/page/page.css", get(async || file("text/css; charset=utf-8", view::STYLE)))
        .route("/v1/attention", get(runs).post(open))
        .route("/v1/attention/{reading}/{what}", get(ask))
        .route("/v1/choices/{what}", get(choices))
        .route("/v1/runs/{what}", get(folder))
}

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

/// What stands behind `?`.
struct Pairs(Parameters);

impl<S: Send + Sync> FromRequestParts<S> for Pairs {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let pairs = Query::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Query(pairs) = pairs.map_err(|error| Refusal::bad(error.body_text()))?;
        match pairs.len() {
            ..=PARAMETERS => Ok(Self(Parameters::new(pairs))),
            found => Err(Refusal::bad(format!(
                "found {found} parameters, expected at most {PARAMETERS}"
            ))),
        }
    }
}

/// The parts of an address that have names.
struct Words<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Words<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        found.map(|Path(found)| Self(found)).map_err(|error| Refusal::bad(error.body_text()))
    }
}

async fn runs(State(shared): State<Arc<Shared>>) -> Response {
    let runs: Vec<&str> = shared.served.iter().map(|run| run.name.as_str()).collect();
    json_response(&json!({ "runs": runs }))
}

/// Which run is to read what.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    run: Option<String>,
    text: String,
    target: Option<String>,
    #[serde(default)]
    changes: Vec<String>,
    #[serde(default)]
    first: usize,
}

async fn open(
    State(shared): State<Arc<Shared>>,
    Json(asked): Json<Asked>,
) -> Result<Response, Refusal> {
    let Asked { run, text, target, changes, first } = asked;
    if changes.len() > PARAMETERS {
        let found = changes.len();
        let message = format!("found {found} changes, expected at most {PARAMETERS}");
        return Err(Refusal::invalid("changes", message));
    }
    let served = shared.find(run.as_deref())?;
    let (name, run) = (served.name.clone(), served.run.clone());
    let opening = Opening { text, target, changes, first };
    let id = shared.page.ask(move |open| open.open(&name, &run, &opening)).await?;
    Ok(json_response(&json!({ "reading": id })))
}

async fn ask(
    State(shared): State<Arc<Shared>>,
    Words((reading, what)): Words<(String, String)>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let answer = shared.page.ask(move |open| match open.find(&reading) {
        Some(view) => view.answer(&what, &parameters).map_err(refused),
        None => Err(Refusal::not_found(format!("no text is open as {reading}; open it again"))),
    });
    answer.await.map(answered)
}

async fn choices(
    State(shared): State<Arc<Shared>>,
    Words(what): Words<String>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let answer =
        shared.page.ask(move |_| view::choices::answer(&what, &parameters).map_err(refused));
    answer.await.map(answered)
}

async fn folder(
    State(shared): State<Arc<Shared>>,
    Words(what): Words<String>,
    Pairs(parameters): Pairs,
) -> Result<Response, Refusal> {
    let answer =
        shared.page.ask(move |open| open.folders.answer(&what, &parameters).map_err(refused));
    answer.await.map(answered)
}
