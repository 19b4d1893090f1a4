//! The bytes of a MIDI file as messages in ticks, and the clock that turns ticks into time.
//!
//! `midly` reads events. The chunks around them are read here: it takes what is cut for what is whole, and a wrong time code
//! for a reason to panic where overflows are checked.

use midly::{EventIter, MetaMessage, MidiMessage, TrackEventKind};

use super::event::STEPS;

/// What a file says, track after track.
pub(super) struct Score {
    pub(super) clock: Clock,
    /// In the order of the file: ticks ascend within a track.
    pub(super) messages: Vec<Message>,
    /// The tick at which its last track ends.
    pub(super) end: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) tick: u64,
    pub(super) track: u32,
    pub(super) channel: u8,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    On {
        pitch: u8,
        velocity: u8,
    },
    Off {
        pitch: u8,
    },
    /// Whether the sustain pedal is down.
    Pedal(bool),
}

/// General MIDI's channel of drums, counted from 0: its pitches are no pitches.
const DRUMS: u8 = 9;
const SUSTAIN: u8 = 64; // the controller of the pedal
const DOWN: u8 = 64; // and the value from which it is down

impl Score {
    /// Reads a file; or says in words what is wrong with it.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let (header, mut rest) =
            chunk(bytes, b"MThd").ok_or("is no MIDI file: it does not begin with MThd")?;
        let &[a, b, c, d, e, f, ..] = header.bytes else {
            return Err("breaks off in its header".into());
        };
        let [format, tracks, division] = [[a, b], [c, d], [e, f]].map(u16::from_be_bytes);
        if format > 1 {
            return Err(format!("has format {format}, expected 0 or 1, one piece in a file"));
        }
        let (mut tempos, mut messages, mut end, mut found) = (Vec::new(), Vec::new(), 0, 0);
        while let Some((track, after)) = any_chunk(rest) {
            rest = after;
            if &track.id == b"MTrk" {
                end = end.max(read_track(&track, found, &mut tempos, &mut messages)?);
                found += 1;
            }
        }
        if found < u32::from(tracks) {
            return Err(format!("has {found} of the {tracks} tracks that its header names"));
        }
        Ok(Self { clock: Clock::new(division, tempos)?, messages, end })
    }
}

/// Reads one track and returns the tick of its end.
fn read_track(
    track: &Chunk,
    number: u32,
    tempos: &mut Vec<(u64, u32)>,
    messages: &mut Vec<Message>,
) -> Result<u64, String> {
    let mut events = EventIter::new(track.bytes);
    let mut tick = 0;
    loop {
        let left = events.unread().len();
        let Some(Ok(event)) = events.next() else {
            // Whoever writes no end of a track is understood; what is cut or broken is not.
            return match left == 0 && !track.is_cut {
                true => Ok(tick),
                false => Err(format!("track {} breaks off at tick {tick}", number + 1)),
            };
        };
        tick += u64::from(event.delta.as_int());
        match event.kind {
            TrackEventKind::Meta(MetaMessage::EndOfTrack) => return Ok(tick),
            TrackEventKind::Meta(MetaMessage::Tempo(tempo)) => tempos.push((tick, tempo.as_int())),
            TrackEventKind::Midi { channel, message } if channel.as_int() != DRUMS => {
                let kind = kind(message);
                let channel = channel.as_int();
                messages.extend(kind.map(|kind| Message { tick, track: number, channel, kind }));
            }
            _ => {}
        }
    }
}

fn kind(message: MidiMessage) -> Option<Kind> {
    Some(match message {
        MidiMessage::NoteOn { key, vel } if vel.as_int() > 0 => {
            Kind::On { pitch: key.as_int(), velocity: vel.as_int() }
        }
        MidiMessage::NoteOn { key, .. } | MidiMessage::NoteOff { key, .. } => {
            Kind::Off { pitch: key.as_int() }
        }
        MidiMessage::Controller { controller, value } if controller.as_int() == SUSTAIN => {
            Kind::Pedal(value.as_int() >= DOWN)
        }
        _ => return None,
    })
}

struct Chunk<'a> {
    id: [u8; 4],
    bytes: &'a [u8],
    /// Whether it should have more bytes than are left.
    is_cut: bool,
}

/// The chunk of this name at the start of some bytes, and what follows it.
fn chunk<'a>(bytes: &'a [u8], id: &[u8; 4]) -> Option<(Chunk<'a>, &'a [u8])> {
    any_chunk(bytes).filter(|(chunk, _)| &chunk.id == id)
}

