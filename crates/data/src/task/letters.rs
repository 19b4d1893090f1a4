//! Copy, reverse and sort a string of letters: `cab|cab`, `cab|bac`, `cab|abc`.
//! Graves et al. 2014 (Neural Turing Machines), <https://arxiv.org/abs/1410.5401>, for copy and sort; letters may repeat.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{Example, LETTERS, Task, check_range, letter, symbols};
use crate::{Error, Result};

/// Copy a string of letters: `cab|cab`.
/// Graves et al. 2014 (Neural Turing Machines), <https://arxiv.org/abs/1410.5401>; letters may repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Copy {
    /// Fewest letters; default 1.
    pub shortest: usize,
    /// Most letters; default 20.
    pub longest: usize,
    /// Number of different letters, at most 52; default 26.
    pub letters: usize,
}

/// Reverse a string of letters: `cab|bac`. Letters may repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reverse {
    /// Fewest letters; default 1.
    pub shortest: usize,
    /// Most letters; default 20.
    pub longest: usize,
    /// Number of different letters, at most 52; default 26.
    pub letters: usize,
}

/// Sort a string of letters, capitals first: `cab|abc`.
/// Graves et al. 2014 (Neural Turing Machines), <https://arxiv.org/abs/1410.5401>; letters may repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sort {
    /// Fewest letters; default 1.
    pub shortest: usize,
    /// Most letters; default 20.
    pub longest: usize,
    /// Number of different letters, at most 52; default 26.
    pub letters: usize,
}

/// Makes a task on a string of letters with the function that answers it.
macro_rules! on_letters {
    ($task:ident, $answer:expr) => {
        impl Default for $task {
            fn default() -> Self {
                Self { shortest: 1, longest: 20, letters: 26 }
            }
        }

        impl Task for $task {
            fn check(&self) -> Result<()> {
                check_range(self.shortest, self.longest, 1, usize::MAX / 4)?;
                if !(1..=LETTERS.len()).contains(&self.letters) {
                    return Err(Error::setting("source.letters", self.letters, "expected 1 to 52"));
                }
                Ok(())
            }

            fn symbols(&self) -> Vec<String> {
                symbols(&format!("{}|", &LETTERS[..self.letters]))
            }

            fn longest(&self) -> (usize, usize) {
                (self.longest + 1, self.longest)
            }

            fn example(&self, random: &mut Random) -> Example {
                let length = random.between(self.shortest, self.longest);
                let mut string: Vec<char> =
                    (0..length).map(|_| letter(LETTERS, random.below(self.letters))).collect();
                let prompt = string.iter().chain(['|'].iter()).collect();
                let answer: fn(&mut [char]) = $answer;
                answer(&mut string);
                Example { prompt, answer: string.into_iter().collect() }
            }
        }
    };
}

on_letters!(Copy, |_| ());
on_letters!(Reverse, |string| string.reverse());
on_letters!(Sort, |string| string.sort_unstable());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_letters_of_the_prompt_in_the_right_order() {
        for i in 0..1000 {
            let copy = Copy::default().example(&mut Random::new(&[i]));
            assert_eq!(copy.prompt, format!("{}|", copy.answer));
            let reverse = Reverse::default().example(&mut Random::new(&[i]));
            assert_eq!(
                format!("|{}", reverse.answer),
                reverse.prompt.chars().rev().collect::<String>()
            );
            let sort = Sort { letters: 52, ..Sort::default() }.example(&mut Random::new(&[i]));
            assert!(sort.answer.as_bytes().is_sorted());
            for letter in LETTERS.chars() {
                assert_eq!(
                    sort.prompt.matches(letter).count(),
                    sort.answer.matches(letter).count()
                );
            }
        }
    }
}
