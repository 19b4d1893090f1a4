//! Models with int8 weights: the numbers of their levels, whatever stands beside a row and however many threads compute.

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{Mixing, Pattern, Position, Score};
use whatwhere_transformer::{
    Mode, Model, Sequences,
    fused::Targets,
    generate::{Beam, Generator, Sampling},
};

use crate::{FAMILIES, places, row, rows, settings, values};

/// Products of the same numbers whose inputs are rounded to 7 bits and a sign, on one side or after sums in another order,
/// which can move an input by a whole level.
const ROUNDED: f32 = 5e-2;

fn choices() -> Vec<String> {
    let names = |setting: &str, names: &[&str]| -> Vec<String> {
        let choices = names.iter().filter(|name| !["and", "or"].contains(name));
        choices.map(|name| format!("attention = {{ heads = 2, {setting} = '{name}' }}")).collect()
    };
    let mut choices: Vec<String> = [
        "tied = false\nbias = true\nnorm = 'layer'",
        "activation = 'swiglu'\nattention = { heads = 4, kv_heads = 2, qk_norm = 'head' }",
        "norm_place = 'post'\noutput_bias = true\nembedding_width = 8",
        "residual = 'parallel'\nattention.bias = 'qkv'\nbias = true",
        "share_layers = true\nlayers = 3",
    ]
    .map(String::from)
    .into();
    choices.extend(names("position", Position::NAMES));
    choices.extend(names("score", Score::NAMES));
    choices.extend(names("pattern", Pattern::NAMES));
    choices.extend(names("mixing", Mixing::NAMES));
    choices
}

/// Models of all families with every choice, those that are refused left out.
fn models() -> Vec<(String, Model)> {
    let mut models = Vec::new();
    for family in FAMILIES {
        for extra in choices() {
            let text = format!(
                "family = '{family}'\nvocabulary = 11\nwidth = 16\nfeed_forward = 40\nencoder.heads = 2\n{}{extra}",
                if extra.contains("layers = ") { "" } else { "layers = 2\n" }
            );
            let Ok(settings) = whatwhere_transformer::ModelSettings::from_toml(&text) else {
                continue;
            };
            let Ok(model) = settings.build(3, &Device::flex()) else { continue };
            models.push((format!("{family}, {extra}"), model));
        }
    }
    assert!(models.len() > 50, "{} models", models.len());
    models
}

fn inputs(model: &Model) -> (Option<Sequences>, Sequences) {
    let has_source = model.encoder.is_some() && model.decoder.is_some();
    (has_source.then(|| rows(2, 7)), rows(2, 9))
}

fn logits(model: &Model, source: Option<&Sequences>, tokens: &Sequences) -> Vec<f32> {
    values(model.forward(source, tokens, Mode::default()).unwrap())
}

fn far(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let most = b.iter().fold(1.0, |most: f32, b| most.max(b.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / most).fold(0.0, f32::max)
}

#[test]
fn int8_weights_compute_with_the_numbers_they_say() {
    for (what, model) in models() {
        let int8 = model.to_int8().unwrap();
        assert!(int8.is_int8() && !model.is_int8(), "{what}");
        // The parameters it shows are those of its levels, and a model of f32 with them has its logits.
        let shown = int8.parameters();
        for (name, values) in int8.int8_values().unwrap() {
            let own = shown.iter().find(|parameter| parameter.name == name).unwrap();
            assert_eq!(own.values, values.values(), "{name}, {what}");
        }
        let f32 = model.settings().build_with(shown, &Device::flex()).unwrap();
        let (source, tokens) = inputs(&model);
        let [found, want, exact] =
            [&int8, &f32, &model].map(|model| logits(model, source.as_ref(), &tokens));
        let (off, cost) = (far(&found, &want), far(&found, &exact));
        assert!(off < ROUNDED, "{what}: {off}");
        // A state adds up what rounding does to each of its tokens.
        let most = if what.contains("mixing") { 0.3 } else { 0.2 };
        assert!(cost > 0.0 && cost < most, "{what}: {cost}");
        // The same weights under the same settings, which share them.
        let again = int8.with_settings(model.settings()).unwrap();
        assert!(again.is_int8());
        assert_eq!(logits(&again, source.as_ref(), &tokens), found, "{what}");
        // Parameters that are replaced are computed with.
        let replaced = int8.clone().with_parameters(model.parameters()).unwrap();
        assert_eq!(logits(&replaced, source.as_ref(), &tokens), exact, "{what}");
    }
}

#[test]
fn rows_tokens_and_threads_do_not_show_in_the_bits_of_int8() {
    let pools: Vec<rayon::ThreadPool> =
        [1, 3].map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap()).into();
    for (what, model) in models() {
        let model = model.to_int8().unwrap();
        let (source, tokens) = inputs(&model);
        let whole = logits(&model, source.as_ref(), &tokens);
        for pool in &pools {
            let other = pool.install(|| logits(&model, source.as_ref(), &tokens));
            assert_eq!(whole, other, "{what}: {} threads", pool.current_num_threads());
        }
        let length = whole.len() / 2;
        for i in 0..2 {
            let source = source.as_ref().map(|source| row(source, i));
            let alone = logits(&model, source.as_ref(), &row(&tokens, i));
            let among = &whole[i * length..][..length];
            // Products in f32 beside those of blocks sum many rows in another order than few.
            let has_others = ["embedding_width", "general", "disentangled", "predicted", "mixing"];
            match has_others.iter().any(|other| what.contains(other)) {
                true => assert!(far(&alone, among) < ROUNDED, "{what}: row {i} alone"),
                false => assert_eq!(alone, among, "{what}: row {i} alone"),
            }
        }
        if model.decoder.is_none() {
            continue;
        }
        let Ok(mut state) = model.start(source.as_ref()) else { continue };
        let steps = [0..1, 1..2, 2..5, 5..9]
            .map(|range| model.step(&places(&tokens, range), &mut state).unwrap());
        let off = far(&values(Tensor::cat(steps.to_vec(), 1)), &whole);
        // Attention sums in another order.
        assert!(off < ROUNDED, "{what}: {off}");
    }
}

