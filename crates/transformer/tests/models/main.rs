//! What holds for every family and every encoding.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod classes;
mod generation;
mod int8;
mod recurrent;
mod settings;
mod together;
mod weights;

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{Input, Path, Position};
use whatwhere_transformer::{
    Mode, Model, ModelSettings, Segments, Sequences, Site,
    generate::{Beam, Generator, Sampling},
};

const FAMILIES: [&str; 3] = ["decoder", "encoder", "encoder_decoder"];

/// Room for sums in another order.
const TOLERANCE: f32 = 2e-4;

fn settings(family: &str, extra: &str) -> ModelSettings {
    let text = format!(
        "family = '{family}'\nvocabulary = 11\nwidth = 16\nlayers = 2\nfeed_forward = 24\n{extra}"
    );
    ModelSettings::from_toml(&text).unwrap()
}

fn attention(position: &Position) -> String {
    format!("attention = {{ heads = 2, position = '{}' }}", position.name())
}

fn rows(batch: usize, length: usize) -> Sequences {
    let row = |i: usize| (0..length).map(move |j| ((i * 5 + j * 3 + j * j) % 11) as u32);
    Sequences::new((0..batch).flat_map(row).collect(), batch)
}

/// Some places of every row.
fn places(tokens: &Sequences, places: std::ops::Range<usize>) -> Sequences {
    let rows = tokens.ids().chunks(tokens.dims()[1]);
    Sequences::from_rows(&rows.map(|row| &row[places.clone()]).collect::<Vec<_>>())
}

/// One row.
fn row(tokens: &Sequences, row: usize) -> Sequences {
    let length = tokens.dims()[1];
    Sequences::from_rows(&[&tokens.ids()[row * length..][..length]])
}

fn values(tensor: Tensor<3>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn assert_close(a: &[f32], b: &[f32], what: &str) {
    assert_eq!(a.len(), b.len(), "{what}");
    let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far < TOLERANCE, "{what}: {far}");
}

#[test]
fn every_parameter_of_every_family_receives_a_gradient() {
    let device = Device::flex().autodiff();
    for family in FAMILIES {
        for position in Position::all() {
            for extra in [
                "",
                "norm = 'layer'\nbias = true\nnorm_place = 'post'\nactivation = 'swiglu'\ntied = false\n",
            ] {
                let settings = settings(family, &format!("{extra}{}", attention(&position)));
                let model = settings.build(3, &device).unwrap();
                let source = rows(2, 7);
                let source = (family == "encoder_decoder").then_some(&source);
                let logits = model.forward(source, &rows(2, 9), Mode::default()).unwrap();
                let gradients = logits.powi_scalar(2).sum().backward();
                let missing = missing_gradients(&model, &gradients);
                assert!(missing.is_empty(), "{family} {}: {missing:?}", position.name());
            }
        }
    }
}

/// Names of parameters without a gradient, or with nothing but zeros.
fn missing_gradients(model: &Model, gradients: &burn::tensor::Gradients) -> Vec<String> {
    use burn::module::{Module, ModuleVisitor, Param};
    struct Missing<'a> {
        gradients: &'a burn::tensor::Gradients,
        path: Vec<String>,
        names: Vec<String>,
    }
    impl ModuleVisitor for Missing<'_> {
        fn enter_module(&mut self, name: &str, _: &str) {
            self.path.push(name.into());
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let sum = param.val().grad(self.gradients).map(|g| g.abs().sum().into_scalar::<f32>());
            if param.val().is_require_grad() && sum.is_none_or(|sum| sum == 0.0) {
                self.names.push(self.path.join("."));
            }
        }
    }
    let mut missing = Missing { gradients, path: Vec::new(), names: Vec::new() };
    model.visit(&mut missing);
    missing.names
}

