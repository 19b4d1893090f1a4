//! Bodies of requests: bounded, in time, and JSON of the shape that was asked for.

use std::{future::poll_fn, pin::Pin, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{FromRequest, Request},
    http::header::{CONTENT_LENGTH, EXPECT},
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{task::block_in_place, time::timeout};

use crate::Refusal;

/// Bytes of a body.
pub(crate) const LIMIT: usize = 4 << 20;
/// Bytes that are read of a larger one, before it is refused.
const DRAINED: usize = 64 << 20;
/// Fields of a body of which it is looked which one is wrong.
const FIELDS: usize = 64;
/// Until a body is there.
const PATIENCE: Duration = Duration::from_secs(30);

/// A body that was read as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        read(&bytes(request).await?).map(Self)
    }
}

async fn bytes(request: Request) -> Result<Bytes, Refusal> {
    let said = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: Option<usize> = said.and_then(|length| length.parse().ok());
    // Who asks first hears it before the body is sent.
    let most = if request.headers().contains_key(EXPECT) { LIMIT } else { DRAINED };
    if let Some(length) = length.filter(|length| *length > most) {
        return Err(too_large(length));
    }
    match timeout(PATIENCE, collected(request.into_body())).await {
        Ok(bytes) => bytes,
        Err(_) => Err(Refusal::too_slow(format!(
            "the body did not come within {} seconds",
            PATIENCE.as_secs()
        ))),
    }
}

/// All of a body. One that is too large is read on for a while: clients that still send when they are refused see a connection
/// that breaks, and not why.
async fn collected(mut body: Body) -> Result<Bytes, Refusal> {
    let (mut all, mut found) = (Vec::new(), 0);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Refusal::bad("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        found += data.len();
        if found <= LIMIT {
            all.extend_from_slice(&data);
        } else if found <= DRAINED {
            all = Vec::new();
        } else {
            break;
        }
    }
    if found > LIMIT { Err(too_large(found)) } else { Ok(all.into()) }
}

fn too_large(found: usize) -> Refusal {
    Refusal::too_large(format!("the body has {found} bytes, expected {LIMIT} at the most"))
}

/// The JSON of a body; says which field is wrong.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut value: Value = serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad(format!("the body is no JSON: {error}")))?;
    if !value.is_object() {
        return Err(Refusal::bad("the body is no JSON object, expected { \"field\": value, … }"));
    }
    T::deserialize(&value).map_err(|error| match block_in_place(|| wrong::<T>(&mut value)) {
        Some(field) => {
            let message = format!("{field}: {}", in_words(&error));
            Refusal::invalid(field, message)
        }
        None => match error.to_string().strip_prefix("missing field `") {
            Some(rest) => {
                let field = rest.trim_end_matches('`');
                Refusal::invalid(field, format!("{field} is missing"))
            }
            None => Refusal::bad(in_words(&error)),
        },
    })
}

/// What was expected in JSON's words, which has no `u32`.
fn in_words(error: &serde_json::Error) -> String {
    let error = error.to_string();
    let Some((found, expected)) = error.rsplit_once(", expected ") else { return error };
    let expected = match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "string or map" => "a string",
        expected if expected.starts_with("struct ") || expected == "a map" => "an object",
        _ => return error,
    };
    format!("{found}, expected {expected}")
}

/// The field without which the rest is right, or would be if it were not missing then. All are tried, so not of bodies that
/// have more than anybody asks for.
fn wrong<T: DeserializeOwned>(value: &mut Value) -> Option<String> {
    let names: Vec<String> = value.as_object()?.keys().take(FIELDS + 1).cloned().collect();
    let mut missing = None;
    for name in names.iter().filter(|_| names.len() <= FIELDS) {
        let field = value.as_object_mut()?.remove(name)?;
        let rest = T::deserialize(&*value).err().map(|error| error.to_string());
        value.as_object_mut()?.insert(name.clone(), field);
        match rest {
            None => return Some(name.clone()),
            Some(error) if error == format!("missing field `{name}`") => {
                missing = missing.or(Some(name.clone()));
            }
            Some(_) => {}
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Two {
        count: u32,
        name: Option<String>,
        #[serde(flatten)]
        others: Others,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Others {
        more: Option<f32>,
    }

    #[test]
    fn the_wrong_field_is_named() {
        for (body, expected, param) in [
            (r#"{"count": -1}"#, "count: invalid value", Some("count")),
            (
                r#"{"count": 1.5}"#,
                "count: invalid type: floating point `1.5`, expected a whole number, 0 or more",
                Some("count"),
            ),
            (r#"{"count": 1, "name": 3}"#, "name: invalid type", Some("name")),
            (r#"{"count": 1, "more": "x"}"#, "more: invalid type", Some("more")),
            (r#"{"name": "x"}"#, "count is missing", Some("count")),
            (r#"{"count": 1"#, "the body is no JSON: EOF", None),
            ("[1]", "the body is no JSON object", None),
            ("{\"count\": 1, \"name\": \"\u{1}\"}", "the body is no JSON", None),
        ] {
            let said = read::<Two>(body.as_bytes()).unwrap_err().to_json();
            let message = said["error"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with(expected), "{body}: {message}");
            assert_eq!(said["error"]["param"].as_str(), param, "{body}");
        }
        assert!(read::<Two>(b"{\"count\": 1, \"name\": \"\xff\"}").is_err());
        // Of very many fields it is not looked which.
        let fields: Vec<String> = (0..100_000).map(|i| format!("\"f{i}\": 0")).collect();
        let many = format!(r#"{{"count": "x", "name": 1, {}}}"#, fields.join(", "));
        let begun = std::time::Instant::now();
        assert_eq!(
            read::<Two>(many.as_bytes()).unwrap_err().to_json()["error"]["param"],
            Value::Null
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(read::<Two>(br#"{"count": 1, "other": []}"#).is_ok());
    }
}
