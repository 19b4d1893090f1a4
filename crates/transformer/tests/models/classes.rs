//! Models that tell classes: the pooled head against a plain computation in f64, its gradients, and padding.

use burn::tensor::{Tensor, TensorData};
use whatwhere_attention::Mixing;
use whatwhere_transformer::{Parameter, Pooling, fused::Targets};

use super::*;

const CLASSES: usize = 3;

/// Every family that reads a text by one stack, with every pooling it has.
fn kinds() -> Vec<(&'static str, &'static str)> {
    vec![
        ("encoder", "first"),
        ("encoder", "mean"),
        ("encoder", "last"),
        ("decoder", "mean"),
        ("decoder", "last"),
    ]
}

fn telling(family: &str, pooling: &str, extra: &str) -> ModelSettings {
    settings(family, &format!("classes = {CLASSES}\npooling = '{pooling}'\n{extra}"))
}

/// Rows of these lengths, padded.
fn padded(lengths: &[usize]) -> Sequences {
    let longest = lengths.iter().copied().max().unwrap();
    let mut tokens = rows(lengths.len(), longest);
    tokens.lengths = Some(lengths.to_vec());
    tokens
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn parameter<'a>(all: &'a [Parameter], name: &str) -> &'a Parameter {
    all.iter().find(|parameter| parameter.name == name).unwrap()
}

/// Logits from hidden states by plain loops in f64.
fn plain(model: &Model, tokens: &Sequences, pooling: Pooling) -> Vec<f64> {
    let hidden = model.hidden(None, tokens, Mode::default()).unwrap();
    let [batch, length, width] = hidden.dims();
    let states = values(hidden);
    let lengths = tokens.lengths.clone().unwrap_or_else(|| vec![length; batch]);
    let all = model.parameters();
    let weight = &parameter(&all, "classifier.weight").values;
    let bias = &parameter(&all, "classifier.bias").values;
    let mut logits = Vec::new();
    for (row, real) in lengths.into_iter().enumerate() {
        let places = match pooling {
            Pooling::First => 0..1,
            Pooling::Mean => 0..real,
            Pooling::Last => real - 1..real,
        };
        let count = places.len() as f64;
        let state = |channel: usize| -> f64 {
            let at = |place: usize| f64::from(states[(row * length + place) * width + channel]);
            places.clone().map(at).sum::<f64>() / count
        };
        let pooled: Vec<f64> = (0..width).map(state).collect();
        for class in 0..CLASSES {
            let product =
                |channel: usize| pooled[channel] * f64::from(weight[channel * CLASSES + class]);
            logits.push((0..width).map(product).sum::<f64>() + f64::from(bias[class]));
        }
    }
    logits
}

/// A head that is no longer as it was drawn: its bias is 0 then, and would hide a fault.
fn moved(model: Model) -> Model {
    let mut all = model.parameters();
    for (index, parameter) in all.iter_mut().enumerate() {
        let shift = |(i, value): (usize, &mut f32)| *value += 0.01 * ((i + index) as f32).sin();
        parameter.values.iter_mut().enumerate().for_each(shift);
    }
    model.with_parameters(all).unwrap()
}

#[test]
fn the_pooled_head_is_the_plain_computation() {
    let tokens = padded(&[7, 1, 4]);
    for (family, pooling) in kinds() {
        let settings = telling(family, pooling, "attention.heads = 2");
        let model = moved(settings.build(3, &Device::flex()).unwrap());
        let expected = plain(&model, &tokens, settings.pools());
        for path in [Path::Auto, Path::Fused, Path::Composed] {
            let logits = model.classify(&tokens, Mode { path, seed: None }).unwrap();
            assert_eq!(logits.dims(), [3, CLASSES]);
            for (found, expected) in flat(logits).iter().zip(&expected) {
                let far = (f64::from(*found) - expected).abs();
                assert!(far < 1e-5, "{family} {pooling} {path:?}: {far}");
            }
        }
    }
}

