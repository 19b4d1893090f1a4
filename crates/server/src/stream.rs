//! Answers that come in pieces: server-sent events.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody},
    http::header,
    response::{IntoResponse, Response},
};
use hyper::body::Frame;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep, sleep},
};

/// Events that are not sent yet; whoever makes them waits at so many.
const WAITING: usize = 64;
/// A sign of life where nothing is said.
const PING: Duration = Duration::from_secs(15);

/// The way to a client that reads events.
#[derive(Clone, Debug)]
pub(crate) struct Events(mpsc::Sender<Bytes>);

struct EventBody {
    events: mpsc::Receiver<Bytes>,
    ping: Pin<Box<Sleep>>,
}

/// An answer, and the way to say what is in it. It ends when the last copy of the way is gone.
pub(crate) fn events() -> (Events, Response) {
    let (sender, events) = mpsc::channel(WAITING);
    let body = Body::new(EventBody { events, ping: Box::pin(sleep(PING)) });
    let kind = [
        (header::CONTENT_TYPE, "text/event-stream; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (Events(sender), (kind, body).into_response())
}

impl Events {
    /// Says one event. Whether the client is still there.
    pub(crate) async fn say(&self, value: &Value) -> bool {
        self.0.send(format!("data: {value}\n\n").into()).await.is_ok()
    }

    /// Says that nothing follows.
    pub(crate) async fn done(&self) {
        let _ = self.0.send("data: [DONE]\n\n".into()).await;
    }
}

impl HttpBody for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let said = match self.events.poll_recv(context) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(event)) => event,
            Poll::Pending if self.ping.as_mut().poll(context).is_ready() => ": ping\n\n".into(),
            Poll::Pending => return Poll::Pending,
        };
        self.ping.as_mut().reset(Instant::now() + PING);
        Poll::Ready(Some(Ok(Frame::data(said))))
    }
}
