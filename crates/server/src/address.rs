//! What stands in an address: its named parts and its parameters, refused in the one shape of errors.

use axum::{
    extract::{FromRequestParts, Path, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;
use whatwhere_lab::view::Parameters;

use crate::Refusal;

/// Parameters of a question.
const PARAMETERS: usize = 64;

/// What stands behind `?`.
pub(crate) struct Pairs(pub(crate) Parameters);

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
pub(crate) struct Words<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Words<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refusal> {
        let found = Path::<T>::from_request_parts(parts, state).await;
        found.map(|Path(found)| Self(found)).map_err(|error| Refusal::bad(error.body_text()))
    }
}
