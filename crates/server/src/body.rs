//! Bodies of requests: bounded, in time, and JSON of the shape that was asked for.

use std::time::Duration;

use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, Request},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Refusal;

/// Bytes of a body.
pub(crate) const LIMIT: usize = 4 << 20;
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
    let said = request.headers().get("content-length").and_then(|value| value.to_str().ok());
    let length: Option<usize> = said.and_then(|length| length.parse().ok());
    if let Some(length) = length.filter(|length| *length > LIMIT) {
        return Err(Refusal::too_large(format!(
            "the body has {length} bytes, expected {LIMIT} at the most"
        )));
    }
    match tokio::time::timeout(PATIENCE, to_bytes(request.into_body(), LIMIT)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            Err(Refusal::too_large(format!("the body broke off or has more than {LIMIT} bytes")))
        }
        Err(_) => Err(Refusal::too_slow(format!(
            "the body did not come within {} seconds",
            PATIENCE.as_secs()
        ))),
    }
}

/// The JSON of a body; says which field is wrong.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| Refusal::bad(format!("the body is no JSON: {error}")))?;
    let Value::Object(fields) = &value else {
        return Err(Refusal::bad("the body is no JSON object, expected { \"field\": value, … }"));
    };
    T::deserialize(&value).map_err(|error| {
        // The field without which the rest is right.
        let wrong = fields.keys().find(|field| {
            let mut rest = fields.clone();
            rest.remove(*field);
            let rest = T::deserialize(&Value::Object(rest)).err().map(|error| error.to_string());
            rest.is_none_or(|rest| rest == format!("missing field `{field}`"))
        });
        match wrong {
            Some(field) => Refusal::invalid(field.as_str(), format!("{field}: {error}")),
            None => match error.to_string().strip_prefix("missing field `") {
                Some(rest) => {
                    let field = rest.trim_end_matches('`');
                    Refusal::invalid(field, format!("{field} is missing"))
                }
                None => Refusal::bad(error.to_string()),
            },
        }
    })
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
    }

    #[test]
    fn the_wrong_field_is_named() {
        for (body, expected, param) in [
            (r#"{"count": -1}"#, "count: invalid value", Some("count")),
            (r#"{"count": 1, "name": 3}"#, "name: invalid type", Some("name")),
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
        assert!(read::<Two>(br#"{"count": 1, "other": []}"#).is_ok());
    }
}
