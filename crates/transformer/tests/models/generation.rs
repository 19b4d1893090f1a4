//! Generation token after token, with a draft and without.

use std::ops::ControlFlow;

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{Pattern, Position, Score};
use whatwhere_transformer::{
    Mode, Model, Sequences,
    generate::{Generator, Sampling},
};

use crate::{assert_close, attention, places, rows, settings, values};

/// Choices of attention of both layers of a decoder, one line each.
pub(crate) fn choices() -> Vec<String> {
    let window = "alternate = [{ pattern = { kind = 'window', left = 3 } }, {}]";
    let positions = Position::all().into_iter().map(|p| format!("{}\n{window}", attention(&p)));
    let scores = Score::all().into_iter().map(|score| {
        format!(
            "attention = {{ heads = 4, kv_heads = 2, score = '{}', position = 'alibi' }}",
            score.name()
        )
    });
    let causal = Pattern::all().into_iter().filter(Pattern::is_causal);
    let patterns = causal.map(|p| format!("attention = {{ heads = 2, pattern = '{}' }}", p.name()));
    let others = [
        "attention = { heads = 2, qk_norm = true, soft_cap = 3.0 }",
        "tied = false\nbias = true\nactivation = 'swiglu'\nattention = { heads = 2, bias = true }",
        "norm = 'layer'\nnorm_place = 'post'\nactivation = 'relu'\nattention = { heads = 1 }",
        "attention = { heads = 2, mixing = 'linear', position = 'none' }",
        "attention = { heads = 2, mixing = 'linear' }",
        "attention = { heads = 2, mixing = 'retention' }\nencoder = { mixing = 'softmax' }",
        "attention = { heads = 2, mixing = 'gated_linear', position = 'none' }\nencoder = { mixing = 'softmax' }",
        "attention = { heads = 2, mixing = 'delta', position = 'polar' }\nencoder = { mixing = 'softmax' }",
        "attention = { heads = 2, mixing = 'gated_delta' }\nencoder = { mixing = 'softmax' }",
        "attention = { heads = 2, position = { kind = 'learned', length = 6 } }",
        "attention = { heads = 2, position = { kind = 'rotary', scaling = { kind = 'dynamic_ntk', factor = 2.0, length = 8 } } }",
    ];
    positions.chain(scores).chain(patterns).chain(others.map(String::from)).collect()
}

/// Whether its mixing has a state in place of keys.
fn keeps_state(choice: &str) -> bool {
    ["linear", "retention", "delta"].iter().any(|name| {
        choice.contains(&format!("mixing = '{name}"))
            || choice.contains(&format!("mixing = 'gated_{name}"))
    })
}

fn write(generator: &Generator, source: Option<&Sequences>, sampling: &Sampling) -> Vec<u32> {
    let go_on = |_| ControlFlow::Continue(());
    generator.generate(source, &[1, 2, 3], 50, sampling, go_on).unwrap()
}

#[test]
fn a_draft_does_not_change_what_is_generated() {
    let device = Device::flex();
    for family in ["decoder", "encoder_decoder"] {
        for choice in choices() {
            let model = settings(family, &choice).build(3, &device).unwrap();
            let mut source = rows(1, 6);
            source.lengths = Some(vec![5]);
            let source = (family == "encoder_decoder").then_some(&source);
            let [plain, speculative] =
                [Generator::without_draft(&model), Generator::speculative(&model)];
            for sampling in [
                Sampling::greedy(),
                Sampling { temperature: 1.5, ..Default::default() },
                Sampling {
                    repetition_penalty: 1.3,
                    top_k: 5,
                    top_p: 0.9,
                    seed: 4,
                    ..Default::default()
                },
            ] {
                let [expected, found] =
                    [&plain, &speculative].map(|generator| write(generator, source, &sampling));
                assert_eq!(found, expected, "{family}, {choice}, {sampling:?}");
            }
            let [drafted, accepted] = speculative.drafted();
            let can = !keeps_state(&choice) && !choice.contains("dynamic_ntk");
            assert_eq!(drafted > 50, can, "{family}, {choice}: {drafted} drafts");
            assert!(
                2 * accepted >= drafted,
                "{family}, {choice}: {accepted} of {drafted} accepted"
            );
            assert_eq!(plain.drafted(), [0, 0]);
        }
    }
}

