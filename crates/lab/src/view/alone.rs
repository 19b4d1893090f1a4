//! A page that needs no server: the program as a WebAssembly module, and runs for it to open.

use std::{fs, path::Path};

use serde::Serialize;
use whatwhere_training::{Error::Settings, Folder, Run};

use super::{page, save::base64};
use crate::Error;

#[derive(Serialize)]
struct Within<'a> {
    version: &'a str,
    text: &'a str,
    runs: Vec<Carried<'a>>,
}

/// A run as three of its files, in base64.
#[derive(Serialize)]
struct Carried<'a> {
    name: &'a str,
    files: [String; 3],
}

/// The page with a module (of `crates/web`, packed by gzip or as it is) and run folders inside, which reads `text` at first.
pub fn alone(module: &[u8], runs: &[(&str, &Path)], text: &str) -> Result<String, Error> {
    let runs = runs.iter().map(|(name, folder)| carried(name, folder)).collect::<Result<_, _>>()?;
    let within = Within { version: env!("CARGO_PKG_VERSION"), text, runs };
    let within = serde_json::to_string(&within).map_err(|e| Error::Request(e.to_string()))?;
    Ok(page::alone(&within, &base64(module)))
}

fn carried<'a>(name: &'a str, folder: &Path) -> Result<Carried<'a>, Error> {
    let path = Folder::new(folder);
    for (file, what) in [(path.adapter(), "adapters"), (path.import(), "an imported model's files")]
    {
        if file.is_file() {
            let reason = "a page in a browser alone opens runs that were trained here, merged";
            return Err(Error::Request(format!("{} has {what}: {reason}", folder.display())));
        }
    }
    // What cannot be opened here cannot be there.
    Run::open(folder)?;
    let read = |file: &Path| {
        let read = fs::read(file).map_err(|e| Settings(format!("{}: {e}", file.display())))?;
        Ok::<_, Error>(base64(&read))
    };
    Ok(Carried {
        name,
        files: [read(&path.config())?, read(&path.tokenizer())?, read(&path.model())?],
    })
}
