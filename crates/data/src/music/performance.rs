//! Notes as events, and events as notes.
//!
//! Events stand in the order of time: at one step first the keys that go up, then those that go down, each from low to high.
//! A velocity comes before a note-on if it is another than the last one's. Time is the longest shifts and the rest.

use super::{
    event::{Event, LONGEST_SHIFT, PITCHES},
    notes::{Note, keyboard},
    score::LONGEST,
};

/// The tokens of notes, each key down once.
pub(super) fn events(notes: &[Note]) -> Vec<u32> {
    let on = notes.iter().map(|note| (note.start, true, note.pitch, note.bin));
    let off = notes.iter().map(|note| (note.end, false, note.pitch, note.bin));
    let mut keys: Vec<(u32, bool, u8, u8)> = on.chain(off).collect();
    keys.sort_unstable();
    let mut tokens = Vec::with_capacity(2 * keys.len());
    let (mut now, mut velocity) = (0, None);
    for (step, is_on, pitch, bin) in keys {
        shift(step - now, &mut tokens);
        now = step;
        if is_on && velocity != Some(bin) {
            velocity = Some(bin);
            tokens.push(Event::Velocity(bin).token());
        }
        tokens.push(if is_on { Event::NoteOn(pitch) } else { Event::NoteOff(pitch) }.token());
    }
    tokens
}

/// Lets so many steps go by.
pub(super) fn shift(mut steps: u32, tokens: &mut Vec<u32>) {
    while steps > 0 {
        let some = steps.min(LONGEST_SHIFT);
        tokens.push(Event::TimeShift(some as u8).token());
        steps -= some;
    }
}

/// The velocity before any is said, in the middle.
const MEDIUM: u8 = 16;

/// The notes of any tokens, each key down once: a model may write what no reader would.
///
/// A note-off without a note is nothing; a note without a note-off ends with the tokens; every note has a step at least; a
/// piece is over after a day, as for the reader.
pub(super) fn notes(tokens: &[u32]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut open: [Option<(u32, u8)>; PITCHES as usize] = [None; PITCHES as usize];
    let (mut now, mut velocity) = (0u32, MEDIUM);
    let mut close = |begun: Option<(u32, u8)>, pitch: u8, now: u32| {
        let ended = |(start, bin)| Note { start, end: now.max(start + 1), pitch, bin };
        notes.extend(begun.map(ended));
    };
    for event in tokens.iter().filter_map(|token| Event::of(*token)) {
        match event {
            Event::TimeShift(steps) => now = (now + u32::from(steps)).min(LONGEST - 1),
            Event::Velocity(bin) => velocity = bin,
            Event::NoteOn(pitch) => {
                close(open[usize::from(pitch)].replace((now, velocity)), pitch, now);
            }
            Event::NoteOff(pitch) => close(open[usize::from(pitch)].take(), pitch, now),
        }
    }
    for (begun, pitch) in open.into_iter().zip(0..) {
        close(begun, pitch, now);
    }
    keyboard(notes)
}
