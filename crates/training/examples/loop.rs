//! A training loop by hand: batches, a learner, a learning rate. `Trainer` adds run folders, records and resumption.
//!
//! `cargo run --release --example loop`

use whatwhere_data::{Corpus, Split};
use whatwhere_training::{Error, Learner, RunSettings, presets, trainer};

const STEPS: u64 = 30;

fn main() -> Result<(), Error> {
    let changes = ["model.width=32", "model.layers=1", "training.batch=8", "training.length=32"];
    let mut settings = RunSettings::read(presets::text("tiny"), &changes.map(String::from))?;
    let corpus = Corpus::load(&settings.data)?; // tiny Shakespeare, unless a path is set
    let batches = trainer::batches(&settings, &corpus, Split::Train)?;
    settings.model.vocabulary = corpus.vocabulary();

    let model = settings.model.build(settings.seed, &settings.device().autodiff())?;
    let mut learner = Learner::new(model, &settings.training);
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        // A batch follows from its number alone, so a loop that stops can go on anywhere.
        learner.accumulate(&batches.get(step - 1)?, step)?;
        let stats = learner.finish();
        learner.update(&stats, 3e-3, step);
        losses.push(stats.loss);
        if step % 10 == 0 {
            println!("step {step}: loss {:.3} nats per byte", stats.loss);
        }
    }
    assert!(losses[STEPS as usize - 1] < losses[0] - 1.0, "it learns");
    Ok(())
}
