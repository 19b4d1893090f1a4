//! Order without positions: what a model that sees both ways cannot tell, and one that reads from the left can.

use burn::tensor::Device;
use whatwhere_transformer::{Mode, ModelSettings, Sequences};

use super::{Finding, Judgement};
use crate::Error;

const LENGTH: u32 = 24;
/// Largest difference of states that rounding explains.
const ROUNDING: f64 = 1e-4;

/// Turns a sequence round before its last token and looks whether that token's state stays the same.
pub(super) fn measure() -> Result<Vec<Finding>, Error> {
    [
        ("encoder", "none", false),
        ("decoder", "none", true),
        ("encoder", "sinusoidal", true),
        ("encoder", "rotary", true),
    ]
    .into_iter()
    .map(|(family, position, should_tell)| {
        let difference = change(family, position)?;
        let can = if should_tell { "can" } else { "cannot" };
        let tells = difference > ROUNDING;
        Ok(Finding {
            expected: format!("an untrained {family} with position {position} {can} tell order"),
            measured: format!("the last state changes by {difference:.1e} when the tokens before it are turned round"),
            judgement: if tells == should_tell { Judgement::Agrees } else { Judgement::Disagrees },
        })
    })
    .collect()
}

/// The largest change of the last token's state.
fn change(family: &str, position: &str) -> Result<f64, Error> {
    let device = Device::flex();
    // Two layers: one alone that reads from the left sees the same set before its last token, in any order.
    let model = ModelSettings::from_toml(&format!(
        "family = '{family}'\nvocabulary = {LENGTH}\nwidth = 64\nlayers = 2\ninit = 'xavier'\nscale_embeddings = true\n\
         attention = {{ heads = 4, position = '{position}' }}"
    ))?
    .build(7, &device)?;
    let tokens: Vec<u32> = (0..LENGTH).collect();
    let mut turned = tokens.clone();
    turned[..LENGTH as usize - 1].reverse();
    let state = |tokens: &[u32]| -> Result<Vec<f32>, Error> {
        let sequences = Sequences::from_rows(&[tokens]);
        let hidden = model.hidden(None, &sequences, Mode::default())?;
        let [_, length, width] = hidden.dims();
        let last = hidden.slice([0..1, length - 1..length, 0..width]);
        Ok(last.into_data().try_into_vec().expect("f32"))
    };
    let (a, b) = (state(&tokens)?, state(&turned)?);
    Ok(a.iter().zip(&b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_encoder_without_positions_is_blind_to_order() {
        for finding in measure().unwrap() {
            assert_eq!(finding.judgement, Judgement::Agrees, "{finding:?}");
        }
    }
}
