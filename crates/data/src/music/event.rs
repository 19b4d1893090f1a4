//! The vocabulary of performances: 128 note-ons, 128 note-offs, 100 time shifts of 10 ms to 1 s, 32 velocities.
//! Oore et al. 2018, <https://arxiv.org/abs/1808.03715>, with the 10 ms of Huang et al. 2018 (Music Transformer),
//! <https://arxiv.org/abs/1809.04281>. Tokens are numbered in this order, from 0 to 387.

/// Steps of a second: time is counted in 10 ms.
pub(super) const STEPS: u32 = 100;
/// Steps of the longest time shift.
pub(super) const LONGEST_SHIFT: u32 = 100;
/// MIDI's pitches, 60 is the middle C.
pub(super) const PITCHES: u32 = 128;
/// Bins of velocities, of four each.
const BINS: u32 = 32;

/// One event of a performance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A key goes down: a MIDI pitch.
    NoteOn(u8),
    /// A key goes up: a MIDI pitch.
    NoteOff(u8),
    /// Time goes by, in steps of 10 ms: 1 to 100.
    TimeShift(u8),
    /// How hard the keys that follow are struck: a bin of 0 to 31.
    Velocity(u8),
}

impl Event {
    /// Different events.
    pub const COUNT: usize = (2 * PITCHES + LONGEST_SHIFT + BINS) as usize;

    /// Its token.
    pub fn token(self) -> u32 {
        match self {
            Self::NoteOn(pitch) => pitch.into(),
            Self::NoteOff(pitch) => PITCHES + u32::from(pitch),
            Self::TimeShift(steps) => 2 * PITCHES + u32::from(steps) - 1,
            Self::Velocity(bin) => 2 * PITCHES + LONGEST_SHIFT + u32::from(bin),
        }
    }

    /// The event of a token; nothing for special ones.
    pub fn of(token: u32) -> Option<Self> {
        const OFF: u32 = PITCHES;
        const SHIFT: u32 = 2 * PITCHES;
        const VELOCITY: u32 = SHIFT + LONGEST_SHIFT;
        const END: u32 = VELOCITY + BINS;
        Some(match token {
            0..OFF => Self::NoteOn(token as u8),
            OFF..SHIFT => Self::NoteOff((token - OFF) as u8),
            SHIFT..VELOCITY => Self::TimeShift((token - SHIFT + 1) as u8),
            VELOCITY..END => Self::Velocity((token - VELOCITY) as u8),
            _ => return None,
        })
    }

    /// The bin of a velocity of 1 to 127: four of them each.
    pub fn bin(velocity: u8) -> u8 {
        velocity.saturating_sub(1) / 4
    }

    /// The velocity that a bin is played with, one of its middle.
    pub fn velocity(bin: u8) -> u8 {
        4 * bin + 2
    }

    /// What its token is called: `note_on_60`, `note_off_60`, `time_shift_120ms`, `velocity_20`.
    pub fn name(self) -> String {
        match self {
            Self::NoteOn(pitch) => format!("note_on_{pitch}"),
            Self::NoteOff(pitch) => format!("note_off_{pitch}"),
            Self::TimeShift(steps) => {
                format!("time_shift_{}ms", u32::from(steps) * 1000 / STEPS)
            }
            Self::Velocity(bin) => format!("velocity_{bin}"),
        }
    }

    /// The names of all, by token.
    pub(crate) fn names() -> Vec<String> {
        (0..Self::COUNT as u32).filter_map(Self::of).map(Self::name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_one_event_and_back() {
        assert_eq!(Event::COUNT, 388);
        for token in 0..388 {
            assert_eq!(Event::of(token).map(Event::token), Some(token));
        }
        assert_eq!(Event::of(388), None);
        let names: std::collections::BTreeSet<String> = Event::names().into_iter().collect();
        assert_eq!(names.len(), 388);
        assert!(names.contains("time_shift_1000ms") && names.contains("velocity_31"));
    }

    #[test]
    fn every_velocity_has_a_bin_that_plays_within_it() {
        for velocity in 1..=127 {
            let bin = Event::bin(velocity);
            assert!(bin < 32);
            assert_eq!(Event::bin(Event::velocity(bin)), bin);
            assert!(Event::velocity(bin).abs_diff(velocity) <= 2, "{velocity}");
        }
    }
}
