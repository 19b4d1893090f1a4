use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;

use super::{DIGITS, Example, Task, check_range, letter, symbols};
use crate::Result;

/// Addition of two numbers: `57+168=225`.
/// Lee et al. 2023, <https://arxiv.org/abs/2307.03381>, find that the reversed sum is easier: its digits depend on what was said.
/// Add, digit by digit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Addition {
    /// Fewest digits of a number; default 1.
    pub shortest: usize,
    /// Most digits of a number; default 5.
    pub longest: usize,
    /// Whether the sum is written from its last digit; default false.
    pub reversed: bool,
}

impl Default for Addition {
    fn default() -> Self {
        Self { shortest: 1, longest: 5, reversed: false }
    }
}

impl Task for Addition {
    fn check(&self) -> Result<()> {
        check_range(self.shortest, self.longest, 1, usize::MAX / 4)
    }

    fn symbols(&self) -> Vec<String> {
        symbols(&format!("{DIGITS}+="))
    }

    fn longest(&self) -> (usize, usize) {
        (2 * self.longest + 2, self.longest + 1)
    }

    fn example(&self, random: &mut Random) -> Example {
        let [first, second] = [(), ()].map(|()| self.number(random));
        let mut answer = sum(&first, &second);
        if self.reversed {
            answer = answer.chars().rev().collect();
        }
        Example { prompt: format!("{first}+{second}="), answer }
    }
}

impl Addition {
    /// Digits without a leading zero, other than 0 itself.
    fn number(&self, random: &mut Random) -> String {
        let length = random.between(self.shortest, self.longest);
        let first = if length == 1 { random.below(10) } else { random.between(1, 9) };
        std::iter::once(first)
            .chain((1..length).map(|_| random.below(10)))
            .map(|digit| letter(DIGITS, digit))
            .collect()
    }
}

/// The sum of two numbers of any length.
fn sum(first: &str, second: &str) -> String {
    let digits = |number: &str| number.bytes().rev().map(|b| b - b'0').collect::<Vec<u8>>();
    let (first, second) = (digits(first), digits(second));
    let at = |number: &[u8], place: usize| number.get(place).copied().unwrap_or(0);
    let mut carry = 0;
    let mut out = Vec::new();
    for place in 0..first.len().max(second.len()) {
        let total = at(&first, place) + at(&second, place) + carry;
        out.push(char::from(b'0' + total % 10));
        carry = total / 10;
    }
    if carry > 0 {
        out.push('1');
    }
    out.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_machine() {
        for reversed in [false, true] {
            let task = Addition { shortest: 1, longest: 30, reversed };
            for i in 0..2000 {
                let Example { prompt, answer } = task.example(&mut Random::new(&[i]));
                let (first, rest) = prompt.split_once('+').unwrap();
                let second = rest.trim_end_matches('=');
                let sum = first.parse::<u128>().unwrap() + second.parse::<u128>().unwrap();
                let answer: String = if reversed { answer.chars().rev().collect() } else { answer };
                assert_eq!(answer, sum.to_string(), "{prompt}");
            }
        }
    }
}