#[test]
fn gradients_are_slopes_of_the_loss() {
    let (tokens, device) = (padded(&[5, 2]), Device::flex().autodiff());
    let targets = || Targets { tokens: &[2, 0], weights: Some(&[0.5, 2.0]), smoothing: 0.1 };
    for (family, pooling) in kinds() {
        let settings = telling(family, pooling, "attention.heads = 2");
        let model = moved(settings.build(3, &device).unwrap());
        let loss = |model: &Model| {
            let pooled = model.pooled(&tokens, Mode::default()).unwrap();
            model.cross_entropy(pooled, targets()).unwrap()
        };
        let gradients = loss(&model).0.backward();
        let classifier = model.classifier.as_ref().unwrap();
        let found = [
            ("classifier.weight", flat(classifier.weight.val().grad(&gradients).unwrap())),
            (
                "classifier.bias",
                flat(classifier.bias.as_ref().unwrap().val().grad(&gradients).unwrap()),
            ),
            ("embedding.weight", flat(model.embedding.weight.val().grad(&gradients).unwrap())),
        ];
        for (name, d) in found {
            for index in (0..d.len()).step_by(7) {
                let at = |step: f32| {
                    let mut all = model.parameters();
                    let own = all.iter_mut().find(|parameter| parameter.name == name).unwrap();
                    own.values[index] += step;
                    loss(&model.clone().with_parameters(all).unwrap()).1.nats
                };
                const STEP: f32 = 4e-3;
                let slope = (at(STEP) - at(-STEP)) / (2.0 * f64::from(STEP));
                let far = (slope - f64::from(d[index])).abs();
                assert!(far < 2e-3, "{family} {pooling} {name} {index}: {slope} {}", d[index]);
            }
        }
        // The framework's operations have the same gradients.
        let composed = Mode { path: Path::Composed, seed: None };
        let logits = model.classify(&tokens, composed).unwrap();
        let fused = model.classify(&tokens, Mode::default()).unwrap();
        let sum = |logits: Tensor<2>| {
            let factor =
                TensorData::new((0..6).map(|i| i as f32).collect::<Vec<_>>(), [2, CLASSES]);
            let gradients = (logits * Tensor::from_data(factor, &device)).sum().backward();
            flat(model.embedding.weight.val().grad(&gradients).unwrap())
        };
        assert_close(&sum(logits), &sum(fused), &format!("{family} {pooling}"));
    }
}

#[test]
fn a_padded_row_is_told_as_the_row_alone() {
    let lengths = [6, 1, 9, 3];
    let tokens = padded(&lengths);
    let mut attentions: Vec<String> = Position::all().iter().map(attention).collect();
    attentions.extend(Mixing::NAMES.iter().map(|mixing| {
        format!("attention = {{ heads = 2, position = 'none', mixing = '{mixing}' }}")
    }));
    attentions.push("attention = { heads = 2, pattern = 'window' }".into());
    let mut tried = 0;
    for (family, pooling) in kinds() {
        for attention in &attentions {
            let text = format!(
                "family = '{family}'\nvocabulary = 11\nwidth = 16\nlayers = 2\nfeed_forward = 24\nclasses = {CLASSES}\n\
                 pooling = '{pooling}'\n{attention}"
            );
            let Ok(settings) = ModelSettings::from_toml(&text) else { continue };
            let model = settings.build(3, &Device::flex()).unwrap();
            let together = flat(model.classify(&tokens, Mode::default()).unwrap());
            for (row, length) in lengths.into_iter().enumerate() {
                let own = &tokens.ids()[row * 9..][..length];
                let alone = model.classify(&Sequences::from_rows(&[own]), Mode::default()).unwrap();
                let what = format!("{family} {pooling} {attention}, row {row}");
                assert_close(&flat(alone), &together[row * CLASSES..][..CLASSES], &what);
            }
            tried += 1;
        }
    }
    assert!(tried > 40, "{tried}");
}

#[test]
fn who_tells_classes_predicts_no_tokens_and_the_other_way_round() {
    let device = Device::flex();
    let model = telling("decoder", "last", "tied = false").build(1, &device).unwrap();
    let refusal = model.forward(None, &rows(1, 3), Mode::default()).unwrap_err().to_string();
    assert!(refusal.contains("tells classes of texts and predicts no tokens"), "{refusal}");
    assert!(model.start(None).is_err());
    assert!(model.parameters().iter().all(|parameter| !parameter.name.starts_with("output")));
    let plain = settings("decoder", "").build(1, &device).unwrap();
    let refusal = plain.classify(&rows(1, 3), Mode::default()).unwrap_err().to_string();
    assert!(refusal.contains("predicts tokens and knows no classes"), "{refusal}");
    let mut empty = rows(2, 3);
    empty.lengths = Some(vec![3, 0]);
    assert!(model.classify(&empty, Mode::default()).is_err());
    for (text, expected) in [
        ("classes = 1", "classes = 1: expected at least 2"),
        ("family = 'encoder_decoder'\nclasses = 3", "a text is read by one stack"),
        ("pooling = 'first'", "sees nothing but itself"),
        ("classes = 2\nsegment_memory = 4", "a text has no segments before it"),
    ] {
        let message = ModelSettings::from_toml(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn int8_weights_tell_nearly_the_same() {
    let tokens = padded(&[7, 1, 4]);
    for extra in ["attention.heads = 2", "attention.heads = 2\ntied = false"] {
        let model = telling("encoder", "mean", extra).build(3, &Device::flex()).unwrap();
        let int8 = model.to_int8().unwrap();
        let [a, b] =
            [&model, &int8].map(|model| flat(model.classify(&tokens, Mode::default()).unwrap()));
        let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far > 0.0 && far < 0.1, "{far}");
    }
}
