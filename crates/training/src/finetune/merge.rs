//! A run with adapters as one without: what they learned becomes part of the weights.

use std::{fs, path::Path};

use whatwhere_files as files;

use super::adapter_file;
use crate::{
    Error, Folder,
    checkpoint::{self, Array, Checkpoint},
};

/// Writes a run folder whose weights are those of a run with its adapters merged into them.
pub fn merge(run: &Path, out: &Path) -> Result<(), Error> {
    let (run, out) = (Folder::new(run), Folder::new(out));
    let mut settings = run.load_settings()?;
    if out.has_run() {
        return Err(Error::RunExists { folder: out.path().into() });
    }
    let mut checkpoint = Checkpoint::load(&run.model())?;
    let mut weights = checkpoint.take("");
    let Some(step) = adapter_file::apply(&run, &mut weights)? else {
        return Err(Error::Settings(format!(
            "{} has no adapters to merge: found no adapter.safetensors; train one with --set training.lora.rank=8",
            run.path().display()
        )));
    };
    fs::create_dir_all(out.path()).map_err(Error::file(out.path(), "created"))?;
    checkpoint.metadata.insert("step".into(), step.to_string());
    let arrays = weights.iter().map(Array::from).collect();
    checkpoint::save(&out.model(), arrays, &checkpoint.metadata)?;
    for (from, to) in [
        (run.tokenizer(), out.tokenizer()),
        (run.data(), out.data()),
        (run.import(), out.import()),
        (run.transfer(), out.transfer()),
    ] {
        if from.is_file() {
            let bytes = fs::read(&from).map_err(Error::file(&from, "read"))?;
            files::replace(&to, |file| std::io::Write::write_all(file, &bytes))?;
        }
    }
    settings.training.lora = None;
    out.save_format()?;
    // Last: with it there is a run.
    out.save_settings(&settings)
}
