//! Special tokens by id: files of others name them, and not by names that we know.

use super::{Form, Specials, Tokenizer};

/// Special tokens by id, as a model's own files name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Starts a target.
    pub begin: Option<u32>,
    /// Each of them ends a document; the first is the one that is written.
    pub ends: Vec<u32>,
    /// Fills rows.
    pub padding: Option<u32>,
    /// Hides a token.
    pub mask: Option<u32>,
    /// Stands for what has no token.
    pub unknown: Option<u32>,
}

impl Tokenizer {
    /// The same with special tokens by id instead of by name; what is not said stays as it was.
    pub fn with_special_ids(&self, ids: &SpecialTokens) -> Self {
        let known =
            |id: Option<u32>, before| id.filter(|id| (*id as usize) < self.names.len()).or(before);
        let before = &self.specials;
        let specials = Specials {
            padding: known(ids.padding, before.padding),
            begin: known(ids.begin, before.begin),
            end: known(ids.ends.first().copied(), before.end),
            mask: known(ids.mask, before.mask),
            unknown: known(ids.unknown, before.unknown),
            other_ends: ids.ends.iter().skip(1).copied().collect(),
        };
        Self { specials, ..self.clone() }
    }

    /// The bytes of a token's text; of a special one those of its name.
    pub fn token_bytes(&self, token: u32) -> Vec<u8> {
        match self.form {
            Form::Bytes | Form::Merges if !self.is_special(token) => self.bytes(token),
            _ => self.token(token).into_bytes(),
        }
    }

    /// The same, which reads names of special tokens in a text as these tokens: for text that a template of a chat made.
    pub fn reading_names(&self) -> Self {
        let mut other = self.clone();
        other.inner.set_encode_special_tokens(false);
        // The general machinery knows names.
        if !matches!(other.form, Form::Merges) {
            other.form = Form::Other;
        }
        other
    }

    /// Whether a token ends a document.
    pub fn ends(&self, token: u32) -> bool {
        self.specials.end == Some(token) || self.specials.other_ends.contains(&token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_are_those_of_the_ids() {
        let words = Tokenizer::of_characters(&"abc".chars().collect(), &[]).unwrap();
        let ids = SpecialTokens { ends: vec![1, 2], mask: Some(99), ..Default::default() };
        let tokenizer = words.with_special_ids(&ids);
        assert_eq!((tokenizer.end(), tokenizer.mask()), (Some(1), None));
        assert!(tokenizer.ends(2) && !tokenizer.ends(0) && tokenizer.is_special(2));
    }
}
