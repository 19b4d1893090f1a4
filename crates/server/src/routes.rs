//! The addresses, each with its part of `/openapi.json`: what is answered is what is described.

use std::{future::Future, sync::Arc};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    handler::Handler,
    http::{Method, Uri, header},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing,
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{
    Refusal, Shared, body, guard, llama,
    openai::{chat, completions, embeddings, models},
    ours, page,
};

/// Everything the server answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let (router, document) = Described::new()
        .get("/health", llama::health, "Whether the server lives.")
        .get("/v1/models", models::all, "The runs that are served.")
        .get("/models", models::all, "The same.")
        .get("/v1/models/{model}", models::one, "One of them.")
        .post("/v1/completions", completions::complete, "Text after a prompt.")
        .post("/v1/chat/completions", chat::complete, "What follows the messages of a chat.")
        .post("/v1/embeddings", embeddings::embed, "A vector for each text.")
        .post("/v1/score", ours::score, "The log-probability of every token of a text.")
        .post("/v1/translate", ours::translate, "Texts in another language.")
        .post("/v1/fill", ours::fill, "Words for the blanks of a text.")
        .post("/v1/classify", ours::classify, "The classes of texts.")
        .post("/completion", llama::complete, "Text after a prompt, in llama.cpp's words.")
        .post("/tokenize", llama::tokenize, "The tokens of a text.")
        .post("/detokenize", llama::detokenize, "The text of tokens.")
        .get("/tokenizer_info", llama::tokenizer_info, "Special tokens of the first run.")
        .get("/props", llama::props, "How runs are served.")
        .get("/slots", llama::slots, "What is being written.")
        .get("/metrics", llama::metrics, "Counters and histograms in Prometheus' format.")
        .end();
    let described = json_text(document.to_string());
    router
        .route("/openapi.json", routing::get(async move || described.clone()))
        .merge(page::routes())
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

/// Addresses with their description.
struct Described {
    router: Router<Arc<Shared>>,
    paths: Map<String, Value>,
    schemas: SchemaGenerator,
}

impl Described {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into());
        Self { router: Router::new(), paths: Map::new(), schemas: settings.into_generator() }
    }

    fn get<M: 'static>(
        mut self,
        path: &str,
        handler: impl Handler<M, Arc<Shared>>,
        says: &str,
    ) -> Self {
        self.router = self.router.route(path, routing::get(handler));
        let mut described = described(says);
        if let Some((_, name)) = path.trim_end_matches('}').split_once('{') {
            described["parameters"] = json!([{
                "name": name,
                "in": "path",
                "required": true,
                "schema": { "type": "string" },
            }]);
        }
        self.paths.insert(path.into(), json!({ "get": described }));
        self
    }

    fn post<T: JsonSchema, F>(
        mut self,
        path: &str,
        handler: fn(State<Arc<Shared>>, body::Json<T>) -> F,
        says: &str,
    ) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        let ask = move |shared: State<Arc<Shared>>, body: body::Json<T>| handler(shared, body);
        let schema = self.schemas.subschema_for::<T>();
        let mut described = described(says);
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        self.router = self.router.route(path, routing::post(ask));
        self.paths.insert(path.into(), json!({ "post": described }));
        self
    }

    /// The addresses, and the document that describes them.
    fn end(mut self) -> (Router<Arc<Shared>>, Value) {
        let mut schemas = self.schemas.take_definitions(true);
        schemas.insert(
            "Error".into(),
            json!({
                "type": "object",
                "required": ["error"],
                "properties": { "error": {
                    "type": "object",
                    "required": ["message", "type", "param", "code"],
                    "properties": {
                        "message": { "type": "string" },
                        "type": { "type": "string" },
                        "param": { "type": ["string", "null"] },
                        "code": { "type": ["string", "null"] },
                    },
                } },
            }),
        );
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "whatwhere",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Trained transformers over HTTP.",
                "license": { "name": "MIT OR Apache-2.0" },
            },
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            },
        });
        (self.router, document)
    }
}

fn described(says: &str) -> Value {
    let error =
        json!({ "application/json": { "schema": { "$ref": "#/components/schemas/Error" } } });
    json!({
        "summary": says,
        "responses": {
            "200": { "description": "What was asked for." },
            "default": { "description": "Why it was refused.", "content": error },
        },
    })
}
