//! Other keys and other tempos of a piece, drawn anew each time that training reads it, as Huang et al. 2018.

use whatwhere_random::Random;

use super::{
    event::{Event, PITCHES},
    performance::shift,
};
use crate::settings::Midi;

/// What may happen to a piece.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Augment {
    transpose: i32,
    stretch: Vec<f64>,
}

impl Augment {
    /// What the settings ask for; nothing if they ask for nothing.
    pub(crate) fn of(midi: &Midi) -> Option<Self> {
        let Midi { transpose, stretch, .. } = midi;
        (*transpose > 0 || !stretch.is_empty())
            .then(|| Self { transpose: i32::from(*transpose), stretch: stretch.clone() })
    }

    /// The first `most` tokens of a piece in another key and tempo; special tokens stay.
    pub(crate) fn apply(&self, piece: &[u32], most: usize, random: &mut Random) -> Vec<u32> {
        let semitones = self.semitones(piece, random);
        let factor = match self.stretch.len() {
            0 => 1.0,
            count => self.stretch[random.below(count)],
        };
        let mut tokens = Vec::with_capacity(most.min(piece.len()));
        let (mut time, mut now) = (0u32, 0u32);
        let mut struck = [None; PITCHES as usize];
        for &token in piece {
            if tokens.len() >= most {
                break;
            }
            let moved = |pitch: u8| (i32::from(pitch) + semitones) as u8;
            let (event, least) = match Event::of(token) {
                Some(Event::TimeShift(steps)) => {
                    time += u32::from(steps);
                    continue;
                }
                Some(Event::NoteOn(pitch)) => (Some(Event::NoteOn(moved(pitch))), now),
                // However fast, a note has a step.
                Some(Event::NoteOff(pitch)) => {
                    let begun = struck[usize::from(pitch)].take();
                    (Some(Event::NoteOff(moved(pitch))), begun.map_or(now, |at: u32| at + 1))
                }
                event => (event, now),
            };
            let then = ((f64::from(time) * factor).round() as u32).max(least).max(now);
            shift(then - now, &mut tokens);
            now = then;
            if let Some(Event::NoteOn(pitch)) = Event::of(token) {
                struck[usize::from(pitch)] = Some(now);
            }
            tokens.push(event.map_or(token, Event::token));
        }
        tokens.truncate(most);
        tokens
    }

    /// How far up; as far as every pitch stays one.
    fn semitones(&self, piece: &[u32], random: &mut Random) -> i32 {
        let pitches = piece.iter().filter_map(|token| match Event::of(*token) {
            Some(Event::NoteOn(pitch) | Event::NoteOff(pitch)) => Some(i32::from(pitch)),
            _ => None,
        });
        let (low, high) = pitches
            .fold((i32::MAX, i32::MIN), |(low, high), pitch| (low.min(pitch), high.max(pitch)));
        if low > high {
            return 0;
        }
        let down = self.transpose.min(low);
        let up = self.transpose.min(PITCHES as i32 - 1 - high);
        random.below((down + up + 1) as usize) as i32 - down
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::music::{notes::Note, performance};

    fn piece() -> Vec<Note> {
        let note = |i: u32| Note {
            start: 7 * i,
            end: 7 * i + 1 + i % 40,
            pitch: (30 + (i * 11) % 50) as u8,
            bin: (i % 32) as u8,
        };
        super::super::notes::keyboard((0..300).map(note).collect())
    }

    fn augmented(transpose: u8, stretch: &[f64], seed: u64) -> Vec<Note> {
        let midi = Midi { transpose, stretch: stretch.to_vec(), ..Midi::default() };
        let tokens = performance::events(&piece());
        let augment = Augment::of(&midi).expect("something is asked for");
        performance::notes(&augment.apply(&tokens, usize::MAX / 2, &mut Random::new(&[seed])))
    }

    #[test]
    fn transposed_pieces_have_all_notes_as_many_semitones_away() {
        let mut found = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let moved = augmented(3, &[], seed);
            let by = i32::from(moved[0].pitch) - i32::from(piece()[0].pitch);
            found.insert(by);
            for (a, b) in piece().iter().zip(&moved) {
                assert_eq!(i32::from(b.pitch) - i32::from(a.pitch), by);
                assert_eq!((a.start, a.end, a.bin), (b.start, b.end, b.bin));
            }
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [-3, -2, -1, 0, 1, 2, 3]);
    }

    #[test]
    fn stretched_pieces_have_all_notes_at_times_of_one_factor() {
        for factor in [0.5, 0.95, 1.0, 1.05, 2.0] {
            let stretched = augmented(0, &[factor], 1);
            let mut expected = piece();
            expected.sort_by_key(|note| (note.start, note.pitch));
            assert_eq!(expected.len(), stretched.len(), "{factor}");
            for (a, b) in expected.iter().zip(&stretched) {
                assert_eq!((a.pitch, a.bin), (b.pitch, b.bin));
                for (a, b) in [(a.start, b.start), (a.end, b.end)] {
                    // Half a step of rounding, and a step where a short note must not vanish.
                    assert!(
                        (f64::from(a) * factor - f64::from(b)).abs() <= 1.5,
                        "{a} · {factor}: {b}"
                    );
                }
            }
        }
    }

    #[test]
    fn pitches_stay_pitches_and_special_tokens_stay_themselves() {
        let augment = Augment { transpose: 12, stretch: vec![1.1] };
        let tokens = [
            388,
            Event::NoteOn(127).token(),
            Event::TimeShift(9).token(),
            Event::NoteOff(2).token(),
            388,
        ];
        for seed in 0..50 {
            let found = augment.apply(&tokens, 10, &mut Random::new(&[seed]));
            assert_eq!((found[0], found[4]), (388, 388));
            assert!(matches!(Event::of(found[1]), Some(Event::NoteOn(125..))), "{found:?}");
            assert_eq!(Event::of(found[2]), Some(Event::TimeShift(10)));
        }
    }
}
