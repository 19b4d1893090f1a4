//! Recurrent models: every cell, every way to attend, every score and pattern.

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{Path, Pattern, Score};
use whatwhere_transformer::{
    Mode, Model, ModelSettings, Sequences, Site,
    generate::{Beam, Generator, Sampling},
};

use crate::{
    assert_close, log_probability, missing_gradients, places, row, rows,
    settings::{inputs, pass, shaken},
    values,
};

/// Every shape of a recurrent model.
fn all() -> Vec<String> {
    let mut all = Vec::new();
    for cell in ["gru", "lstm"] {
        let mut add = |extra: &str| {
            all.push(format!("recurrent = '{cell}'\nvocabulary = 11\nwidth = 16\n{extra}"));
        };
        for layers in [1, 2] {
            add(&format!("layers = {layers}"));
            add(&format!("layers = {layers}\nembedding_width = 8\ndropout = 0.2"));
            for bidirectional in [false, true] {
                let both = format!("layers = {layers}\nbidirectional = {bidirectional}");
                add(&format!("{both}\nfamily = 'encoder'"));
                for attends in [
                    "attends = 'none'",
                    "attends = 'before'",
                    "attends = 'after'",
                    "attends = 'after'\ninput_feeding = true",
                ] {
                    add(&format!("{both}\nfamily = 'encoder_decoder'\n{attends}"));
                }
            }
        }
        for attends in ["'before'", "'after'", "'after'\ninput_feeding = true"] {
            let pair = format!(
                "layers = 2\nfamily = 'encoder_decoder'\ntied = false\ndropout = 0.2\nattends = {attends}"
            );
            for score in Score::NAMES {
                for heads in ["heads = 1", "heads = 2, projections = 'all', dropout = 0.1"] {
                    add(&format!("{pair}\ncross = {{ score = '{score}', {heads} }}"));
                }
            }
            // Luong's local-m and local-p, and what else shows a query of one sequence keys of another.
            for pattern in Pattern::NAMES.iter().filter(|name| !["and", "or"].contains(name)) {
                add(&format!("{pair}\ncross = {{ pattern = '{pattern}' }}"));
            }
            for pattern in [
                "'window', left = 1, right = 1",
                "'predicted', radius = 2",
                "'or', of = [{ kind = 'window', left = 1 }, { kind = 'window', left = 0, right = 1 }]",
            ] {
                add(&format!("{pair}\ncross = {{ pattern = {{ kind = {pattern} }} }}"));
            }
        }
    }
    all
}

