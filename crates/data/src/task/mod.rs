//! Synthetic tasks: examples with a prompt and an answer, made from a generator; one file for each task.
//!
//! Symbols are printable, so that a model's output can be read. Only the answer counts.

mod addition;
mod indirect_indexing;
mod letters;
mod listops;
mod pathfinder;
mod recall;

pub use addition::Addition;
pub use indirect_indexing::IndirectIndexing;
pub use letters::{Copy, Reverse, Sort};
pub(crate) use listops::ASKS;
pub use listops::ListOps;
pub use pathfinder::Pathfinder;
pub use recall::Recall;

use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use crate::{Error, Result};

/// A question and its answer, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// What is given.
    pub prompt: String,
    /// What is to be found.
    pub answer: String,
}

/// A prompt that is a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: usize,
    /// Brightness from 0 to 1, row by row from the top.
    pub pixels: Vec<f64>,
}

/// Makes examples.
pub trait Task: Send + Sync {
    /// Refuses parameters out of range.
    fn check(&self) -> Result<()>;

    /// Every symbol that an example can have; where some have several characters, examples are words between spaces.
    fn symbols(&self) -> Vec<String>;

    /// The most symbols of a prompt and of an answer.
    fn longest(&self) -> (usize, usize);

    /// Every answer there is, where an example asks for one of a few classes; `classify` then learns them by their number in
    /// this list.
    fn classes(&self) -> Option<Vec<String>> {
        None
    }

    /// An example that follows from the generator alone.
    fn example(&self, random: &mut Random) -> Example;

    /// The picture that an example's prompt is; nothing if it is none.
    fn picture(&self, _example: &Example) -> Option<Picture> {
        None
    }
}

/// Refuses a range of lengths that is empty or outside the bounds.
fn check_range(shortest: usize, longest: usize, least: usize, most: usize) -> Result<()> {
    if shortest < least {
        return Err(Error::setting(
            "source.shortest",
            shortest,
            format!("expected at least {least}"),
        ));
    }
    if longest < shortest {
        let reason = format!("expected at least shortest = {shortest}");
        return Err(Error::setting("source.longest", longest, reason));
    }
    if longest > most {
        return Err(Error::setting("source.longest", longest, format!("expected at most {most}")));
    }
    Ok(())
}

fn symbols(text: &str) -> Vec<String> {
    text.chars().map(String::from).collect()
}

const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const DIGITS: &str = "0123456789";

/// A character of a constant of ASCII.
fn letter(text: &str, index: usize) -> char {
    char::from(text.as_bytes()[index])
}