#[test]
fn the_loss_of_int8_is_that_of_its_logits() {
    for extra in ["", "tied = false\noutput_bias = true\noutput_soft_cap = 3.0"] {
        let model = settings("decoder", extra).build(3, &Device::flex()).unwrap();
        let model = model.to_int8().unwrap();
        let tokens = rows(2, 9);
        let hidden = model.hidden(None, &tokens, Mode::default()).unwrap();
        let logits: Vec<f32> = values(model.logits(hidden.clone()));
        let targets: Vec<u32> = (0..18).map(|i| i * 5 % 11).collect();
        let weights: Vec<f32> = (0..18).map(|i| (i % 3) as f32).collect();
        for (weights, smoothing) in [(None, 0.0), (Some(&weights[..]), 0.1)] {
            let targets = Targets { tokens: &targets, weights, smoothing };
            let states = hidden.clone().reshape([18, 16]);
            let (_, found) = model.cross_entropy(states, targets).unwrap();
            let (mut nats, mut correct) = (0.0, 0);
            for (i, logits) in logits.chunks(11).enumerate() {
                let sum: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
                let each = |token: usize| sum.ln() - f64::from(logits[token]);
                let even = (0..11).map(each).sum::<f64>() / 11.0;
                let smoothing = f64::from(smoothing);
                let target = targets.tokens[i] as usize;
                let loss = (1.0 - smoothing) * each(target) + smoothing * even;
                nats += loss * weights.map_or(1.0, |weights| f64::from(weights[i]));
                let best = logits.iter().copied().fold(f32::MIN, f32::max);
                correct += u64::from(logits[target] == best);
            }
            assert!((found.nats - nats).abs() < 1e-3, "{} {nats}", found.nats);
            assert_eq!(found.correct, correct);
        }
    }
}

#[test]
fn int8_writes_and_translates_token_by_token() {
    let model = settings("decoder", "").build(3, &Device::flex()).unwrap().to_int8().unwrap();
    let go_on = |_| std::ops::ControlFlow::Continue(());
    let generator = Generator::without_draft(&model);
    let written = generator.generate(None, &[1, 2], 12, &Sampling::greedy(), go_on).unwrap();
    assert_eq!(generator.drafted(), [0, 0]);
    let mut text = vec![1, 2];
    for token in written {
        let logits = logits(&model, None, &Sequences::from_rows(&[&text]));
        let last = &logits[logits.len() - 11..];
        let best = last.iter().copied().fold(f32::MIN, f32::max);
        assert!(best - last[token as usize] < 1e-3, "{text:?} {token}");
        text.push(token);
    }
    let model = settings("encoder_decoder", "").build(3, &Device::flex()).unwrap();
    let model = model.to_int8().unwrap();
    let (width, limit, (forced, never)) = (3, 8, (None, None));
    let beam = Beam { width, length_penalty: 0.6, limit, begin: 1, end: 2, forced, never };
    let together = beam.search(&model, &rows(2, 7)).unwrap();
    for (i, found) in together.iter().enumerate() {
        let alone = beam.search(&model, &row(&rows(2, 7), i)).unwrap();
        assert_eq!(found[0].tokens, alone[0][0].tokens, "source {i}");
    }
}

#[test]
fn what_is_looked_up_does_not_change_what_int8_writes() {
    let (go_on, mut all) = (|_| std::ops::ControlFlow::Continue(()), [0, 0]);
    for (what, model) in models() {
        if model.decoder.is_none() {
            continue;
        }
        let model = model.to_int8().unwrap();
        let source = model.encoder.is_some().then(|| rows(1, 7));
        for sampling in [
            Sampling::greedy(),
            Sampling { temperature: 0.7, seed: 4, ..Sampling::default() },
            Sampling { top_k: 2, repetition_penalty: 1.2, seed: 5, ..Sampling::default() },
        ] {
            let [plain, speculative] =
                [Generator::without_draft(&model), Generator::speculative(&model)];
            let [want, found] = [&plain, &speculative].map(|generator| {
                generator.generate(source.as_ref(), &[1, 2, 3], 40, &sampling, go_on).unwrap()
            });
            assert_eq!(found, want, "{what}, {sampling:?}");
            for (all, more) in all.iter_mut().zip(speculative.drafted()) {
                *all += more;
            }
        }
    }
    let [drafted, accepted] = all;
    assert!(drafted > 1000 && 5 * accepted > drafted, "{accepted} of {drafted} accepted");
}
