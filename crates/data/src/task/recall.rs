use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;

use super::{DIGITS, Example, LETTERS, Task, check_range, letter, symbols};
use crate::Result;

/// Associative recall: pairs of a letter and a digit, then a letter; its digit is the answer: `a4k7b1|k7`.
/// Ba et al. 2016, <https://arxiv.org/abs/1610.06258>. Letters do not repeat.
/// Find by content: the answer follows the letter asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recall {
    /// Fewest pairs; default 4.
    pub shortest: usize,
    /// Most pairs, at most 52; default 26.
    pub longest: usize,
}

impl Default for Recall {
    fn default() -> Self {
        Self { shortest: 4, longest: 26 }
    }
}

impl Task for Recall {
    fn check(&self) -> Result<()> {
        check_range(self.shortest, self.longest, 1, LETTERS.len())
    }

    fn symbols(&self) -> Vec<String> {
        symbols(&format!("{LETTERS}{DIGITS}|"))
    }

    fn longest(&self) -> (usize, usize) {
        (2 * self.longest + 2, 1)
    }

    fn example(&self, random: &mut Random) -> Example {
        let pairs = random.between(self.shortest, self.longest);
        let letters: Vec<char> = LETTERS.chars().collect();
        let keys = random.choose(&letters, pairs);
        let values: Vec<char> = keys.iter().map(|_| letter(DIGITS, random.below(10))).collect();
        let asked = random.below(pairs);
        let given: String =
            keys.iter().zip(&values).flat_map(|(key, value)| [*key, *value]).collect();
        Example { prompt: format!("{given}|{}", keys[asked]), answer: values[asked].to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_follows_the_letter_asked_for() {
        let task = Recall { shortest: 1, longest: 52 };
        for i in 0..2000 {
            let Example { prompt, answer } = task.example(&mut Random::new(&[i]));
            let asked = prompt.chars().last().unwrap();
            let (given, _) = prompt.split_once('|').unwrap();
            assert_eq!(given.matches(asked).count(), 1);
            let place = given.find(asked).unwrap();
            assert_eq!(&given[place + 1..place + 2], answer, "{prompt}");
        }
    }
}
