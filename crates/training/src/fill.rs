//! An encoder that is asked: words for blanks, and a vector for a text.

use burn::tensor::activation;
use whatwhere_transformer::{Family, Mode, Pooling, Sequences, Site};

use crate::{BLANK, Error, Filling, Run};

impl Run {
    /// The likeliest tokens for every [`BLANK`] in a text, best first.
    pub fn fill(&self, text: &str, count: usize) -> Result<Vec<Vec<Filling>>, Error> {
        self.require(Family::Encoder, "fill")?;
        let tokenizer = self.tokenizer()?;
        let Some(mask) = tokenizer.mask() else {
            return Err(Error::Settings("the tokenizer has no token for a blank".into()));
        };
        // Where a word's token brings the blank before it, the hidden word has to bring it, too.
        let takes_blank = tokenizer.has_blanks_before_words();
        let mut tokens = Vec::new();
        let mut blanks = Vec::new();
        let parts: Vec<&str> = text.split(BLANK).collect();
        for (part, words) in parts.iter().enumerate() {
            if part > 0 {
                blanks.push(tokens.len());
                tokens.push(mask);
            }
            let before_blank = part + 1 < parts.len() && takes_blank;
            let words = words.strip_suffix(' ').filter(|_| before_blank).unwrap_or(words);
            tokens.extend(tokenizer.encode(words)?);
        }
        if blanks.is_empty() {
            return Err(Error::Settings(format!(
                "found no {BLANK} in the text, expected at least one"
            )));
        }
        self.frame(&mut tokens, &mut blanks)?;
        let sequences = Sequences::from_rows(&[tokens]);
        let logits = self.model().forward(None, &sequences, Mode::default())?;
        let vocabulary = logits.dims()[2];
        let probabilities: Vec<f32> =
            activation::softmax(logits, 2).into_data().try_into_vec().expect("f32");
        Ok(blanks
            .into_iter()
            .map(|position| {
                let row = &probabilities[position * vocabulary..(position + 1) * vocabulary];
                let words = 0..tokenizer.vocabulary().min(vocabulary) as u32;
                let mut best: Vec<u32> =
                    words.filter(|token| !tokenizer.is_special(*token)).collect();
                best.sort_by(|a, b| row[*b as usize].total_cmp(&row[*a as usize]));
                let filling = |token: u32| Filling {
                    text: match tokenizer.token(token) {
                        text if takes_blank => text.strip_prefix(' ').unwrap_or(&text).to_owned(),
                        text => text,
                    },
                    probability: f64::from(row[token as usize]),
                };
                best.into_iter().take(count).map(filling).collect()
            })
            .collect())
    }

    /// Puts around the tokens of a text what its tokenizer puts around any.
    fn frame(&self, tokens: &mut Vec<u32>, positions: &mut [usize]) -> Result<(), Error> {
        let [before, after] = self.frames()?;
        tokens.splice(..0, before.iter().copied());
        tokens.extend(&after);
        positions.iter_mut().for_each(|position| *position += before.len());
        Ok(())
    }

    /// What a tokenizer puts before and after a text: of what it puts around nothing, as much before as it begins with.
    fn frames(&self) -> Result<[Vec<u32>; 2], Error> {
        let mut framed = self.encode("")?;
        let tokenizer = self.tokenizer()?;
        let begins = framed.iter().take_while(|token| !tokenizer.ends(**token)).count();
        let begins = if framed.len() > 1 { begins.clamp(1, framed.len() - 1) } else { begins };
        let after = framed.split_off(begins);
        Ok([framed, after])
    }

    /// One vector for a text, made of the last layer's states; of length 1 if it is to be normalized. A text that is longer
    /// than the model's table of positions is cut ([`Self::encode_to_embed`]).
    pub fn embed(&self, text: &str, pooling: Pooling, normalize: bool) -> Result<Vec<f32>, Error> {
        self.embed_tokens(self.encode_to_embed(text)?.0, pooling, normalize)
    }

    /// The tokens of a text of which a vector is made, and how many it has: more, if the model has a table of fewer positions.
    /// What the tokenizer puts after a text stands after what is left of it, too.
    pub fn encode_to_embed(&self, text: &str) -> Result<(Vec<u32>, usize), Error> {
        let mut tokens = self.encode(text)?;
        let found = tokens.len();
        let site =
            if self.model().family() == Family::Decoder { Site::Decoder } else { Site::Encoder };
        let own = self.settings.model.attention(site, 0).ok();
        let positions =
            own.and_then(|own| own.position.iter().filter_map(|position| position.limit()).min());
        if let Some(positions) = positions.filter(|positions| *positions < found) {
            let [_, after] = self.frames()?;
            let after = if tokens.ends_with(&after) { after } else { Vec::new() };
            tokens.truncate(positions.saturating_sub(after.len()));
            tokens.extend(after);
        }
        Ok((tokens, found))
    }

    /// The same for tokens, which are in the vocabulary.
    pub fn embed_tokens(
        &self,
        tokens: Vec<u32>,
        pooling: Pooling,
        normalize: bool,
    ) -> Result<Vec<f32>, Error> {
        if self.model().family() == Family::EncoderDecoder {
            let reason = "embed needs a model with one stack, this run has two";
            return Err(Error::Settings(reason.into()));
        }
        if tokens.is_empty() {
            return Err(Error::Settings("found no tokens, expected at least 1".into()));
        }
        let sequences = Sequences::from_rows(&[tokens]);
        let hidden = self.model().hidden(None, &sequences, Mode::default())?;
        let [_, length, width] = hidden.dims();
        let states: Vec<f32> = hidden.into_data().try_into_vec().expect("f32");
        let rows = match pooling {
            Pooling::Mean => 0..length,
            Pooling::First => 0..1,
            Pooling::Last => length - 1..length,
        };
        let mut sum = vec![0f64; width];
        for row in rows.clone() {
            for (sum, state) in sum.iter_mut().zip(&states[row * width..]) {
                *sum += f64::from(*state);
            }
        }
        let mut size = rows.len() as f64;
        if normalize {
            size = sum.iter().map(|value| value * value).sum::<f64>().sqrt().max(1e-12);
        }
        Ok(sum.into_iter().map(|value| (value / size) as f32).collect())
    }
}
