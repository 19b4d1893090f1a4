//! A GPT from settings: it learns to go on with a sentence, and writes it from memory.
//!
//! `cargo run --release --example gpt`

use std::ops::ControlFlow;

use burn::{
    optim::{AdamWConfig, GradientsParams},
    tensor::{Device, Int, Tensor, TensorData, activation::log_softmax},
};
use whatwhere_transformer::{
    Error, Mode, Model, ModelSettings, Sequences,
    generate::{Generator, Sampling},
};

const TEXT: &str = "attention is what a token looks at, position is where";
/// As long as what it shall write: rotary by itself does not read far beyond what it was trained on.
const LENGTH: usize = 52;
const STEPS: usize = 120;

/// A decoder; any attention, pattern and position of the library goes into the same table.
const SETTINGS: &str = "
width = 48
layers = 2
norm = 'rms'
activation = 'swiglu'
attention = { heads = 4, kv_heads = 2, position = 'rotary', pattern = 'causal' }
";

fn main() -> Result<(), Error> {
    let mut letters: Vec<char> = TEXT.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    let ids: Vec<u32> = TEXT
        .chars()
        .map(|c| letters.binary_search(&c).expect("a letter of the text") as u32)
        .collect();

    let mut settings = ModelSettings::from_toml(SETTINGS)?;
    settings.vocabulary = letters.len();
    let device = Device::flex().autodiff();
    let model = train(settings.build(1, &device)?, &ids, &device)?;

    let prompt = &ids[..9];
    let mut text = String::from("attention");
    Generator::new(&model).generate(None, prompt, ids.len() - 9, &Sampling::greedy(), |token| {
        text.push(letters[token as usize]);
        ControlFlow::Continue(())
    })?;
    println!("{text}");
    assert_eq!(text, TEXT, "learned by heart");
    Ok(())
}

/// Every stretch of the text is an example: the next letter after each of its letters.
fn train(mut model: Model, ids: &[u32], device: &Device) -> Result<Model, Error> {
    let rows: Vec<Vec<u32>> = ids.windows(LENGTH).map(<[u32]>::to_vec).collect();
    let next: Vec<i32> =
        ids.windows(LENGTH + 1).flat_map(|row| row[1..].to_vec()).map(|id| id as i32).collect();
    let rows = &rows[..ids.len() - LENGTH];
    let tokens = Sequences::from_rows(rows);
    let next = Tensor::<3, Int>::from_data(TensorData::new(next, [rows.len(), LENGTH, 1]), device);
    let mut optimizer = AdamWConfig::new().init();
    for step in 0..STEPS {
        let logits = model.forward(None, &tokens, Mode::default())?; // [rows, length, vocabulary]
        let loss = log_softmax(logits, 2).gather(2, next.clone()).mean().neg();
        if step % 20 == 0 {
            println!("step {step}: loss {:.3}", loss.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-2, model, gradients);
    }
    Ok(model)
}
