//! Hiding tokens, as BERT: of the positions to predict most show the mask, some a random token, some the token itself.
//! Devlin et al. 2019, <https://arxiv.org/abs/1810.04805>. Each position is chosen independently of the others;
//! a short row in which none was gets one.

use whatwhere_random::Random;

use super::Row;
use crate::{settings::Masked, tokenizer::Tokenizer};

pub(super) fn hide(
    targets: Vec<u32>,
    masked: &Masked,
    tokenizer: &Tokenizer,
    random: &mut Random,
) -> Row {
    let mut tokens = targets.clone();
    let mut weights = vec![0.0; targets.len()];
    let mask = tokenizer.mask().expect("the objective asked for a mask");
    let positions: Vec<usize> =
        (0..targets.len()).filter(|&position| !tokenizer.is_special(targets[position])).collect();
    let mut chosen: Vec<usize> =
        positions.iter().copied().filter(|_| random.uniform() < masked.share).collect();
    if chosen.is_empty() && !positions.is_empty() {
        chosen.push(positions[random.below(positions.len())]); // a row without a loss teaches nothing
    }
    for position in chosen {
        weights[position] = 1.0;
        let choice = random.uniform();
        if choice < masked.hidden {
            tokens[position] = mask;
        } else if choice < masked.hidden + masked.random {
            tokens[position] = ordinary(tokenizer, random);
        }
    }
    Row { tokens, targets, weights, ..Row::default() }
}

/// A random token that is not special.
fn ordinary(tokenizer: &Tokenizer, random: &mut Random) -> u32 {
    loop {
        let token = random.below(tokenizer.vocabulary()) as u32;
        if !tokenizer.is_special(token) {
            return token;
        }
    }
}
