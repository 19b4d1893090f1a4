//! `/v1/models`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde_json::{Value, json};

use crate::{Refusal, Served, Shared, address::Words, routes::json_response};

pub(crate) async fn all(State(shared): State<Arc<Shared>>) -> Response {
    let data: Vec<Value> = shared.served.iter().map(|served| told(&shared, served)).collect();
    json_response(&json!({ "object": "list", "data": data }))
}

pub(crate) async fn one(
    State(shared): State<Arc<Shared>>,
    Words(name): Words<String>,
) -> Result<Response, Refusal> {
    Ok(json_response(&told(&shared, shared.find(Some(&name))?)))
}

fn told(shared: &Shared, served: &Served) -> Value {
    let settings = &served.run.settings.model;
    json!({
        "id": served.name,
        "object": "model",
        "created": shared.started,
        "owned_by": "whatwhere",
        "family": settings.family,
        "max_model_len": served.context,
        "vocabulary": settings.vocabulary,
        "weights": if served.run.model().is_int8() { "int8" } else { "f32" },
    })
}