#[test]
fn writing_token_by_token_equals_one_pass() {
    let device = Device::flex();
    for family in ["decoder", "encoder_decoder"] {
        for position in Position::all() {
            let extra = format!(
                "{}\nalternate = [{{ pattern = {{ kind = 'window', left = 3 }} }}, {{}}]",
                attention(&position)
            );
            let cross = match family {
                "decoder" => "",
                _ => "\ncross = { pattern = { kind = 'window', left = 2, right = 1 } }",
            };
            let model = settings(family, &(extra + cross)).build(3, &device).unwrap();
            let mut source = rows(2, 7);
            source.lengths = Some(vec![7, 4]);
            let source = (family == "encoder_decoder").then_some(&source);
            let tokens = rows(2, 9);
            let whole = values(model.forward(source, &tokens, Mode::default()).unwrap());
            let mut state = model.start(source).unwrap();
            let steps: Vec<Tensor<3>> = (0..9)
                .map(|place| model.step(&places(&tokens, place..place + 1), &mut state).unwrap())
                .collect();
            assert_close(&values(Tensor::cat(steps, 1)), &whole, position.name());
        }
    }
}

#[test]
fn a_segment_sees_the_one_before() {
    let device = Device::flex();
    for position in Position::all().into_iter().filter(|position| !position.embeds()) {
        let extra = format!("segment_memory = 4\n{}", attention(&position));
        // With one layer, keys of the first segment are the same whether they were seen again or kept.
        let mut settings = settings("decoder", &extra);
        settings.layers = 1;
        let model = settings.build(3, &device).unwrap();
        let tokens = rows(2, 8);
        let whole = model.hidden(None, &tokens, Mode::default()).unwrap();
        let mut segments = Segments::default();
        let half = |first| places(&tokens, first..first + 4);
        model.segment(&half(0), &mut segments, Mode::default()).unwrap();
        let second = model.segment(&half(4), &mut segments, Mode::default()).unwrap();
        assert_close(&values(second), &values(whole.narrow(1, 4, 4)), position.name());
        assert_eq!(segments.layers[0].as_ref().unwrap().dims(), [2, 4, 16]);
    }
}

#[test]
fn padding_of_a_source_changes_nothing() {
    let device = Device::flex();
    let model = settings("encoder_decoder", "").build(3, &device).unwrap();
    let tokens = rows(1, 5);
    let short = rows(1, 4);
    let mut padded = rows(1, 9);
    padded.lengths = Some(vec![4]);
    let plain = model.forward(Some(&short), &tokens, Mode::default()).unwrap();
    let masked = model.forward(Some(&padded), &tokens, Mode::default()).unwrap();
    assert_close(&values(plain), &values(masked), "padding");
}

#[test]
fn a_beam_of_one_writes_what_greedy_writes() {
    let device = Device::flex();
    let model = settings("encoder_decoder", "").build(9, &device).unwrap();
    let source = rows(3, 6);
    let beam = Beam {
        width: 1,
        length_penalty: 0.6,
        limit: 12,
        begin: 1,
        end: 2,
        forced: None,
        never: None,
    };
    let found = beam.search(&model, &source).unwrap();
    for (row, found) in found.iter().enumerate() {
        let one = self::row(&source, row);
        let mut greedy = Generator::new(&model)
            .generate(Some(&one), &[1], 12, &Sampling::greedy(), |token| {
                if token == 2 {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                }
            })
            .unwrap();
        if greedy.last() == Some(&2) {
            greedy.pop();
        }
        assert_eq!(found[0].tokens, greedy);
    }
}

