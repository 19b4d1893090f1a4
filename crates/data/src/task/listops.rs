use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_random::Random;
use whatwhere_settings::Refuses;

use super::{Example, Task};
use crate::{Error, Result};

/// ListOps: the value of a nested expression, `[MAX 2 [MIN 9 4 ] 0 ]` is 4.
/// Nangia and Bowman 2018, <https://arxiv.org/abs/1804.06028>; as Long Range Arena makes it, Tay et al. 2020, <https://arxiv.org/abs/2011.04006>.
/// Operators are MIN, MAX, MED (median, rounded down) and SM (sum modulo 10); expressions outside the lengths are drawn again.
/// Follow the structure. The defaults are those of Long Range Arena; `shortest = 5, longest = 100, depth = 4` is a small start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListOps {
    /// Deepest nesting, the outermost operator counted; default 10.
    pub depth: usize,
    /// Most arguments of an operator; default 10.
    pub arguments: usize,
    /// Fewest symbols of an expression; default 501.
    pub shortest: usize,
    /// Most symbols of an expression; default 1999.
    pub longest: usize,
    /// File of values and expressions to read instead of making them, split by the shares; default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

impl Default for ListOps {
    fn default() -> Self {
        Self { depth: 10, arguments: 10, shortest: 501, longest: 1999, path: None }
    }
}

const OPERATORS: [&str; 4] = ["[MIN", "[MAX", "[MED", "[SM"];
const NESTS: f64 = 0.25; // Long Range Arena's share of arguments that are expressions
pub(crate) const ASKS: &str = "="; // closes the prompt, so that the value is said after it
const DRAWS: usize = 1_000_000;

impl Task for ListOps {
    fn check(&self) -> Result<()> {
        if self.depth < 2 {
            return Err(Error::setting("source.depth", self.depth, "expected at least 2"));
        }
        if self.arguments < 2 {
            return Err(Error::setting("source.arguments", self.arguments, "expected at least 2"));
        }
        super::check_range(self.shortest, self.longest, 4, usize::MAX / 4)?;
        // The most symbols of a tree whose leaves stand at `depth`.
        let levels = u32::try_from(self.depth - 1).unwrap_or(u32::MAX);
        let most = (0..levels.min(64))
            .fold(1usize, |inner, _| inner.saturating_mul(self.arguments).saturating_add(2));
        // Nearly full trees are never drawn; a tenth is found within some thousand draws.
        if self.shortest > most / 10 && self.shortest > 4 {
            let reason = format!(
                "depth = {} and arguments = {} make at most {most} symbols, and hardly ever more than a tenth of that",
                self.depth, self.arguments
            );
            return Err(Error::setting("source.shortest", self.shortest, reason));
        }
        if self.longest < self.shortest.saturating_mul(2).min(self.shortest + 20) {
            let reason = format!("leaves too little room above shortest = {}", self.shortest);
            return Err(Error::setting("source.longest", self.longest, reason));
        }
        Ok(())
    }

    fn symbols(&self) -> Vec<String> {
        let digits = (0..10).map(|digit| digit.to_string());
        digits
            .chain([OPERATORS.as_slice(), &["]", ASKS]].concat().iter().map(|s| s.to_string()))
            .collect()
    }

    fn longest(&self) -> (usize, usize) {
        (self.longest + 1, 1)
    }

    fn classes(&self) -> Option<Vec<String>> {
        Some(DIGITS.map(String::from).into())
    }

    fn example(&self, random: &mut Random) -> Example {
        let mut words = Vec::new();
        for _ in 0..DRAWS {
            words.clear();
            let value = self.expression(1, random, &mut words);
            if (self.shortest..=self.longest).contains(&words.len()) {
                words.push(ASKS);
                return Example { prompt: words.join(" "), answer: value.to_string() };
            }
        }
        // Only for lengths that the check lets pass and chance does not: the smallest expression.
        Example { prompt: format!("[MAX 0 0 ] {ASKS}"), answer: "0".into() }
    }
}

