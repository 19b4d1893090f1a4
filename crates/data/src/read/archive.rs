//! Many files in one: `.tar`.

use std::io::Read;

use crate::{Error, Result};

/// Gets each file with its name.
pub(super) type Visit<'a> = &'a mut dyn FnMut(&str, &mut dyn Read) -> Result<()>;

/// Visits the files of a tar archive, in its order.
pub(super) fn tar(name: &str, reader: &mut dyn Read, visit: Visit) -> Result<()> {
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(Error::file(name))? {
        let mut entry = entry.map_err(Error::file(name))?;
        if entry.header().entry_type().is_file() {
            let path = entry.path().map_err(Error::file(name))?.into_owned();
            visit(&format!("{name}/{}", path.display()), &mut entry)?;
        }
    }
    Ok(())
}
