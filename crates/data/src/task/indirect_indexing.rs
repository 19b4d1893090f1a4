use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{DIGITS, Example, LETTERS, Task, check_range, symbols};
use crate::{Error, Result};

/// Indirect indexing: find a letter in a string, step left or right from it, name the letter there: `NZTUIGWk…,N,+4,I`.
/// Gopalakrishnan et al. 2025 (PoPE), <https://arxiv.org/abs/2509.10534>. The paper's numbers are the defaults.
/// Letters do not repeat; shifts that leave the string are drawn again, which the paper does not say but its examples need.
/// What and where at once: the answer is at a given distance from a given letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IndirectIndexing {
    /// Fewest letters of a string; default 20.
    pub shortest: usize,
    /// Most letters of a string; default 40.
    pub longest: usize,
    /// Number of different letters, at most 52 and at least as many as the longest string has; default 52.
    pub letters: usize,
    /// Largest shift to either side; default 15.
    pub shift: usize,
}

impl Default for IndirectIndexing {
    fn default() -> Self {
        Self { shortest: 20, longest: 40, letters: LETTERS.len(), shift: 15 }
    }
}

impl Task for IndirectIndexing {
    fn check(&self) -> Result<()> {
        if !(1..=LETTERS.len()).contains(&self.letters) {
            return Err(Error::setting("source.letters", self.letters, "expected 1 to 52"));
        }
        check_range(self.shortest, self.longest, 1, self.letters)?;
        if self.shift == 0 {
            return Err(Error::setting("source.shift", 0, "expected at least 1"));
        }
        Ok(())
    }

    fn symbols(&self) -> Vec<String> {
        symbols(&format!("{}{DIGITS},+-", &LETTERS[..self.letters]))
    }

    fn longest(&self) -> (usize, usize) {
        (self.longest + ",a,+,".len() + self.shift.to_string().len(), 1)
    }

    fn example(&self, random: &mut Random) -> Example {
        let length = random.between(self.shortest, self.longest);
        let letters: Vec<char> = LETTERS[..self.letters].chars().collect();
        let string = random.choose(&letters, length);
        let (source, shift, target) = loop {
            let source = random.below(length);
            let shift = random.below(2 * self.shift + 1) as isize - self.shift as isize;
            if let Some(target) = source.checked_add_signed(shift).and_then(|at| string.get(at)) {
                break (string[source], shift, *target);
            }
        };
        let text: String = string.iter().collect();
        Example { prompt: format!("{text},{source},{shift:+},"), answer: target.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, from the prompt's text alone.
    fn solve(prompt: &str) -> char {
        let fields: Vec<&str> = prompt.split(',').collect();
        let place = fields[0].find(fields[1]).unwrap() as i32;
        let shift: i32 = fields[2].parse().unwrap();
        fields[0].as_bytes()[(place + shift) as usize].into()
    }

    #[test]
    fn the_solver_agrees_with_the_papers_examples() {
        assert_eq!(solve("TzbkWoKDyscBepYvfwxEVQtgPa,c,-8,"), 'b');
        assert_eq!(solve("NZTUIGWkXFrhCJDzscat,N,+4,"), 'I');
        assert_eq!(solve("QEOHoUbKfeSrMVNlCzXu,z,-3,"), 'N');
    }

    #[test]
    fn answers_are_right_letters_do_not_repeat_and_all_shifts_occur() {
        let task = IndirectIndexing::default();
        let mut shifts = std::collections::BTreeSet::new();
        let mut lengths = std::collections::BTreeSet::new();
        for i in 0..10_000 {
            let Example { prompt, answer } = task.example(&mut Random::new(&[i]));
            assert_eq!(answer, solve(&prompt).to_string(), "{prompt}");
            let fields: Vec<&str> = prompt.split(',').collect();
            let letters: std::collections::BTreeSet<char> = fields[0].chars().collect();
            assert_eq!(letters.len(), fields[0].len(), "{prompt}");
            assert!(fields[2].starts_with(['+', '-']));
            assert!(prompt.len() <= task.longest().0);
            shifts.insert(fields[2].to_string());
            lengths.insert(fields[0].len());
        }
        assert_eq!(shifts.len(), 31);
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (20..=40).collect::<Vec<_>>());
    }

    #[test]
    fn fewer_letters_are_a_smaller_vocabulary_and_must_fill_the_longest_string() {
        let task = IndirectIndexing { shortest: 6, longest: 9, letters: 9, shift: 2 };
        task.check().unwrap();
        assert_eq!(task.symbols().len(), 9 + 13);
        let Example { prompt, answer } = task.example(&mut Random::new(&[3]));
        assert_eq!(answer, solve(&prompt).to_string());
        assert!(IndirectIndexing { letters: 8, ..task.clone() }.check().is_err());
        assert!(IndirectIndexing { letters: 53, ..task }.check().is_err());
    }

    #[test]
    fn the_vocabulary_is_the_papers() {
        assert_eq!(IndirectIndexing::default().symbols().len(), 65);
    }
}
