//! MIDI files of notes.

use midly::{
    Format, Header, MetaMessage, MidiMessage, Smf, Timing, TrackEvent, TrackEventKind,
    num::{u4, u7, u15, u24, u28},
};

use super::{
    Played,
    event::{Event, STEPS},
    notes::Note,
};
use crate::{Error, Result};

/// A key that goes down or up at a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) tick: u64,
    /// After those that go up at the same tick.
    pub(super) is_on: bool,
    pub(super) pitch: u8,
    pub(super) velocity: u8,
}

/// How ticks are counted.
pub(super) struct Beat {
    pub(super) ticks: u16,
    pub(super) microseconds: u32,
}

/// Ticks of a step of a performance, which is then read back to the step: a tick is a millisecond.
const MILLISECONDS: u64 = 1000 / STEPS as u64;

/// Notes on a piano, in one track.
pub(super) fn performance(notes: &[Note]) -> Result<Played> {
    let key = |step: u32, is_on, note: &Note| Key {
        tick: u64::from(step) * MILLISECONDS,
        is_on,
        pitch: note.pitch,
        velocity: Event::velocity(note.bin),
    };
    let mut keys: Vec<Key> = notes
        .iter()
        .flat_map(|note| [key(note.start, true, note), key(note.end, false, note)])
        .collect();
    keys.sort_unstable();
    let end = keys.last().map_or(0, |key| key.tick);
    let beat = Beat { ticks: 500, microseconds: 500_000 };
    let midi = file(&beat, &[keys], end)?;
    Ok(Played { midi, notes: notes.len(), seconds: end as f64 / 1000.0 })
}

/// A file of tracks, each on a channel of its own; all end at the same tick.
pub(super) fn file(beat: &Beat, tracks: &[Vec<Key>], end: u64) -> Result<Vec<u8>> {
    let tempo = MetaMessage::Tempo(u24::new(beat.microseconds));
    let tempo = TrackEvent { delta: u28::new(0), kind: TrackEventKind::Meta(tempo) };
    let format = if tracks.len() == 1 { Format::SingleTrack } else { Format::Parallel };
    let mut smf = Smf::new(Header::new(format, Timing::Metrical(u15::new(beat.ticks))));
    let mut first = vec![tempo];
    if format == Format::Parallel {
        first.push(ended(0));
        smf.tracks.push(std::mem::take(&mut first));
    }
    for (channel, keys) in (0..).zip(tracks) {
        let mut track = std::mem::take(&mut first);
        let mut now = 0;
        for key in keys {
            let (pitch, velocity) = (u7::new(key.pitch), u7::new(key.velocity));
            let message = match key.is_on {
                true => MidiMessage::NoteOn { key: pitch, vel: velocity },
                false => MidiMessage::NoteOff { key: pitch, vel: u7::new(0) },
            };
            let kind = TrackEventKind::Midi { channel: u4::new(channel), message };
            // A day of milliseconds needs 27 bits.
            track.push(TrackEvent { delta: u28::new((key.tick - now) as u32), kind });
            now = key.tick;
        }
        track.push(ended(end - now));
        smf.tracks.push(track);
    }
    let mut bytes = Vec::new();
    smf.write_std(&mut bytes).map_err(Error::file("MIDI"))?;
    Ok(bytes)
}

fn ended(after: u64) -> TrackEvent<'static> {
    let kind = TrackEventKind::Meta(MetaMessage::EndOfTrack);
    TrackEvent { delta: u28::new(after as u32), kind }
}
