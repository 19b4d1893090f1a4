//! Two position encodings under equal conditions, two seeds each, in a few seconds.
//!
//! `cargo run --release --example compare`

use whatwhere_lab::{
    Error,
    compare::{Comparison, Corpora},
    grid::Axis,
};
use whatwhere_training::interrupt::Interrupt;

/// On tiny Shakespeare, which comes with the library.
const SETTINGS: &str = "
[data]
tokenizer = 'characters'
[model]
width = 32
layers = 1
attention = { heads = 2 }
[training]
steps = 30
batch = 8
length = 32
evaluate_batches = 2
";

fn main() -> Result<(), Error> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let comparison = Comparison {
        title: "none or rotary".into(),
        settings: SETTINGS.into(),
        axes: vec![Axis::parse("model.attention.position=none,rotary")?],
        seeds: 2,
        lengths: Some(vec![32, 64]),
        tokens: 1024,
        folder: folder.path().into(),
        ..Comparison::default()
    };
    // Whoever watches implements `Observer`; `()` does not.
    let results = comparison.run(&mut Corpora::default(), &Interrupt::default(), &mut ())?;
    let results = results.expect("nobody interrupted it");
    for sentence in results.verdict() {
        println!("{sentence}");
    }
    Ok(())
}