#[test]
fn a_forced_token_comes_first_and_a_banned_one_never() {
    let device = Device::flex();
    let model = settings("encoder_decoder", "").build(9, &device).unwrap();
    let source = rows(3, 6);
    let free = Beam {
        width: 3,
        length_penalty: 0.6,
        limit: 12,
        begin: 1,
        end: 2,
        forced: None,
        never: None,
    };
    let without = free.search(&model, &source).unwrap();
    let common = without.iter().flatten().flat_map(|found| &found.tokens).copied();
    let never = common.max_by_key(|token| {
        without.iter().flatten().flat_map(|found| &found.tokens).filter(|t| *t == token).count()
    });
    let beam = Beam { forced: Some(7), never, ..free };
    for found in beam.search(&model, &source).unwrap().iter().flatten() {
        assert_eq!(found.tokens.first(), Some(&7));
        assert!(!found.tokens[1..].iter().any(|token| Some(*token) == never), "{found:?}");
        assert!(found.log_probability.is_finite());
    }
}

/// On a vocabulary this small every target up to the limit can be scored.
#[test]
fn a_wide_beam_finds_the_best_target() {
    let device = Device::flex();
    let mut small = settings("encoder_decoder", "init = 'xavier'");
    small.vocabulary = 4;
    let (begin, end, limit) = (0, 1, 3);
    let model = small.build(4, &device).unwrap();
    let source = Sequences::from_rows(&[vec![2, 3, 2], vec![3, 3, 2]]);
    let beam =
        Beam { width: 64, length_penalty: 0.6, limit, begin, end, forced: None, never: None };
    let found = beam.search(&model, &source).unwrap();
    for (row, found) in found.iter().enumerate() {
        let one = self::row(&source, row);
        let mut best = (f64::NEG_INFINITY, Vec::new());
        let mut open = vec![vec![]];
        for length in 1..=limit {
            let mut longer = Vec::new();
            for tokens in open {
                let ended = [tokens.clone(), vec![end]].concat();
                let penalty = ((5.0 + length as f64) / 6.0).powf(f64::from(0.6f32));
                let score = log_probability(&model, &one, begin, &ended) / penalty;
                if score > best.0 {
                    best = (score, tokens.clone());
                }
                longer.extend(
                    (0..4).filter(|t| *t != end).map(|t| [tokens.clone(), vec![t]].concat()),
                );
            }
            open = longer;
        }
        assert_eq!(found[0].tokens, best.1);
        assert!((found[0].score - best.0).abs() < 1e-4);
    }
}

fn log_probability(model: &Model, source: &Sequences, begin: u32, tokens: &[u32]) -> f64 {
    let input = [&[begin], &tokens[..tokens.len() - 1]].concat();
    let input = Sequences::from_rows(&[input]);
    let logits = model.forward(Some(source), &input, Mode::default()).unwrap();
    let log = values(burn::tensor::activation::log_softmax(logits, 2));
    tokens.iter().enumerate().map(|(i, token)| f64::from(log[i * 4 + *token as usize])).sum()
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let device = Device::flex();
    let decoder = settings(
        "decoder",
        "attention = { heads = 2, position = { kind = 'learned', length = 6 } }",
    );
    let decoder = decoder.build(1, &device).unwrap();
    let refuse = |prompt: &[u32], limit| {
        let each = |_| std::ops::ControlFlow::Continue(());
        Generator::new(&decoder)
            .generate(None, prompt, limit, &Sampling::greedy(), each)
            .unwrap_err()
            .to_string()
    };
    assert!(refuse(&[], 1).contains("the prompt is empty"));
    assert!(refuse(&[99], 1).contains("token 99 is unknown to the model, which has 11"));
    let encoder = settings("encoder", "").build(1, &device).unwrap();
    assert!(encoder.start(None).unwrap_err().to_string().contains("does not write"));
    let both = settings("encoder_decoder", "").build(1, &device).unwrap();
    let message = both.forward(None, &rows(1, 3), Mode::default()).unwrap_err().to_string();
    assert!(message.contains("needs a source"), "{message}");
}

