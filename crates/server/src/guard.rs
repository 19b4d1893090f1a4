//! Who may ask: keys, and no pages of others; and an answer to everybody, even where a handler panics.

use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use subtle::ConstantTimeEq;

use crate::{Refusal, Shared};

/// Asked by everybody: whether the server lives, and what a browser shows before it has a key.
pub(crate) fn is_open(path: &str) -> bool {
    path == "/health" || path == "/v1/health" || path == "/" || path.starts_with("/page/")
}

/// Lets a request through, or not.
pub(crate) async fn guard(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    check_host(request.headers(), shared.options.host)?;
    check_origin(request.headers())?;
    let keys = &shared.options.keys;
    if !keys.is_empty() && !is_open(request.uri().path()) && !knows_one(request.headers(), keys) {
        return Err(Refusal::no_key());
    }
    unless_it_panics(next.run(request)).await
}

/// What a handler answers, or that it is our mistake that it does not.
async fn unless_it_panics(handler: impl Future<Output = Response>) -> Result<Response, Refusal> {
    let mut handler = pin!(handler);
    poll_fn(|context| {
        // It is never polled again after a panic.
        let polled = AssertUnwindSafe(|| handler.as_mut().poll(context));
        match catch_unwind(polled) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Refusal::internal("a defect of the server; it goes on"))),
        }
    })
    .await
}

/// A page may give its own name this machine's address (DNS rebinding) and is then no other page to the browser; but it asks by
/// that name. A server that only this machine reaches is asked by this machine's names.
fn check_host(headers: &HeaderMap, host: IpAddr) -> Result<(), Refusal> {
    let is_own = |said: &&HeaderValue| said.to_str().is_ok_and(names_this_machine);
    match headers.get_all(header::HOST).iter().find(|said| !is_own(said)) {
        Some(said) if host.is_loopback() => {
            let said = String::from_utf8_lossy(said.as_bytes());
            Err(Refusal::foreign(format!(
                "Host: {said}, expected localhost, 127.0.0.1, [::1] or {host}; a proxy has to ask by one of these"
            )))
        }
        _ => Ok(()),
    }
}

/// Whether a name, with or without a port, is one of this machine alone.
fn names_this_machine(host: &str) -> bool {
    let port = |at: usize| host[at + 1..].bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rfind(':').filter(|at| port(*at)) {
        Some(at) => &host[..at],
        None => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "127.0.0.1", "[::1]", "[::1]:80"]
        {
            assert!(names_this_machine(own), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]:80",
            "localhost:80:80",
            "localhost@evil",
        ] {
            assert!(!names_this_machine(other), "{other}");
        }
    }
}
