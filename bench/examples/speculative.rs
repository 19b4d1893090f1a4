//! What speculative decoding saves: `cargo run --release --example speculative -- [RUN]`.
//!
//! With a run folder, its model goes on after three prompts; without one, models of several sizes with random weights
//! generate. Both ways take turns, the best of five counts, and their texts must be the same.

use std::{ops::ControlFlow, time::Instant};

use anyhow::{Result, ensure};
use burn::{module::Module, tensor::Device};
use whatwhere_training::Run;
use whatwhere_transformer::{
    Model, ModelSettings,
    generate::{Generator, Sampling},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Tokens of one text.
const TOKENS: usize = 128;
const ROUNDS: usize = 5;
const PROMPTS: [&str; 3] =
    ["It was a dark night, and", "She looked at him for a long time. \"", "The old man had"];
/// Width, layers and vocabulary.
const SIZES: [[usize; 3]; 7] = [
    [128, 4, 256],
    [256, 4, 256],
    [256, 6, 2000],
    [320, 6, 4000],
    [384, 6, 6000],
    [512, 6, 6000],
    [768, 12, 16000],
];

fn main() -> Result<()> {
    if let Some(folder) = std::env::args().nth(1) {
        let run = Run::open(folder)?;
        let prompts: Result<Vec<_>, _> = PROMPTS.iter().map(|text| run.encode(text)).collect();
        let prompts = prompts?;
        let nucleus = Sampling { temperature: 1.0, top_p: 0.95, ..Default::default() };
        for (name, sampling) in [
            ("greedy", Sampling::greedy()),
            ("temperature 0.8", Sampling::default()),
            ("temperature 1, top-p 0.95", nucleus),
        ] {
            measure(name, run.model(), &prompts, &sampling)?;
        }
        return Ok(());
    }
    for [width, layers, vocabulary] in SIZES {
        let settings = ModelSettings::from_toml(&format!(
            "width = {width}\nlayers = {layers}\nvocabulary = {vocabulary}\n\
             attention = {{ heads = 8, position = 'rotary' }}"
        ))?;
        let model = settings.build(1, &Device::flex())?;
        let name = format!("{:.1} M parameters", model.num_params() as f64 / 1e6);
        measure(&name, &model, &[vec![1, 2, 3]], &Sampling::default())?;
    }
    Ok(())
}

fn measure(name: &str, model: &Model, prompts: &[Vec<u32>], sampling: &Sampling) -> Result<()> {
    let generators = [Generator::without_draft(model), Generator::speculative(model)];
    let mut total = [0.0; 2];
    for prompt in prompts {
        let (mut best, mut texts) = ([f64::INFINITY; 2], Vec::new());
        for _ in 0..ROUNDS {
            for (generator, best) in generators.iter().zip(&mut best) {
                let start = Instant::now();
                let go_on = |_| ControlFlow::Continue(());
                texts.push(generator.generate(None, prompt, TOKENS, sampling, go_on)?);
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
        ensure!(texts.iter().all(|text| *text == texts[0]), "{name}: drafts changed the text");
        total.iter_mut().zip(best).for_each(|(total, best)| *total += best);
    }
    let rate = total.map(|seconds| (TOKENS * prompts.len()) as f64 / seconds);
    let [drafted, accepted] = generators[1].drafted();
    println!(
        "{name}: {:.0} tokens/s, with drafts {:.0}, ratio {:.2}; {accepted} of {drafted} accepted",
        rate[0],
        rate[1],
        rate[1] / rate[0]
    );
    Ok(())
}
