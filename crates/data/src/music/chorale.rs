//! Chorales as MIDI: four voices on a grid of sixteenths, a track and a channel each.
//!
//! A pitch that goes on is one note: the data do not say where it is struck again.

use std::collections::BTreeMap;

use whatwhere_random::Random;

use super::{
    Music, Played,
    notes::{Written, written},
    score::Score,
    write::{Beat, Key, file},
};
use crate::{
    Error, Result,
    read::{HIGHEST, LOWEST, SILENCE, VOICES},
    settings::Chorales,
};

const SIXTEENTH: u64 = 120; // ticks of a step
/// 80 beats a minute, as chorales are sung.
const BEAT: Beat = Beat { ticks: 4 * SIXTEENTH as u16, microseconds: 750_000 };
const VELOCITY: u8 = 80;
/// Steps of the longest chorale that is read: 18 hours at 80 beats a minute.
const LONGEST: u64 = 350_000;

impl Music for Chorales {
    fn tokens(&self, name: &str, midi: &[u8]) -> Result<Vec<u32>> {
        tokens(midi).map_err(|reason| Error::content(name, reason))
    }

    fn play(&self, tokens: &[u32]) -> Result<Played> {
        let steps: Vec<&[u32]> = tokens.chunks(VOICES).collect();
        let tracks: Vec<Vec<Key>> = (0..VOICES).map(|voice| keys(&steps, voice)).collect();
        let notes = tracks.iter().flatten().filter(|key| key.is_on).count();
        let end = steps.len() as u64 * SIXTEENTH;
        let heard = tracks.iter().filter_map(|keys| keys.last()).map(|key| key.tick).max();
        let beats = heard.unwrap_or(0) as f64 / f64::from(BEAT.ticks);
        let seconds = beats * f64::from(BEAT.microseconds) / 1e6;
        Ok(Played { midi: file(&BEAT, &tracks, end)?, notes, seconds })
    }

    fn stride(&self) -> usize {
        VOICES
    }

    /// A pitch that sopranos begin with.
    fn first(&self, seed: u64) -> Option<u32> {
        let (low, high) = (60, 76);
        let pitch = low + Random::new(&[seed]).below(high - low + 1);
        Some((pitch as i64 - LOWEST) as u32)
    }

    fn unit(&self) -> &'static str {
        "token"
    }
}

/// What one voice does.
fn keys(steps: &[&[u32]], voice: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut sounding = None;
    let pitches = steps.iter().map(|step| {
        let token = step.get(voice).copied().filter(|token| *token < SILENCE);
        token.map(|token| (i64::from(token) + LOWEST) as u8)
    });
    for (pitch, step) in pitches.chain([None]).zip(0..) {
        if pitch != sounding {
            let tick = step * SIXTEENTH;
            let key = |pitch, is_on| Key { tick, is_on, pitch, velocity: VELOCITY };
            keys.extend(sounding.map(|pitch| key(pitch, false)));
            keys.extend(pitch.map(|pitch| key(pitch, true)));
            sounding = pitch;
        }
    }
    keys
}

/// The grid of a file.
fn tokens(midi: &[u8]) -> Result<Vec<u32>, String> {
    let score = Score::read(midi)?;
    let Some(beat) = score.clock.beat else {
        return Err("counts frames and no beats, so that it has no sixteenths".into());
    };
    let step = |tick: u64| {
        let step = (8 * tick + beat) / (2 * beat); // the nearest sixteenth, four to a beat
        match step <= LONGEST {
            true => Ok(step as usize),
            false => Err(format!("has {step} sixteenths, expected at most {LONGEST}")),
        }
    };
    let mut notes = Vec::new();
    for note in written(&score) {
        if !(LOWEST..=HIGHEST).contains(&i64::from(note.pitch)) {
            let expected = format!("expected {LOWEST} to {HIGHEST}");
            return Err(format!("has the pitch {}, {expected}", note.pitch));
        }
        let start = step(note.start)?;
        notes.push((start, step(note.end)?.max(start + 1), note));
    }
    if notes.is_empty() {
        return Err("has no notes".into());
    }
    notes.sort_by_key(|(start, _, note)| (*start, std::cmp::Reverse(note.pitch)));
    let last = notes.iter().map(|(_, end, _)| *end).max().unwrap_or(0);
    let steps = last.max(step(score.end)?);
    let voices = by_channel(&notes).or_else(|| by_part(&notes));
    let mut grid = vec![SILENCE; steps * VOICES];
    match voices {
        Some(voices) => {
            for (voice, (start, end, note)) in voices.into_iter().zip(&notes) {
                for step in *start..*end {
                    grid[step * VOICES + voice] = token(note);
                }
            }
        }
        None => by_pitch(&notes, &mut grid)?,
    }
    Ok(grid)
}

fn token(note: &Written) -> u32 {
    (i64::from(note.pitch) - LOWEST) as u32
}

type Placed = (usize, usize, Written);

/// The voice of each note by its channel, as we write them; nothing if a channel is no voice.
fn by_channel(notes: &[Placed]) -> Option<Vec<usize>> {
    let voices: Vec<usize> = notes.iter().map(|(.., note)| note.channel.into()).collect();
    are_voices(notes, &voices).then_some(voices)
}

/// The voice of each note by its track and channel, in their order; nothing if they are no voices.
fn by_part(notes: &[Placed]) -> Option<Vec<usize>> {
    let parts: BTreeMap<(u32, u8), usize> =
        notes.iter().map(|(.., note)| ((note.track, note.channel), 0)).collect();
    let parts: BTreeMap<(u32, u8), usize> = parts.into_keys().zip(0..).collect();
    let voices: Vec<usize> =
        notes.iter().map(|(.., note)| parts[&(note.track, note.channel)]).collect();
    are_voices(notes, &voices).then_some(voices)
}

/// Whether there are four at the most, and none sings two notes at once.
fn are_voices(notes: &[Placed], voices: &[usize]) -> bool {
    let mut free = [0; VOICES];
    notes.iter().zip(voices).all(|((start, end, _), voice)| match free.get_mut(*voice) {
        Some(free) if *free <= *start => {
            *free = *end;
            true
        }
        _ => false,
    })
}

/// Fills the grid with what sounds at each step, from high to low.
fn by_pitch(notes: &[Placed], grid: &mut [u32]) -> Result<(), String> {
    let sung: usize = notes.iter().map(|(start, end, _)| end - start).sum();
    // Twice where each voice is doubled; before the work of filling in what cannot fit.
    if sung > 2 * grid.len() {
        return Err("has more notes at once than the four voices of a chorale".into());
    }
    for (start, end, note) in notes {
        for step in *start..*end {
            let voices = &mut grid[step * VOICES..][..VOICES];
            let count = voices.iter().filter(|token| **token != SILENCE).count();
            let token = token(note);
            if voices.contains(&token) {
                continue;
            }
            if count == VOICES {
                let expected = "expected the four voices of a chorale";
                return Err(format!(
                    "has more than {VOICES} notes at sixteenth {step}, {expected}"
                ));
            }
            voices[count] = token;
            voices[..=count].sort_unstable_by(|a, b| b.cmp(a));
        }
    }
    Ok(())
}