fn any_chunk(bytes: &[u8]) -> Option<(Chunk<'_>, &[u8])> {
    let (&id, rest) = bytes.split_first_chunk::<4>()?;
    let (&length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(length) as usize;
    let (bytes, after) = rest.split_at(length.min(rest.len()));
    Some((Chunk { id, bytes, is_cut: length > rest.len() }, after))
}

/// From ticks to time, exactly: tempos are whole microseconds of a beat.
pub(super) struct Clock {
    /// Ticks of a beat; nothing where time is counted in frames of a film.
    pub(super) beat: Option<u64>,
    /// From a tick on: the time there and the time of a tick, in parts of a second.
    changes: Vec<(u64, u128, u128)>,
    /// Parts of a second.
    parts: u128,
}

/// Steps of the longest piece, a day: time that only a broken file has, and that would be 86,400 events without a note.
pub(super) const LONGEST: u32 = 24 * 60 * 60 * STEPS;
const USUAL: u32 = 500_000; // microseconds of a beat where nothing is said: 120 beats a minute

impl Clock {
    fn new(division: u16, mut tempos: Vec<(u64, u32)>) -> Result<Self, String> {
        let [high, low] = division.to_be_bytes();
        if division == 0 || (high >= 0x80 && low == 0) {
            return Err("has no ticks in its unit of time".into());
        }
        if high >= 0x80 {
            // Frames of a second, negative; 29 stands for 30 · 1000 / 1001.
            let (tick, frames) = match high.wrapping_neg() {
                29 => (1001, 30_000),
                frames @ (24 | 25 | 30) => (1, u128::from(frames)),
                frames => {
                    let expected = "expected 24, 25, 29 or 30";
                    return Err(format!("has a time code of {frames} frames, {expected}"));
                }
            };
            let parts = frames * u128::from(low);
            return Ok(Self { beat: None, changes: vec![(0, 0, tick)], parts });
        }
        tempos.sort_by_key(|(tick, _)| *tick);
        let mut changes = vec![(0, 0, u128::from(USUAL))];
        for (tick, tempo) in tempos {
            let (since, time, rate) = changes[changes.len() - 1];
            changes.push((tick, time + u128::from(tick - since) * rate, tempo.into()));
        }
        let parts = u128::from(division) * 1_000_000;
        Ok(Self { beat: Some(division.into()), changes, parts })
    }

    /// The step that is nearest to a tick, the later of two.
    pub(super) fn step(&self, tick: u64) -> Result<u32, String> {
        let after = self.changes.partition_point(|(since, ..)| *since <= tick);
        let (since, time, rate) = self.changes[after.saturating_sub(1)];
        let time = time + u128::from(tick - since) * rate;
        let step = (2 * u128::from(STEPS) * time + self.parts) / (2 * self.parts);
        let fits = u32::try_from(step).ok().filter(|step| *step <= LONGEST);
        fits.ok_or_else(|| {
            format!("lasts {} hours, expected at most 24", step / u128::from(STEPS * 3600))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_times_by_the_tempos_before_them() {
        // Beats of half a second, then of two, then of a tenth.
        let clock = Clock::new(480, vec![(1920, 100_000), (960, 2_000_000)]).unwrap();
        let at = |tick| clock.step(tick).unwrap();
        assert_eq!([0, 480, 960, 1440, 1920, 2400].map(at), [0, 50, 100, 300, 500, 510]);
        assert_eq!(at(5), 1, "5.2 ms are nearer to 10");
        assert_eq!(at(4), 0, "4.2 ms are nearer to 0");
    }

    #[test]
    fn frames_of_film_are_times_whatever_the_tempo() {
        let division = |frames: i8, parts: u8| u16::from_be_bytes([(-frames) as u8, parts]);
        let step = |frames, parts, tick| {
            Clock::new(division(frames, parts), vec![(0, 7)]).unwrap().step(tick).unwrap()
        };
        assert_eq!(step(25, 40, 1000), 100, "milliseconds");
        assert_eq!(step(24, 4, 96), 100);
        assert_eq!(step(29, 100, 30_000), 1001);
        assert!(Clock::new(division(23, 4), Vec::new()).is_err());
        assert!(Clock::new(0x8000 | 40, Vec::new()).is_err(), "128 frames");
        assert!(Clock::new(0, Vec::new()).is_err());
    }

    #[test]
    fn a_piece_of_days_is_refused() {
        let clock = Clock::new(1, vec![(0, 0xFF_FFFF)]).unwrap();
        let reason = clock.step(1 << 28).unwrap_err();
        assert!(reason.starts_with("lasts 1250") && reason.ends_with("at most 24"), "{reason}");
    }
}
