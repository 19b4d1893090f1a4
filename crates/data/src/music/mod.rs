//! Music as tokens, and as MIDI files that play.
//!
//! `event` has the vocabulary of performances, `performance` turns notes into events and back; `score` reads the bytes of a
//! file, `notes` finds the notes in it, `write` makes a file of notes. `chorale` is the grid of four voices, between the
//! same two ends. [`Music`] is what both kinds of source can do.

mod augment;
mod chorale;
mod event;
mod notes;
mod performance;
mod score;
mod write;

use std::{io::Write, path::Path};

pub(crate) use augment::Augment;
pub use event::Event;

use crate::{
    Error, Result,
    settings::{Midi, Source},
};

/// What a source of music can do: from a MIDI file to tokens, and back.
pub trait Music {
    /// The tokens of a MIDI file, without one that ends it; `name` stands in errors.
    fn tokens(&self, name: &str, midi: &[u8]) -> Result<Vec<u32>>;

    /// A MIDI file that plays tokens; special ones are silent.
    fn play(&self, tokens: &[u32]) -> Result<Played>;

    /// Tokens that belong together, so that a piece may be cut at every multiple of it.
    fn stride(&self) -> usize;

    /// A token that a piece may begin with, where no special one begins it.
    fn first(&self, seed: u64) -> Option<u32>;

    /// What a token is called.
    fn unit(&self) -> &'static str;
}

/// A MIDI file, and what is heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Played {
    /// The file.
    pub midi: Vec<u8>,
    /// Notes in it.
    pub notes: usize,
    /// From its start to the end of its last note.
    pub seconds: f64,
}

impl Played {
    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        Ok(whatwhere_files::replace(path, |out| out.write_all(&self.midi))?)
    }
}

/// The most bytes of one MIDI file; the longest of real performances have a hundredth of it.
pub const LARGEST: u64 = 64 << 20;

impl Music for Midi {
    fn tokens(&self, name: &str, midi: &[u8]) -> Result<Vec<u32>> {
        performance(midi).map_err(|reason| Error::content(name, reason))
    }

    fn play(&self, tokens: &[u32]) -> Result<Played> {
        write::performance(&performance::notes(tokens))
    }

    fn stride(&self) -> usize {
        1
    }

    fn first(&self, _: u64) -> Option<u32> {
        None
    }

    fn unit(&self) -> &'static str {
        "event"
    }
}

/// The events of a file; or in words why there are none.
pub(crate) fn performance(midi: &[u8]) -> Result<Vec<u32>, String> {
    let notes = notes::performed(&score::Score::read(midi)?)?;
    match notes.is_empty() {
        true => Err("has no notes".into()),
        false => Ok(performance::events(&notes)),
    }
}

impl Source {
    /// The music, where the source is some.
    pub fn music(&self) -> Option<&dyn Music> {
        match self {
            Self::Chorales(chorales) => Some(chorales),
            Self::Midi(midi) => Some(midi),
            _ => None,
        }
    }

    /// What a token is called in reports: an event of a performance, a token of everything else.
    pub fn unit(&self) -> &'static str {
        self.music().map_or("token", |music| music.unit())
    }
}
