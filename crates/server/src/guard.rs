//! Who may ask: keys, and no pages of others.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::Response,
};
use subtle::ConstantTimeEq;

use crate::{Refusal, Shared};

/// Asked by everybody: whether the server lives, and what a browser shows before it has a key.
fn is_open(path: &str) -> bool {
    path == "/health" || path == "/" || path.starts_with("/page/")
}

/// Lets a request through, or not.
pub(crate) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    check_origin(request.headers())?;
    let keys = &shared.options.keys;
    if !keys.is_empty() && !is_open(request.uri().path()) && !knows_one(request.headers(), keys) {
        return Err(Refusal::no_key());
    }
    Ok(next.run(request).await)
}

/// A browser says which page asks; only our own may.
fn check_origin(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).map(|value: &header::HeaderValue| value.to_str());
    match (text(header::ORIGIN), text(header::HOST)) {
        (None, _) => Ok(()),
        (Some(Ok(origin)), Some(Ok(host)))
            if origin.split_once("://").is_some_and(|(_, origin)| origin == host) =>
        {
            Ok(())
        }
        (Some(origin), _) => {
            let origin = origin.unwrap_or("another page");
            Err(Refusal::foreign(format!("pages of {origin} may not ask this server")))
        }
    }
}

/// Compares with every key, in a time that does not tell how much of one was right.
fn knows_one(headers: &HeaderMap, keys: &[String]) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.split_at_checked(7));
    let Some((_, given)) = given.filter(|(kind, _)| kind.eq_ignore_ascii_case(b"Bearer ")) else {
        return false;
    };
    let equal = keys.iter().map(|key| key.as_bytes().ct_eq(given));
    equal.fold(0.into(), |any: subtle::Choice, one| any | one).into()
}
