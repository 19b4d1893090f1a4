//! Where things are: this folder, the workspace's target, and a folder of tensors that lives as long as the run.

use std::{
    fs,
    path::{Path, PathBuf},
    process, thread,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// Folders of a run.
pub struct Place {
    target: PathBuf,
    folder: PathBuf,
}

impl Place {
    /// Makes the folder of tensors; it goes with the value, and when the run is interrupted.
    pub fn make() -> Result<Self> {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = bench.parent().unwrap_or(bench).join("target");
        let folder = target.join(format!("bench-tensors-{}", process::id()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let doomed = folder.clone();
        let mut signals =
            Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for interruption")?;
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                // The worker ends by itself when this process does.
                let _ = fs::remove_dir_all(&doomed);
                process::exit(130);
            }
        });
        Ok(Self { target, folder })
    }

    /// This folder.
    pub fn bench(&self) -> &Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    /// What cargo and this folder make.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The folder of tensors.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of one tensor, raw f32.
    pub fn tensor(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.f32"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
