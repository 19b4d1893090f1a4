//! The addresses.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{Method, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

use crate::{Refusal, Shared, page};

/// Everything the server answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/health", get(health))
        .merge(page::routes())
        .fallback(async |uri: Uri| Refusal::not_found(format!("there is no {}", uri.path())))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| {
            Refusal::wrong_method(format!("{} is not asked by {method}", uri.path()))
        })
        .with_state(shared)
}

/// A value as JSON.
pub(crate) fn json_response(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn health(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    match shared.served.iter().find(|served| served.engine.is_dead()) {
        None => Ok(json_response(&json!({ "status": "ok" }))),
        Some(dead) => Err(Refusal::unavailable(format!("the engine of {} has stopped", dead.name))),
    }
}
