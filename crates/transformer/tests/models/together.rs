//! Several sequences in one step have the bits of each by itself.

use burn::tensor::Device;
use whatwhere_kernels::EXACT_ROWS;
use whatwhere_transformer::{DecoderState, Model, ModelSettings, Sequences, Step};

use crate::{generation, settings, values};

/// Attention of every kind, and what stands around it.
fn models() -> Vec<(String, Model)> {
    let around = [
        "attention = { heads = 2 }",
        "activation = 'silu'\ngated = true\nnorm = 'rms'\nattention = { heads = 2 }",
        "activation = 'gelu_tanh'\nnorm_place = 'post'\nnorm = 'layer'\nattention = { heads = 2 }",
        "norm_place = 'both'\nbias = true\nattention = { heads = 2 }",
        "residual = 'parallel'\nactivation = 'relu'\nnorm_place = 'pre'\nattention = { heads = 2 }",
        "residual = 'parallel_two_norms'\nembedding_norm = true\noutput_bias = true\ntied = true\nattention = { heads = 2 }",
        "embedding_width = 8\noutput_soft_cap = 2.0\nattention = { heads = 2 }",
        "share_layers = true\nattention = { heads = 2, position = 'sinusoidal' }",
        "share_positions = true\nattention = { heads = 2, position = 't5' }",
    ];
    // Widths that fill no vector.
    let odd = "family = 'decoder'\nvocabulary = 11\nwidth = 20\nlayers = 2\nfeed_forward = 37\n";
    let around = around.map(|extra| ModelSettings::from_toml(&format!("{odd}{extra}")).unwrap());
    let around = around.into_iter().map(|settings| (format!("{settings:?}"), settings));
    let choices = generation::choices().into_iter();
    let choices = choices.map(|choice| (choice.clone(), settings("decoder", &choice)));
    let built = around
        .chain(choices)
        .map(|(what, settings)| (what, settings.build(3, &Device::flex()).unwrap()));
    built.collect()
}

fn tokens(model: &Model, seed: usize, count: usize) -> Vec<u32> {
    let vocabulary = model.settings().vocabulary;
    (0..count).map(|i| ((seed * 31 + i * 7 + i * i) % vocabulary) as u32).collect()
}

/// After prompts of unequal lengths, what each sequence has read and the logits of further steps.
fn agree(model: &Model, what: &str, count: usize, sizes: impl Fn(usize, usize) -> usize) {
    let longest = model.settings().longest().unwrap_or(usize::MAX);
    let mut alone: Vec<DecoderState> = Vec::new();
    for sequence in 0..count {
        let prompt = tokens(model, sequence, (1 + 5 * sequence % 23).min(longest - 3));
        let mut state = model.start(None).unwrap();
        model.step(&Sequences::new(prompt, 1), &mut state).unwrap();
        alone.push(state);
    }
    let mut together = alone.clone();
    for round in 0..3 {
        let new: Vec<Vec<u32>> =
            (0..count).map(|i| tokens(model, 100 + i + round, sizes(i, round))).collect();
        if (0..count).any(|i| alone[i].length() + new[i].len() > longest) {
            break;
        }
        let mut expected = Vec::new();
        for (state, new) in alone.iter_mut().zip(&new) {
            let step = Sequences::new(new.clone(), 1);
            expected.extend(values(model.step_last(&step, 1, state).unwrap()));
        }
        let mut steps: Vec<Step> =
            together.iter_mut().zip(&new).map(|(state, tokens)| Step { tokens, state }).collect();
        let found = values(model.step_together(&mut steps).unwrap());
        assert_eq!(found, expected, "{what}: {count} sequences, round {round}");
    }
}

#[test]
fn sequences_stepped_together_have_the_bits_of_each_by_itself() {
    for (what, model) in models() {
        assert_eq!(model.exact_rows(), EXACT_ROWS);
        for count in [1, 2, 5, EXACT_ROWS] {
            agree(&model, &what, count, |_, _| 1);
        }
    }
}

#[test]
fn so_do_those_of_a_recurrence() {
    for cell in ["gru", "lstm"] {
        let what = format!("recurrent = '{cell}'\nvocabulary = 11\nwidth = 20\nlayers = 2");
        let model = ModelSettings::from_toml(&what).unwrap().build(3, &Device::flex()).unwrap();
        agree(&model, &what, 3, |sequence, round| 1 + (sequence + round) % 2);
    }
}

#[test]
fn so_do_any_number_with_int8_weights() {
    for (what, model) in models() {
        let model = model.to_int8().unwrap();
        let count = model.exact_rows().min(EXACT_ROWS + 9);
        agree(&model, &what, count, |_, _| 1);
    }
}

/// Some of which have several new tokens.
#[test]
fn sequences_may_have_new_tokens_of_unequal_numbers() {
    for (what, model) in models() {
        // Several rows of one sequence are compared in vectors of their own (`a_few_tokens_together`).
        let is_exact = !["additive", "general", "qk_norm", "disentangled", "mixing", "dynamic_ntk"]
            .iter()
            .any(|name| what.contains(name));
        if is_exact {
            agree(&model, &what, 3, |i, round| 1 + (i + round) % 3);
        }
    }
}

#[test]
fn steps_that_make_no_sense_are_refused() {
    let device = Device::flex();
    let model = settings("decoder", "").build(3, &device).unwrap();
    let mut state = model.start(None).unwrap();
    let empty = &mut [Step { tokens: &[], state: &mut state }];
    for refused in [model.step_together(empty), model.step_together(&mut [])] {
        assert!(refused.unwrap_err().to_string().contains("at least one"));
    }
    let pair = settings("encoder_decoder", "").build(3, &device).unwrap();
    let mut state = pair.start(Some(&crate::rows(1, 4))).unwrap();
    let refused = pair.step_together(&mut [Step { tokens: &[1], state: &mut state }]);
    assert!(refused.unwrap_err().to_string().contains("batch"));
}
