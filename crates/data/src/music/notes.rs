//! The notes of a file, as one piano plays them.
//!
//! A note-off ends every note of its track, channel and pitch that began before it. While a channel's sustain pedal is down,
//! what ends goes on until the pedal comes up or the key is struck again, as Oore et al. 2018 have it. All channels but the
//! drums share one keyboard, on which a key is down once: a further note-on of a sounding pitch ends it there.

use std::collections::{BTreeMap, HashMap};

use super::{
    event::Event,
    score::{Kind, LONGEST, Message, Score},
};

/// A note in steps of 10 ms; it ends after it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) pitch: u8,
    /// Its velocity's bin.
    pub(super) bin: u8,
}

/// A note as it is written, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) track: u32,
    pub(super) channel: u8,
    pub(super) pitch: u8,
    pub(super) velocity: u8,
}

/// The notes that are heard.
pub(super) fn performed(score: &Score) -> Result<Vec<Note>, String> {
    let pedals = pedals(score);
    let note = |written: Written| {
        let held = pedals.get(&written.channel).map_or(written.end, |spans| held(spans, written));
        // A note needs a step before the end of the longest piece.
        let start = score.clock.step(written.start)?.min(LONGEST - 1);
        let end = score.clock.step(held)?.max(start + 1);
        Ok(Note { start, end, pitch: written.pitch, bin: Event::bin(written.velocity) })
    };
    let notes: Result<Vec<Note>, String> = written(score).into_iter().map(note).collect();
    Ok(keyboard(notes?))
}

/// Note-ons and the note-offs that end them; what nobody ends is no note.
pub(super) fn written(score: &Score) -> Vec<Written> {
    let mut notes = Vec::new();
    let mut open: HashMap<(u32, u8, u8), Vec<(u64, u8)>> = HashMap::new();
    for &Message { tick, track, channel, kind } in &score.messages {
        match kind {
            Kind::Pedal(_) => {}
            Kind::On { pitch, velocity } => {
                open.entry((track, channel, pitch)).or_default().push((tick, velocity));
            }
            Kind::Off { pitch } => {
                let Some(begun) = open.remove(&(track, channel, pitch)) else { continue };
                let (now, before): (Vec<_>, Vec<_>) =
                    begun.into_iter().partition(|(start, _)| *start == tick);
                notes.extend(before.iter().map(|&(start, velocity)| Written {
                    start,
                    end: tick,
                    track,
                    channel,
                    pitch,
                    velocity,
                }));
                // The end of one note and the start of the next can be written in either order.
                if !now.is_empty() && !before.is_empty() {
                    open.insert((track, channel, pitch), now);
                }
            }
        }
    }
    notes
}

/// From when to when each channel's pedal is down; one that stays down is so until the last message.
fn pedals(score: &Score) -> BTreeMap<u8, Vec<(u64, u64)>> {
    let mut messages: Vec<&Message> = score.messages.iter().collect();
    messages.sort_by_key(|message| message.tick);
    let last = messages.last().map_or(0, |message| message.tick);
    let mut spans: BTreeMap<u8, Vec<(u64, u64)>> = BTreeMap::new();
    let mut down: BTreeMap<u8, u64> = BTreeMap::new();
    for message in messages {
        match message.kind {
            Kind::Pedal(true) => {
                down.entry(message.channel).or_insert(message.tick);
            }
            Kind::Pedal(false) => {
                let span = down.remove(&message.channel).map(|since| (since, message.tick));
                spans.entry(message.channel).or_default().extend(span);
            }
            _ => {}
        }
    }
    for (channel, since) in down {
        spans.entry(channel).or_default().push((since, last));
    }
    spans
}

/// The end of a note under a pedal.
fn held(spans: &[(u64, u64)], note: Written) -> u64 {
    let begun = spans.partition_point(|(since, _)| *since <= note.end);
    let span = begun.checked_sub(1).map(|last| spans[last]);
    span.filter(|(_, until)| *until > note.end).map_or(note.end, |(_, until)| until)
}

/// The same notes with each key down once, by start and pitch.
pub(super) fn keyboard(mut notes: Vec<Note>) -> Vec<Note> {
    notes.sort_by_key(|note| (note.pitch, note.start));
    let mut played: Vec<Note> = Vec::with_capacity(notes.len());
    for note in notes {
        match played.last_mut().filter(|before| before.pitch == note.pitch) {
            // Struck twice at once: the louder, the longer.
            Some(before) if before.start == note.start => {
                (before.end, before.bin) = (before.end.max(note.end), before.bin.max(note.bin));
            }
            before => {
                if let Some(before) = before {
                    before.end = before.end.min(note.start);
                }
                played.push(note);
            }
        }
    }
    played.sort_by_key(|note| (note.start, note.pitch));
    played
}
