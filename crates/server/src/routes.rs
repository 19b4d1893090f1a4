//! The addresses, each with its part of `/openapi.json`: what is answered is what is described.

use std::sync::Arc;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{Method, Uri, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing,
};
use serde_json::Value;

use crate::{
    Refusal, Shared, body,
    described::Described,
    guard,
    llama::{self, completion, embedding},
    openai::{chat, completions, embeddings, models},
    ours, page,
};

/// Everything the server answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    guarded(all(&shared), shared)
}

/// All addresses, and the description of those that are no files.
pub(crate) fn all(shared: &Shared) -> Router<Arc<Shared>> {
    let (router, document) = Described::new()
        .get("/health", llama::health, "Whether the server lives.")
        .get("/v1/health", llama::health, "The same.")
        .get("/v1/models", models::all, "The runs that are served.")
        .get("/models", models::all, "The same.")
        .get("/v1/models/{model}", models::one, "One of them.")
        .post("/v1/completions", completions::complete, "Text after a prompt.")
        .post("/v1/chat/completions", chat::complete, "What follows the messages of a chat.")
        .post("/chat/completions", chat::complete, "The same.")
        .post("/v1/embeddings", embeddings::embed, "A vector for each text.")
        .post("/v1/score", ours::score, "The log-probability of every token of a text.")
        .post("/v1/translate", ours::translate, "Texts in another language.")
        .post("/v1/fill", ours::fill, "Words for the blanks of a text.")
        .post("/v1/classify", ours::classify, "The classes of texts.")
        .post("/completion", completion::complete, "Text after a prompt, in llama.cpp's words.")
        .post("/completions", completion::complete, "The same.")
        .post("/embedding", embedding::embed, "Vectors of texts, in llama.cpp's words.")
        .post("/embeddings", embedding::embed, "The same.")
        .post("/apply-template", llama::apply_template, "The text of a chat.")
        .post("/tokenize", llama::tokenize, "The tokens of a text.")
        .post("/detokenize", llama::detokenize, "The text of tokens.")
        .get("/tokenizer_info", llama::tokenizer_info, "Special tokens of a run.")
        .get("/props", llama::props, "How runs are served.")
        .get("/slots", llama::slots, "What is being written.")
        .get("/metrics", llama::metrics, "Counters and histograms in Prometheus' format.")
        .get("/v1/attention", page::runs, "The runs that read texts for the page.")
        .post("/v1/attention", page::open, "Opens a text, to look at what a run makes of it.")
        .words("/v1/attention/{reading}/{what}", page::ask, &page::ATTENTION)
        .words("/v1/choices/{what}", page::choices, &page::CHOICES)
        .words("/v1/runs/{what}", page::folder, &page::RUNS)
        .end(shared);
    let described = json_text(document.to_string());
    let described = routing::get(async move || described.clone());
    router.route("/openapi.json", described).merge(page::files())
}

/// What every address has: who may ask, how large a body may be, and an answer where there is nothing or something broke.
pub(crate) fn guarded(router: Router<Arc<Shared>>, shared: Arc<Shared>) -> Router {
    router
        .fallback(async |uri: Uri| Refusal::not_found(format!("there is no {}", uri.path())))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Refusal::wrong_method(format!("{} is not asked by {method}", uri.path()))
        })
        .layer(from_fn_with_state(shared.clone(), guard::guard))
        .layer(DefaultBodyLimit::max(body::LIMIT))
        .with_state(shared)
}

/// A value as JSON.
pub(crate) fn json_response(value: &Value) -> Response {
    json_text(value.to_string()).into_response()
}

fn json_text(text: String) -> ([(header::HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/json")], text)
}