const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

impl ListOps {
    /// Writes an expression and gives its value; stops writing where it is too long to be kept.
    fn expression(
        &self,
        depth: usize,
        random: &mut Random,
        words: &mut Vec<&'static str>,
    ) -> usize {
        let nests = depth < self.depth && random.uniform() < NESTS;
        if !nests || words.len() > self.longest {
            let digit = random.below(10);
            words.push(DIGITS[digit]);
            return digit;
        }
        let operator = random.below(OPERATORS.len());
        words.push(OPERATORS[operator]);
        let arguments = random.between(2, self.arguments);
        let mut values: Vec<usize> =
            (0..arguments).map(|_| self.expression(depth + 1, random, words)).collect();
        words.push("]");
        values.sort_unstable();
        let middle = values.len() / 2;
        match operator {
            0 => values[0],
            1 => values[values.len() - 1],
            2 if values.len() % 2 == 1 => values[middle],
            2 => (values[middle - 1] + values[middle]) / 2,
            _ => values.iter().sum::<usize>() % 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// The value of an expression, by a stack: nothing in common with how expressions are made.
    fn solve(prompt: &str) -> i64 {
        let mut stack: Vec<(&str, Vec<i64>)> = vec![("", Vec::new())];
        for word in prompt.split(' ') {
            if let Ok(digit) = word.parse() {
                stack.last_mut().unwrap().1.push(digit);
            } else if word == "]" {
                let (operator, values) = stack.pop().unwrap();
                let mut sorted = values.clone();
                sorted.sort_unstable();
                let (low, high) = ((sorted.len() - 1) / 2, sorted.len() / 2);
                let value = match operator {
                    "[MIN" => sorted[0],
                    "[MAX" => sorted[sorted.len() - 1],
                    "[MED" => (sorted[low] + sorted[high]) / 2,
                    "[SM" => values.iter().sum::<i64>() % 10,
                    "[PM" => values.iter().product::<i64>() % 10,
                    "[FIRST" => values[0],
                    "[LAST" => values[values.len() - 1],
                    other => panic!("{other}"),
                };
                stack.last_mut().unwrap().1.push(value);
            } else if word != ASKS {
                stack.push((word, Vec::new()));
            }
        }
        stack[0].1[0]
    }

    #[test]
    fn values_are_those_of_a_stack_and_lengths_are_kept() {
        let small = ListOps { depth: 4, arguments: 5, shortest: 5, longest: 40, path: None };
        for (task, count) in [(small, 1000), (ListOps::default(), 40)] {
            task.check().unwrap();
            for i in 0..count {
                let Example { prompt, answer } = task.example(&mut Random::new(&[i]));
                assert_eq!(answer, solve(&prompt).to_string(), "{prompt}");
                let length = prompt.split(' ').count() - 1;
                assert!((task.shortest..=task.longest).contains(&length), "{length}");
            }
        }
    }

    #[test]
    fn the_published_files_have_the_values_of_the_stack() {
        let shared = std::env::var_os("WHATWHERE_SHARED")
            .map_or_else(|| "../../../shared".into(), PathBuf::from);
        let folder = shared.join("data/listops");
        if !folder.exists() {
            // The real standard error, which the test harness does not hold back; nobody to tell if it is closed.
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: no {}; set WHATWHERE_SHARED",
                folder.display()
            );
            return;
        }
        for name in ["d5c", "d8", "d14", "d20", "d20a", "d20s"] {
            let path = folder.join(format!("test_{name}.tsv.zst"));
            let examples = crate::read::listops(&path).unwrap();
            assert_eq!(examples.len(), 10_000);
            let right = examples.iter().filter(|(_, e)| solve(&e.prompt).to_string() == e.answer);
            assert_eq!(right.count(), 10_000, "{name}");
        }
    }
}
