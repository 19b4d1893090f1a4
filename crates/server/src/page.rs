//! The page's own addresses: `/`, `/page/*`, `/v1/attention/*` and `/v1/runs/*`.

use std::sync::Arc;

use axum::Router;

use crate::Shared;

/// What the page asks for; opened runs are in [`Shared::served`].
pub(crate) fn routes() -> Router<Arc<Shared>> {
    Router::new()
}