fn settings(text: &str) -> ModelSettings {
    ModelSettings::from_toml(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Whether a pattern needs more than a model of two sequences says of them.
fn is_fed(settings: &ModelSettings, model: &Model) -> bool {
    let (source, tokens) = inputs(model);
    let found = model.forward(source.as_ref(), &tokens, Mode::default());
    found.is_ok() || settings.cross.is_empty()
}

#[test]
fn both_paths_agree_and_every_parameter_learns() {
    let (mut count, mut refused) = (0, 0);
    for text in all() {
        let settings = settings(&text);
        let model = shaken(&settings, &Device::flex().autodiff());
        if !is_fed(&settings, &model) {
            refused += 1;
            continue;
        }
        let seed = (settings.dropout > 0.0).then_some(5);
        let [fused, composed] = [Path::Fused, Path::Composed].map(|path| pass(&model, path, seed));
        assert_close(&fused.0, &composed.0, &text);
        for ((name, fused), (_, composed)) in fused.1.iter().zip(&composed.1) {
            let most = composed.iter().fold(1.0, |most: f32, d| most.max(d.abs()));
            let far = fused.iter().zip(composed).map(|(a, b)| (a - b).abs() / most);
            let far = far.fold(0.0, f32::max);
            assert!(far < 1e-4, "{name}: {far} of {most}, {text}");
        }
        let (source, tokens) = inputs(&model);
        let logits = model.forward(source.as_ref(), &tokens, Mode::default()).unwrap();
        let gradients = logits.powi_scalar(2).sum().backward();
        let missing = missing_gradients(&model, &gradients);
        // Under patterns of long texts some of these few tokens see nothing.
        assert!(missing.is_empty() || text.contains("pattern = '"), "{missing:?}: {text}");
        count += 1;
    }
    // Documents stand in one sequence: their pattern is refused where there are two.
    assert!(count > 120 && refused <= 6, "{count} of {}", count + refused);
}

#[test]
fn any_steps_equal_one_pass() {
    for text in all() {
        let settings = settings(&text);
        let model = shaken(&settings, &Device::flex());
        if text.contains("'encoder'") || !is_fed(&settings, &model) {
            continue;
        }
        let (source, tokens) = inputs(&model);
        let whole = values(model.forward(source.as_ref(), &tokens, Mode::default()).unwrap());
        let mut state = model.start(source.as_ref()).unwrap();
        let steps = [0..1, 1..2, 2..5, 5..6, 6..9]
            .map(|range| model.step(&places(&tokens, range), &mut state).unwrap());
        assert_close(&values(Tensor::cat(steps.to_vec(), 1)), &whole, &text);
        assert!(state.rollback(1).unwrap_err().to_string().contains("no token can be taken back"));
    }
}

#[test]
fn padding_changes_nothing() {
    for text in all() {
        let settings = settings(&text);
        let model = shaken(&settings, &Device::flex());
        if !is_fed(&settings, &model) {
            continue;
        }
        let short = rows(1, 4);
        let mut padded = rows(2, 9);
        padded.lengths = Some(vec![4, 9]);
        let of = |source: Option<&Sequences>, tokens: &Sequences| {
            values(model.hidden(source, tokens, Mode::default()).unwrap())
        };
        let (alone, among) = match (&settings.family, text.contains("_decoder")) {
            (_, true) => {
                let tokens = rows(2, 5);
                (of(Some(&short), &row(&tokens, 0)), of(Some(&padded), &tokens))
            }
            _ => (of(None, &short), of(None, &padded)),
        };
        assert_close(&alone[..4 * 16], &among[..4 * 16], &text);
    }
}

#[test]
fn no_token_is_seen_before_its_turn() {
    for text in all().into_iter().filter(|text| !text.contains("'encoder'")) {
        let settings = settings(&text);
        let model = shaken(&settings, &Device::flex());
        if !is_fed(&settings, &model) {
            continue;
        }
        let (source, tokens) = inputs(&model);
        let mut others = tokens.ids().to_vec();
        others[6] = (others[6] + 1) % 11;
        let of = |tokens: &Sequences| {
            values(model.hidden(source.as_ref(), tokens, Mode::default()).unwrap())
        };
        let (one, other) = (of(&tokens), of(&Sequences::new(others, 2)));
        assert_eq!(one[..6 * 16], other[..6 * 16], "{text}");
        assert_ne!(one[6 * 16..7 * 16], other[6 * 16..7 * 16], "{text}");
    }
}

#[test]
fn a_beam_keeps_each_sequence_with_its_state() {
    for attends in ["'none'", "'before'", "'after'", "'after'\ninput_feeding = true"] {
        let text = format!(
            "recurrent = 'lstm'\nfamily = 'encoder_decoder'\nvocabulary = 4\nwidth = 16\nlayers = 2\nbidirectional = true\n\
             attends = {attends}"
        );
        let model = shaken(&settings(&text), &Device::flex());
        let source = Sequences::from_rows(&[vec![2, 3, 2], vec![3, 3, 2], vec![3, 2, 3]]);
        let beam = |width| Beam {
            width,
            length_penalty: 0.6,
            limit: 7,
            begin: 0,
            end: 1,
            forced: None,
            never: None,
        };
        for (at, found) in beam(3).search(&model, &source).unwrap().iter().enumerate() {
            let one = row(&source, at);
            for found in found {
                // What ran into the limit has no end.
                let ended = [&found.tokens[..], &[1]].concat();
                let with_end = log_probability(&model, &one, 0, &ended);
                let without = match found.tokens[..] {
                    [] => 0.0,
                    _ => log_probability(&model, &one, 0, &found.tokens),
                };
                let is_one = |p: f64| (p - found.log_probability).abs() < 1e-3;
                assert!(is_one(with_end) || is_one(without), "{found:?} {with_end} {text}");
            }
        }
        for (at, found) in beam(1).search(&model, &source).unwrap().iter().enumerate() {
            let one = row(&source, at);
            let stop = |token| match token {
                1 => std::ops::ControlFlow::Break(()),
                _ => std::ops::ControlFlow::Continue(()),
            };
            let greedy = Generator::speculative(&model);
            let mut greedy =
                greedy.generate(Some(&one), &[0], 7, &Sampling::greedy(), stop).unwrap();
            greedy.retain(|token| *token != 1);
            assert_eq!(found[0].tokens, greedy, "{text}");
        }
    }
}

#[test]
fn weights_of_the_alignment_mix_the_source_to_what_is_found() {
    let device = Device::flex();
    for (attends, feeding) in [("before", false), ("after", false), ("after", true)] {
        for pattern in [
            "'full'",
            "{ kind = 'window', left = 1, right = 1 }",
            "{ kind = 'predicted', radius = 2 }",
        ] {
            let text = format!(
                "recurrent = 'gru'\nfamily = 'encoder_decoder'\nvocabulary = 11\nwidth = 16\nlayers = 1\nattends = '{attends}'\n\
                 input_feeding = {feeding}\ncross = {{ score = 'additive', pattern = {pattern} }}"
            );
            let model = shaken(&settings(&text), &device);
            let mut source = rows(2, 7);
            source.lengths = Some(vec![7, 4]);
            let seen = model.attention_inputs(Some(&source), &rows(2, 5)).unwrap();
            assert_eq!(seen.len(), 1);
            let attention = model.attention(Site::Cross, 0).unwrap();
            let weights = attention.weights(seen[0].input.clone()).unwrap(); // [2, 1, 5, 7]
            assert_eq!(weights.dims(), [2, 1, 5, 7]);
            let hidden = weights.clone().narrow(0, 1, 1).narrow(3, 4, 3);
            assert_eq!(values(hidden.squeeze_dim::<3>(0)), [0.0; 15], "padding has no weight");
            // Values are the states of the source as they are.
            let mixed = weights.squeeze_dim::<3>(1).matmul(seen[0].input.memory.clone().unwrap());
            let found = attention.forward(seen[0].input.clone()).unwrap();
            assert_close(&values(mixed), &values(found), &text);
        }
    }
    let text = "recurrent = 'gru'\nvocabulary = 11\nwidth = 16\nlayers = 1";
    let model = settings(text).build(1, &device).unwrap();
    let message = model.attention_inputs(None, &rows(1, 4)).err().unwrap().to_string();
    assert!(message.contains("has no weights to look at"), "{message}");
}

/// The same setting in a Transformer.
#[test]
fn blocks_without_projections_agree_on_both_paths_and_in_steps() {
    for family in ["decoder", "encoder", "encoder_decoder"] {
        for projections in ["compared", "none"] {
            for more in ["", ", score = 'general'", ", qk_norm = true, position = 't5'"] {
                let text = format!(
                    "family = '{family}'\nvocabulary = 11\nwidth = 16\nlayers = 2\nfeed_forward = 24\n\
                     attention = {{ heads = 2, projections = '{projections}'{more} }}"
                );
                let settings = settings(&text);
                let model = shaken(&settings, &Device::flex().autodiff());
                let [fused, composed] =
                    [Path::Fused, Path::Composed].map(|path| pass(&model, path, None));
                assert_close(&fused.0, &composed.0, &text);
                for ((name, fused), (_, composed)) in fused.1.iter().zip(&composed.1) {
                    let most = composed.iter().fold(1.0, |most: f32, d| most.max(d.abs()));
                    let far = fused.iter().zip(composed).map(|(a, b)| (a - b).abs() / most);
                    assert!(far.fold(0.0, f32::max) < 1e-4, "{name} {text}");
                }
                if family == "encoder" {
                    continue;
                }
                let model = shaken(&settings, &Device::flex());
                let (source, tokens) = inputs(&model);
                let whole = model.forward(source.as_ref(), &tokens, Mode::default()).unwrap();
                let mut state = model.start(source.as_ref()).unwrap();
                let steps = [0..4, 4..5, 5..9]
                    .map(|range| model.step(&places(&tokens, range), &mut state).unwrap());
                assert_close(&values(Tensor::cat(steps.to_vec(), 1)), &values(whole), &text);
            }
        }
    }
}

#[test]
fn what_a_recurrence_cannot_do_is_refused() {
    let device = Device::flex();
    let text = "recurrent = 'gru'\nvocabulary = 11\nwidth = 16\nlayers = 1";
    let model = settings(text).build(1, &device).unwrap();
    assert!(model.to_int8().unwrap_err().to_string().contains("no int8 layers"));
    let mut tokens = rows(1, 4);
    tokens.prefixes = Some(vec![2]);
    let message = model.forward(None, &tokens, Mode::default()).unwrap_err().to_string();
    assert!(message.contains("reads from the left only"), "{message}");
    let encoder = settings(&format!("family = 'encoder'\n{text}")).build(1, &device).unwrap();
    assert!(encoder.start(None).unwrap_err().to_string().contains("does not write"));
    let both = settings(&format!("family = 'encoder_decoder'\n{text}")).build(1, &device).unwrap();
    let message = both.forward(None, &rows(1, 3), Mode::default()).unwrap_err().to_string();
    assert!(message.contains("needs a source"), "{message}");
    let state = both.start(Some(&rows(2, 3)));
    let mut state = state.unwrap();
    assert!(state.reorder(&[2]).is_err());
}

#[test]
fn classes_are_told_by_a_recurrence() {
    let device = Device::flex();
    for extra in ["", "family = 'encoder'\nbidirectional = true", "pooling = 'mean'"] {
        let text = format!(
            "recurrent = 'lstm'\nvocabulary = 11\nwidth = 16\nlayers = 2\nclasses = 3\n{extra}"
        );
        let model = shaken(&settings(&text), &device);
        let mut padded = rows(2, 9);
        padded.lengths = Some(vec![4, 9]);
        let of = |tokens: &Sequences| -> Vec<f32> {
            let logits = model.classify(tokens, Mode::default()).unwrap();
            logits.into_data().try_to_vec().unwrap()
        };
        assert_close(&of(&rows(1, 4)), &of(&padded)[..3], &text);
    }
}
