//! The way from a text to whoever asked for it, and back again that no more is wanted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::timeout_at};

use super::Event;
use crate::Refusal;

/// Events of a text that nobody has taken yet; a text waits at so many.
const EVENTS: usize = 64;
/// The thread says by itself that a text is late; so much later it is taken to be busy with something else.
const SLACK: Duration = Duration::from_secs(1);

/// What is heard of a text. Who drops it has left.
#[derive(Debug)]
pub(crate) struct Heard {
    events: mpsc::Receiver<Event>,
    is_enough: Arc<AtomicBool>,
    deadline: Instant,
}

/// Where a text is said.
#[derive(Debug)]
pub(super) struct Said {
    events: mpsc::Sender<Event>,
    is_enough: Arc<AtomicBool>,
}

/// Both ends for one text that must be complete by then.
pub(super) fn pair(deadline: Instant) -> (Said, Heard) {
    let (sender, events) = mpsc::channel(EVENTS);
    let is_enough = Arc::new(AtomicBool::new(false));
    (Said { events: sender, is_enough: is_enough.clone() }, Heard { events, is_enough, deadline })
}

impl Heard {
    /// The next event; nothing after the last.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        match timeout_at((self.deadline + SLACK).into(), self.events.recv()).await {
            Ok(event) => event,
            Err(_) => {
                self.end();
                Some(Event::Failed(Refusal::late()))
            }
        }
    }

    /// Says that the text is complete as it is, which frees its slot as leaving does, but is no leaving.
    pub(crate) fn end(&mut self) {
        self.is_enough.store(true, Ordering::Release);
        self.events.close();
    }

    #[cfg(test)]
    pub(super) fn blocking_next(&mut self) -> Option<Event> {
        self.events.blocking_recv()
    }
}

impl Said {
    /// Whoever has left is noticed in the next turn; there is room, which every turn asks for first.
    pub(super) fn say(&self, event: Event) {
        let _ = self.events.try_send(event);
    }

    /// Whether so many events have room.
    pub(super) fn has_room(&self, events: usize) -> bool {
        self.events.capacity() >= events
    }

    /// Whether nobody listens any more.
    pub(super) fn is_closed(&self) -> bool {
        self.events.is_closed()
    }

    /// Whether nobody listens because nothing more was wanted.
    pub(super) fn is_enough(&self) -> bool {
        self.is_enough.load(Ordering::Acquire)
    }
}
