//! Writing token after token, with guesses and without.

use std::ops::ControlFlow;

use burn::tensor::{Device, Tensor};
use whatwhere_attention::{Pattern, Position, Score};
use whatwhere_transformer::{
    Model, Sequences,
    generate::{Sampling, Writer},
};

use crate::{attention, rows, settings, values};

/// Choices of attention of both layers of a decoder, one line each.
fn choices() -> Vec<String> {
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
        "attention = { heads = 2, normalise = true, soft_cap = 3.0 }",
        "tied = false\nbias = true\nactivation = 'swiglu'\nattention = { heads = 2, bias = true }",
        "norm = 'layer'\nnorm_place = 'post'\nactivation = 'relu'\nattention = { heads = 1 }",
        "attention = { heads = 2, mixing = 'linear', position = 'none' }",
        "attention = { heads = 2, position = { kind = 'learned', length = 6 } }",
        "attention = { heads = 2, position = { kind = 'rotary', scaling = { kind = 'dynamic_ntk', factor = 2.0, length = 8 } } }",
    ];
    positions.chain(scores).chain(patterns).chain(others.map(String::from)).collect()
}

fn write(writer: &Writer, source: Option<&Sequences>, sampling: &Sampling) -> Vec<u32> {
    let go_on = |_| ControlFlow::Continue(());
    writer.write(source, &[1, 2, 3], 50, sampling, go_on).unwrap()
}

#[test]
fn guesses_do_not_change_what_is_written() {
    let device = Device::flex();
    for family in ["decoder", "encoder_decoder"] {
        for choice in choices() {
            let model = settings(family, &choice).build(3, &device).unwrap();
            let mut source = rows(1, 6, &device);
            source.lengths = Some(vec![5]);
            let source = (family == "encoder_decoder").then_some(&source);
            let [plain, guessing] = [Writer::plain(&model), Writer::guessing(&model)];
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
                    [&plain, &guessing].map(|writer| write(writer, source, &sampling));
                assert_eq!(found, expected, "{family}, {choice}, {sampling:?}");
            }
            let [guessed, right] = guessing.guessed();
            let can = !choice.contains("linear") && !choice.contains("dynamic_ntk");
            assert_eq!(guessed > 50, can, "{family}, {choice}: {guessed} guesses");
            assert!(2 * right >= guessed, "{family}, {choice}: {right} of {guessed} right");
            assert_eq!(plain.guessed(), [0, 0]);
        }
    }
}

/// What guesses rest on: tokens that are read together have the scores they would have one by one.
#[test]
fn a_few_tokens_together_have_the_scores_of_each_by_itself() {
    let device = Device::flex();
    for choice in
        choices().into_iter().filter(|c| !c.contains("dynamic_ntk") && !c.contains("linear"))
    {
        let model = settings("decoder", &choice).build(3, &device).unwrap();
        let length = model.settings().longest().unwrap_or(130).min(130);
        let tokens = rows(1, length, &device).ids;
        let read = |model: &Model, together: usize| -> Vec<f32> {
            let mut writing = model.start(None).unwrap();
            let steps = (0..length).step_by(together).map(|first| {
                let ids = tokens.clone().narrow(1, first, together.min(length - first));
                model.step(ids, &mut writing).unwrap()
            });
            values(Tensor::cat(steps.collect(), 1))
        };
        let alone = read(&model, 1);
        // Exponentials of whole vectors and of what is left over differ in the last bit, and the framework's own products
        // and norms promise nothing.
        let rounds = ["additive", "general", "normalise"].iter().any(|name| choice.contains(name));
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
    let all = write(&Writer::plain(&model), None, &Sampling::greedy());
    for writer in [Writer::plain(&model), Writer::guessing(&model)] {
        for limit in 0..10 {
            let mut seen = Vec::new();
            let text = writer.write(None, &[1, 2, 3], 50, &Sampling::greedy(), |token| {
                seen.push(token);
                if seen.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!(text.unwrap(), all[..=limit]);
            assert_eq!(seen, all[..=limit]);
            let go_on = |_| ControlFlow::Continue(());
            let text = writer.write(None, &[1, 2, 3], limit, &Sampling::greedy(), go_on);
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
        for writer in [Writer::plain(&model), Writer::guessing(&model)] {
            let text = writer.write(None, &prompt, 15, &Sampling::greedy(), each).unwrap();
            assert_eq!(text.len(), 15);
        }
    }
}
