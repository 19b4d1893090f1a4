//! Text from a stream of tokens, as it comes: a character of several bytes waits until it is complete.

use super::{Form, Tokenizer};

/// Decodes token by token; see [`Tokenizer::stream`].
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes of a character that is not complete.
    bytes: Vec<u8>,
    /// Tokens so far, where their text depends on those before.
    tokens: Vec<u32>,
    /// Bytes of their text that were handed out.
    done: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), tokens: Vec::new(), done: 0 }
    }

    /// Goes on after tokens whose text is known.
    pub(super) fn after(tokenizer: &'a Tokenizer, tokens: &[u32]) -> Self {
        let mut decoder = Self::new(tokenizer);
        if let Form::Words(_) | Form::Other = tokenizer.form {
            decoder.tokens = tokens.to_vec();
            decoder.done = tokenizer.decode(tokens).len();
        }
        decoder
    }

    /// The text that a further token completes, possibly none.
    pub fn push(&mut self, token: u32) -> String {
        match self.tokenizer.form {
            Form::Bytes | Form::Merges => {
                self.bytes.extend(self.tokenizer.bytes(token));
                self.complete()
            }
            Form::Characters(_) | Form::Kmers(..) | Form::Words(_) | Form::Other => {
                self.tokens.push(token);
                let text = self.tokenizer.decode(&self.tokens);
                if text.ends_with(char::REPLACEMENT_CHARACTER) {
                    return String::new();
                }
                self.since(&text)
            }
        }
    }

    /// What was held back; bytes that never became a character are `�`.
    pub fn finish(mut self) -> String {
        let rest = String::from_utf8_lossy(&self.bytes).into_owned();
        let text = self.tokenizer.decode(&self.tokens);
        rest + &self.since(&text)
    }

    /// What is new in the text of all tokens so far.
    fn since(&mut self, text: &str) -> String {
        let new = text.get(self.done..).unwrap_or_default().to_string();
        self.done = self.done.max(text.len());
        new
    }

    /// Takes the complete characters, and what can no longer become one, out of the bytes.
    fn complete(&mut self) -> String {
        let mut text = String::new();
        let mut waiting = 0;
        for chunk in self.bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            waiting = chunk.invalid().len();
            let last = chunk.invalid().as_ptr_range().end == self.bytes.as_ptr_range().end;
            let incomplete = waiting > 0
                && last
                && std::str::from_utf8(chunk.invalid()).is_err_and(|e| e.error_len().is_none());
            if waiting > 0 && !incomplete {
                text.push(char::REPLACEMENT_CHARACTER);
                waiting = 0;
            }
        }
        self.bytes.drain(..self.bytes.len() - waiting);
        text
    }
}
