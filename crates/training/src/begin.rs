//! What a text begins with that has no prompt.

use whatwhere_random::Random;

use crate::{Error, Run};

impl Run {
    /// What a text without a prompt begins with: a token that says so, the end of a line, a note that a piece may begin with,
    /// or any, as the seed will have it.
    pub fn first_token(&self, seed: u64) -> Result<u32, Error> {
        let tokenizer = self.tokenizer()?;
        if let Some(begin) = tokenizer.begin().filter(|_| self.imported.is_some()) {
            return Ok(begin);
        }
        let line = || match tokenizer.encode("\n").as_deref() {
            Ok([line]) if Some(*line) != tokenizer.unknown() => Some(*line),
            _ => None,
        };
        let note = || self.settings.data.source.music().and_then(|music| music.first(seed));
        let first = tokenizer.end().or(tokenizer.begin()).or_else(line).or_else(note);
        Ok(first.unwrap_or_else(|| {
            let all = 0..tokenizer.vocabulary() as u32;
            let words: Vec<u32> = all.filter(|token| !tokenizer.is_special(*token)).collect();
            words[Random::new(&[seed]).below(words.len())]
        }))
    }
}
