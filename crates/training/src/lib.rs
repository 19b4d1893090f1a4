//! Training runs, and trained models ready to be asked.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//!
//! use whatwhere_data::Corpus;
//! use whatwhere_training::{Folder, Generation, Run, RunSettings, Trainer, interrupt::Interrupt};
//!
//! let settings = RunSettings::read("[data.source]\nkind = 'text'\npath = 'novels/'", &[])?;
//! let corpus = Corpus::load(&settings.data)?;
//! let mut trainer = Trainer::start(settings, corpus, Folder::new("runs/novels"))?;
//! trainer.run(&Interrupt::default(), &mut ())?;
//! let run = Run::open("runs/novels")?;
//! let generation = Generation { limit: 100, ..Default::default() };
//! run.generate("Once", &generation, |text| {
//!     print!("{text}");
//!     ControlFlow::Continue(())
//! })?;
//! # Ok::<(), whatwhere_training::Error>(())
//! ```
//!
//! - [`RunSettings`] is all there is to set; [`presets`] are some that come with the program.
//! - [`Trainer`] is the loop, [`optimizer`] turns gradients into updates, [`schedule`] says how fast to learn.
//! - [`Folder`] is what training hands on; [`Run`] opens it, to generate, translate, fill, classify and score.
//! - [`classification`] has the figures of who tells classes.
//! - [`evaluate`] measures, [`statistics`] turns losses into figures people compare, [`bleu`] and [`chrf`] score
//!   translations with the figures of sacreBLEU.
//! - [`journal`] and [`tensorboard`] record a run; both go on after a stop without repeating a step.
//! - [`memory`] knows what a run needs before a model is made.
//! - [`imported`] are models that were not trained here.
//! - [`ranks`] are processes that train one model together, with the same bits however many there are.
//! - [`lock`] keeps a run folder to one process.
//! - [`interrupt`] lets a run stop between two steps.

mod archive;
mod begin;
pub mod bleu;
mod changes;
mod checkpoint;
pub mod chrf;
pub mod classification;
mod classify;
mod device;
mod error;
mod evaluate;
mod fill;
mod finetune;
mod folder;
mod hash;
pub mod imported;
pub mod interrupt;
pub mod journal;
mod keys;
mod language;
mod learner;
pub mod lock;
mod logits;
mod loss;
mod machine;
pub mod memory;
mod ngrams;
pub mod optimizer;
pub mod presets;
pub mod ranks;
mod run;
pub mod schedule;
mod settings;
pub mod statistics;
mod stop;
pub mod tensorboard;
pub mod trainer;
mod weights;

pub use classify::{Classified, Input};
pub use error::Error;
pub use evaluate::{
    Evaluation, Positions, classification_of, evaluate, evaluate_batches, loss_by_position,
};
pub use finetune::{Base, Lora, Transfer, merge};
pub use folder::Folder;
pub use keys::full_key;
pub use learner::{Learner, StepStats};
pub use machine::Machine;
pub use run::{BLANK, Filling, Generation, Run, Translation};
pub use settings::{RunSettings, TrainingSettings, set};
pub use stop::StopFilter;
pub use trainer::{Ending, Observer, Record, Trainer};
pub use weights::{Storage, Weights, quantize};
pub use whatwhere_transformer::{Pooling, generate::Sampling};
