//! Writes the events of a run that was killed at step 8 and went on from its checkpoint at step 5, for `bench/events.py`:
//!
//! ```text
//! cargo run --release -p whatwhere-training --example events -- FOLDER
//! python bench/events.py FOLDER
//! ```

use std::{error::Error, fs, io::Write, path::Path};

use whatwhere_training::tensorboard::{Writer, now};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("expected a folder")?;
    let folder = Path::new(&folder);
    train(&mut Writer::create(folder)?, 1..=8, "before")?;
    tear(folder)?;
    train(&mut Writer::resume(folder, 5)?, 6..=10, "after")?;
    Ok(())
}

fn train(
    writer: &mut Writer,
    steps: std::ops::RangeInclusive<u64>,
    sample: &str,
) -> Result<(), whatwhere_training::Error> {
    for step in steps {
        // The two parts differ, so that a reader shows which it believes.
        let value = if sample == "before" { step as f32 } else { -(step as f32) };
        writer.scalar("train/loss", step, value, now())?;
        if step % 4 == 0 {
            writer.scalar("valid/loss", step, value, now())?;
            writer.text("sample", step, sample, now())?;
        }
    }
    writer.flush()
}

/// Adds the first bytes of a record, as a killed process leaves them.
fn tear(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        fs::File::options().append(true).open(entry?.path())?.write_all(&[30, 0, 0, 0, 0, 0, 0])?;
    }
    Ok(())
}
