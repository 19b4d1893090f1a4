//! ListOps in tab-separated values: the value, then the expression; parentheses of a binary tree are left out.

use std::path::Path;

use super::{lines, open};
use crate::{
    Error, Result,
    task::{ASKS, Example},
};

/// Reads all examples of a file, each with its line.
pub(crate) fn listops(path: &Path) -> Result<Vec<(usize, Example)>> {
    let name = path.display().to_string();
    let mut examples = Vec::new();
    lines(&name, &mut open(path)?.1, &mut |number, line| {
        let value = line.split_once('\t').filter(|(value, _)| {
            value.len() == 1 && value.bytes().all(|byte| byte.is_ascii_digit())
        });
        let Some((value, expression)) = value else {
            let start: String = line.chars().take(20).collect();
            let reason = format!("found {start:?}, expected a digit, a tab and an expression");
            return Err(Error::content(format!("{name}, line {number}"), reason));
        };
        let words = expression.split_whitespace().filter(|&word| word != "(" && word != ")");
        let prompt = words.chain([ASKS]).collect::<Vec<_>>().join(" ");
        examples.push((number, Example { prompt, answer: value.into() }));
        Ok(())
    })?;
    if examples.is_empty() {
        return Err(Error::content(name, "is empty, expected a digit, a tab and an expression"));
    }
    Ok(examples)
}
