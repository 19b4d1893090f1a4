//! An encoder that is asked: words for blanks, and a vector for a text.

use burn::tensor::activation;
use whatwhere_transformer::{Family, Mode, Pooling, Sequences};

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
        let framed = self.encode("")?;
        // What a tokenizer puts around nothing: as much of it before the text as it begins with.
        let tokenizer = self.tokenizer()?;
        let begins = framed.iter().take_while(|token| !tokenizer.ends(**token)).count();
        let begins = if framed.len() > 1 { begins.clamp(1, framed.len() - 1) } else { begins };
        tokens.splice(..0, framed[..begins].iter().copied());
        tokens.extend(&framed[begins..]);
        positions.iter_mut().for_each(|position| *position += begins);
        Ok(())
    }

    /// One vector for a text, made of the last layer's states; of length 1 if it is to be normalized.
    pub fn embed(&self, text: &str, pooling: Pooling, normalize: bool) -> Result<Vec<f32>, Error> {
        self.embed_tokens(self.encode(text)?, pooling, normalize)
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
