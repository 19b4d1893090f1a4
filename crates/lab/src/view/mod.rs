//! What the page shows, as answers to small questions.
//!
//! A [`View`] is a run that has read a text: its tokens with their surprise, the next token, maps of its heads at any zoom, rows
//! of them, and scores split into content, position and interaction. [`choices`] answers about encodings and patterns without
//! a model, [`folder`] about runs and comparisons on disk. A question is a word with [`Parameters`], an [`Answer`] a content
//! type with bytes; so a server answers them over HTTP, [`save`] writes them into one file and
//! `crates/web` answers them in a browser ([`alone`]), by the same functions.
//!
//! Every answer is bounded by what was read: a map is asked for in cells, a row as a row, and nothing is as large as a head's
//! whole map.

mod alone;
pub mod choices;
pub mod folder;
mod opened;
mod packed;
mod page;
mod parameters;
mod save;
mod split;
mod text;
mod weights;

use serde::Serialize;

pub use alone::alone;
pub use opened::{MOST_BYTES, Opening, View};
pub use packed::Packed;
pub use page::{SCRIPT, STYLE, page};
pub use parameters::Parameters;
pub use save::{Opened, save, write};
pub use weights::CELLS;

use crate::Error;

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// As HTTP calls it.
    pub content_type: &'static str,
    /// The content.
    pub bytes: Vec<u8>,
}

impl Answer {
    fn json(value: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(value).expect("answers have names for keys");
        Self { content_type: "application/json", bytes }
    }
}

/// A question's word and who answers it.
type Question<T> = (&'static str, fn(&T, &Parameters) -> Result<Answer, Error>);

/// Answers by the word, or says which words there are.
fn answer<T>(
    questions: &[Question<T>],
    to: &T,
    what: &str,
    parameters: &Parameters,
) -> Result<Answer, Error> {
    match questions.iter().find(|(word, _)| *word == what) {
        Some((_, answer)) => answer(to, parameters),
        None => {
            let words: Vec<&str> = questions.iter().map(|(word, _)| *word).collect();
            let words = words.join(", ");
            Err(Error::Request(format!("nothing is called {what}; there are {words}")))
        }
    }
}
