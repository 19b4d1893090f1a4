//! `--weights`: what a model computes with.

use std::path::Path;

use clap::{Args, ValueEnum};
use whatwhere_training::{Run, Weights};

/// What a model computes with.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Computed {
    /// What the model computes with: f32, or int8, a quarter of the memory at nearly the same results; by default as the run is
    /// stored (`whatwhere quantize`).
    #[arg(long, value_enum)]
    weights: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    F32,
    Int8,
}

impl Computed {
    /// Opens a run folder with these weights.
    pub(crate) fn open(self, folder: &Path) -> anyhow::Result<Run> {
        let weights = self.weights.map(|kind| match kind {
            Kind::F32 => Weights::F32,
            Kind::Int8 => Weights::Int8,
        });
        Ok(Run::open_with(folder, weights)?)
    }
}