/// What a draft rests on: tokens that are read together have the logits they would have one by one.
#[test]
fn a_few_tokens_together_have_the_logits_of_each_by_itself() {
    let device = Device::flex();
    for choice in choices().into_iter().filter(|c| !c.contains("dynamic_ntk") && !keeps_state(c)) {
        let model = settings("decoder", &choice).build(3, &device).unwrap();
        let length = model.settings().longest().unwrap_or(130).min(130);
        let tokens = rows(1, length);
        let read = |model: &Model, together: usize| -> Vec<f32> {
            let mut state = model.start(None).unwrap();
            let steps = (0..length).step_by(together).map(|first| {
                let end = length.min(first + together);
                model.step(&places(&tokens, first..end), &mut state).unwrap()
            });
            values(Tensor::cat(steps.collect(), 1))
        };
        let alone = read(&model, 1);
        // Exponentials of whole vectors and of what is left over differ in the last bit, and the framework's own products
        // and norms promise nothing.
        let rounds = ["additive", "general", "qk_norm", "disentangled"]
            .iter()
            .any(|name| choice.contains(name));
        let most = if rounds { 1e-6 } else { 0.0 };
        for count in [4, 8] {
            let together = read(&model, count);
            let far = together.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(together.len() == alone.len() && far <= most, "{choice}, {count}: {far}");
        }
    }
}

#[test]
fn a_reader_that_stops_gets_no_more() {
    let device = Device::flex();
    let model = settings("decoder", "").build(3, &device).unwrap();
    let all = write(&Generator::without_draft(&model), None, &Sampling::greedy());
    for generator in [Generator::without_draft(&model), Generator::speculative(&model)] {
        for limit in 0..10 {
            let mut seen = Vec::new();
            let text = generator.generate(None, &[1, 2, 3], 50, &Sampling::greedy(), |token| {
                seen.push(token);
                if seen.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(text.unwrap(), all[..=limit]);
            assert_eq!(seen, all[..=limit]);
            let go_on = |_| ControlFlow::Continue(());
            let text = generator.generate(None, &[1, 2, 3], limit, &Sampling::greedy(), go_on);
            assert_eq!(text.unwrap(), all[..limit]);
        }
    }
}

#[test]
fn writing_goes_on_past_the_end_of_a_table() {
    let device = Device::flex();
    let extra = "attention = { heads = 2, position = { kind = 'learned', length = 6 } }";
    let model = settings("decoder", extra).build(1, &device).unwrap();
    let each = |_| ControlFlow::Continue(());
    for prompt in [vec![1; 2], vec![1; 6], vec![1; 20]] {
        for generator in [Generator::without_draft(&model), Generator::speculative(&model)] {
            let text = generator.generate(None, &prompt, 15, &Sampling::greedy(), each).unwrap();
            assert_eq!(text.len(), 15);
        }
    }
}

#[test]
fn a_prompt_seen_in_both_directions_is_decoded_as_in_one_pass() {
    let device = Device::flex();
    // Angles that follow the length differ from step to step.
    for choice in choices().into_iter().filter(|choice| !choice.contains("dynamic")) {
        let model = settings("decoder", &choice).build(3, &device).unwrap();
        let length = model.settings().longest().unwrap_or(9).min(9);
        let (all, prefixes) = (rows(2, length), vec![4, 3]);
        let mut whole = all.clone();
        whole.prefixes = Some(prefixes.clone());
        let expected = match model.forward(None, &whole, Mode::default()) {
            Ok(expected) => expected,
            Err(error) => {
                assert!(keeps_state(&choice), "{choice}: {error}");
                continue;
            }
        };
        let mut state = model.start(None).unwrap().with_prefixes(prefixes.clone());
        let mut start = 0;
        for end in 4..=length {
            let found = model.step(&places(&all, start..end), &mut state).unwrap();
            let expected = expected.clone().narrow(1, start, end - start);
            assert_close(&values(found), &values(expected), &choice);
            start = end;
        }
        let mut state = model.start(None).unwrap().with_prefixes(prefixes);
        let error = model.step(&places(&all, 0..2), &mut state).unwrap_err().to_string();
        assert!(error.contains("read it in one step"), "{error}");
    }
}

#[test]
fn a_generator_with_a_prefix_goes_on_from_a_prompt_seen_in_both_directions() {
    let device = Device::flex();
    let model = settings("decoder", "attention = { heads = 2 }").build(3, &device).unwrap();
    let prompt = [1, 2, 3, 4, 5, 6];
    let next = |prefix: Option<Vec<usize>>| {
        let mut tokens = Sequences::from_rows(&[prompt]);
        tokens.prefixes = prefix;
        let logits = values(model.forward(None, &tokens, Mode::default()).unwrap());
        logits[logits.len() - model.settings().vocabulary..].to_vec()
    };
    let (plain, both) = (next(None), next(Some(vec![6])));
    assert_ne!(plain, both, "what is before the last token is seen differently");
    let best = |logits: &[f32]| (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    for (has_prefix, logits) in [(false, plain), (true, both)] {
        let generator = Generator::without_draft(&model).with_prefix(has_prefix);
        let go_on = |_| ControlFlow::Continue(());
        let found = generator.generate(None, &prompt, 1, &Sampling::greedy(), go_on).unwrap();
        assert_eq!(Some(found[0] as usize), best(&logits));
    }
    // A draft does not change what is generated here, either.
    let [plain, speculative] = [Generator::without_draft(&model), Generator::speculative(&model)]
        .map(|generator| write(&generator.with_prefix(true), None, &Sampling::greedy()));
    assert_eq!(plain, speculative);
}