/// Forward and backward of both paths, for every norm, activation and dropout.
#[test]
fn fused_and_composed_models_agree() {
    let device = Device::flex().autodiff();
    for family in FAMILIES {
        for norm in ["rms", "layer"] {
            for activation in ["relu", "gelu", "gelu_tanh", "swiglu"] {
                for place in ["pre", "post"] {
                    let extra = format!(
                        "norm = '{norm}'\nactivation = '{activation}'\nnorm_place = '{place}'\nbias = true\ndropout = 0.2"
                    );
                    let model = settings(family, &extra).build(3, &device).unwrap();
                    let source = rows(2, 7);
                    let source = (family == "encoder_decoder").then_some(&source);
                    let [fused, composed] = [Path::Fused, Path::Composed].map(|path| {
                        let mode = Mode { seed: Some(9), path };
                        let logits = model.forward(source, &rows(2, 9), mode).unwrap();
                        let gradients = logits.clone().powi_scalar(2).sum().backward();
                        let d = model.embedding.weight.val().grad(&gradients).unwrap();
                        (values(logits), d.into_data().try_to_vec::<f32>().unwrap())
                    });
                    assert_close(&fused.0, &composed.0, &extra);
                    let far = fused
                        .1
                        .iter()
                        .zip(&composed.1)
                        .map(|(a, b)| (a - b).abs() / (1.0 + b.abs()));
                    let far = far.fold(0.0, f32::max);
                    assert!(far < 2e-3, "{family} {extra}: {far}");
                }
            }
        }
    }
}

#[test]
fn weights_of_every_layer_mix_the_values_to_what_the_layer_gives() {
    let device = Device::flex();
    for position in Position::all() {
        // Shaw's values join what the weights mix; they are tested where they are.
        let position = match position.name() {
            "shaw" => "{ kind = 'shaw', values = false }".to_owned(),
            name => format!("'{name}'"),
        };
        let extra = format!(
            "attention = {{ heads = 4, kv_heads = 2, dropout = 0.5, pattern = {{ kind = 'window', left = 3 }}, position = {position} }}"
        );
        let model = settings("decoder", &extra).build(3, &device).unwrap();
        let inputs = model.attention_inputs(None, &rows(2, 9)).unwrap();
        assert_eq!(inputs.len(), 2);
        for seen in inputs {
            let (attention, x) = (model.attention(seen.site, seen.layer).unwrap(), seen.input.x);
            let weights = attention.weights(Input::new(x.clone())).unwrap(); // [2, 4, 9, 9]
            let v = attention
                .value
                .as_ref()
                .unwrap()
                .forward(x.clone())
                .reshape([2, 9, 2, 4])
                .swap_dims(1, 2);
            let grouped = [0, 0, 1, 1].map(|head| v.clone().narrow(1, head, 1)).to_vec();
            let mixed = weights.matmul(Tensor::cat(grouped, 1));
            let mixed = mixed.swap_dims(1, 2).reshape([2, 9, 16]);
            let found = values(attention.output.as_ref().unwrap().forward(mixed));
            let expected = values(attention.forward(Input::new(x)).unwrap());
            assert_close(&found, &expected, &position);
        }
    }
}

#[test]
fn every_attention_of_every_family_can_be_looked_into() {
    let device = Device::flex();
    let tokens = rows(1, 4);
    let encoder = settings("encoder", "").build(3, &device).unwrap();
    let seen = encoder.attention_inputs(None, &tokens).unwrap();
    let sites: Vec<_> = seen.iter().map(|seen| (seen.site, seen.layer)).collect();
    assert_eq!(sites, [(Site::Encoder, 0), (Site::Encoder, 1)]);
    let both = settings("encoder_decoder", "").build(3, &device).unwrap();
    assert!(both.attention_inputs(None, &tokens).is_err());
    let seen = both.attention_inputs(Some(&rows(1, 6)), &tokens).unwrap();
    assert_eq!(seen.len(), 6);
    let cross = seen.into_iter().filter(|seen| seen.site == Site::Cross).last().unwrap();
    let attention = both.attention(cross.site, cross.layer).unwrap();
    assert_eq!(attention.weights(cross.input).unwrap().dims()[2..], [4, 6]);
}
