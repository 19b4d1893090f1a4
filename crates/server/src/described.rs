//! Addresses with their part of `/openapi.json`: what is answered is what is described.

use std::{future::Future, sync::Arc};

use axum::{Router, extract::State, handler::Handler, response::Response, routing};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{Refusal, Shared, body, guard::is_open};

/// A question of the page: the last part of its address, and its parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) name: &'static str,
    pub(crate) says: &'static str,
    /// With something that may be asked.
    pub(crate) needs: &'static [(&'static str, &'static str)],
    pub(crate) may: &'static [&'static str],
}

/// Where a parameter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Path,
    /// Behind `?`, and must.
    Needed,
    /// Behind `?`, or not at all.
    Query,
}

/// Addresses with their description.
pub(crate) struct Described {
    router: Router<Arc<Shared>>,
    paths: Map<String, Value>,
    schemas: SchemaGenerator,
}

impl Described {
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12()
            .with(|settings| settings.definitions_path = "/components/schemas".into());
        Self { router: Router::new(), paths: Map::new(), schemas: settings.into_generator() }
    }

    pub(crate) fn get<M: 'static>(
        mut self,
        path: &str,
        handler: impl Handler<M, Arc<Shared>>,
        says: &str,
    ) -> Self {
        self.router = self.router.route(path, routing::get(handler));
        let mut said = described(says);
        if path.ends_with("{model}") {
            said["parameters"] = json!([parameter("model", Place::Path, None)]);
        } else if path == "/tokenizer_info" {
            // Needed where several runs are served.
            said["parameters"] = json!([parameter("model", Place::Query, None)]);
        }
        self.describe(path, "get", said);
        self
    }

    /// Questions that differ by the last part of their address, `{what}`; each is described by itself.
    pub(crate) fn words<M: 'static>(
        mut self,
        path: &str,
        handler: impl Handler<M, Arc<Shared>>,
        words: &[Word],
    ) -> Self {
        self.router = self.router.route(path, routing::get(handler));
        let of_reading = path.contains("{reading}");
        let mut links = Map::new();
        for Word { name, says, needs, may } in words {
            let reading = of_reading.then(|| parameter("reading", Place::Path, None));
            let needs =
                needs.iter().map(|(name, such)| parameter(name, Place::Needed, Some(*such)));
            let may = may.iter().map(|name| parameter(name, Place::Query, None));
            let mut said = described(says);
            said["parameters"] = reading.into_iter().chain(needs).chain(may).collect();
            if of_reading {
                let id = format!("attention_{name}");
                let from = json!({ "reading": "$response.body#/reading" });
                links.insert((*name).into(), json!({ "operationId": id, "parameters": from }));
                said["operationId"] = id.into();
            }
            self.describe(&path.replace("{what}", name), "get", said);
        }
        // Whoever opens a text is told what to ask of it.
        let opens =
            path.strip_suffix("/{reading}/{what}").and_then(|path| self.paths.get_mut(path));
        if let Some(opened) = opens.and_then(|path| path.pointer_mut("/post/responses/200")) {
            opened["links"] = links.into();
        }
        self
    }

    fn describe(&mut self, path: &str, method: &str, mut said: Value) {
        if is_open(path) {
            said["security"] = json!([]);
        }
        let all = self.paths.entry(path).or_insert_with(|| json!({}));
        all[method] = said;
    }

    pub(crate) fn post<T, F>(
        mut self,
        path: &str,
        handler: fn(State<Arc<Shared>>, body::Json<T>) -> F,
        says: &str,
    ) -> Self
    where
        T: DeserializeOwned + JsonSchema + Send + 'static,
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        let ask = move |shared: State<Arc<Shared>>, body: body::Json<T>| handler(shared, body);
        let schema = self.schemas.subschema_for::<T>();
        let mut said = described(says);
        said["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        self.router = self.router.route(path, routing::post(ask));
        self.describe(path, "post", said);
        self
    }

    /// The addresses, and the document that describes them.
    pub(crate) fn end(mut self, shared: &Shared) -> (Router<Arc<Shared>>, Value) {
        let mut schemas = self.schemas.take_definitions(true);
        let names = shared.served.iter().map(|served| Value::from(served.name.as_str()));
        let mut names: Vec<Value> = names.collect();
        // A run that is served alone need not be named.
        let is_needed = names.len() > 1;
        if !is_needed {
            names.push(Value::Null);
        }
        for schema in schemas.values_mut() {
            for field in ["model", "run"] {
                let Some(name) = schema.pointer_mut(&format!("/properties/{field}")) else {
                    continue;
                };
                name["enum"] = names.clone().into();
                let fields = schema.as_object_mut().filter(|_| is_needed);
                let needed = fields.map(|fields| fields.entry("required").or_insert(json!([])));
                if let Some(needed) = needed.and_then(Value::as_array_mut) {
                    needed.push(field.into());
                }
            }
        }
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
        let is_locked = !shared.options.keys.is_empty();
        let document = json!({
            "openapi": "3.1.0",
            "info": {
                "title": "whatwhere",
                "version": env!("CARGO_PKG_VERSION"),
                "description": "Trained transformers over HTTP.",
                "license": { "name": "MIT OR Apache-2.0" },
            },
            "security": if is_locked { json!([{ "key": [] }]) } else { json!([]) },
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

/// A parameter; what values it has follows from its name.
fn parameter(name: &str, place: Place, such: Option<&str>) -> Value {
    let schema = match name {
        "layer" | "cells" | "zoom" | "row" | "column" | "from" | "to" | "count" | "length" => {
            json!({ "type": "integer", "minimum": 0 })
        }
        "at" => json!({ "type": "string", "pattern": "^[0-9]+([-,][0-9]+)*$" }),
        "head" => json!({ "type": "string", "pattern": "^(all|[0-9]+)$" }),
        "site" => json!({ "type": "string", "enum": ["encoder", "decoder", "cross"] }),
        "of" => json!({ "type": "string", "enum": ["query", "key"] }),
        "set" => json!({ "type": "array", "items": { "type": "string" } }),
        _ => json!({ "type": "string" }),
    };
    let is_number = schema["type"] == "integer";
    let mut parameter = json!({
        "name": name,
        "in": if place == Place::Path { "path" } else { "query" },
        "required": place != Place::Query,
        "schema": schema,
    });
    if let Some(such) = such {
        let number = such.parse::<u64>().ok().filter(|_| is_number);
        parameter["example"] = number.map_or_else(|| such.into(), Value::from);
    }
    parameter
}
