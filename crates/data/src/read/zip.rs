//! Zip archives: the table of contents at the end, then each file, stored or deflated.
//!
//! By hand, because the crates for it ask more of `memchr` and `serde` than burn does, so that all of burn would be built
//! again for them. PKWARE's APPNOTE 6.3, <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>.

use std::io::Read;

use super::archive::Visit;
use crate::{Error, Result};

/// Visits the files of an archive, in the order of its table.
pub(super) fn zip(name: &str, reader: &mut dyn Read, visit: Visit) -> Result<()> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::file(name))?;
    let broken = |what: &str| Error::content(name, format!("is no whole zip archive: {what}"));
    // A comment of up to 64 KiB may follow.
    let first = bytes.len().saturating_sub(END + 0xFFFF);
    let last = (first..bytes.len().saturating_sub(END - 1)).rev();
    let end = last.into_iter().find(|&at| bytes[at..].starts_with(b"PK\x05\x06"));
    let end = end.ok_or_else(|| broken("its end is missing"))?;
    let short =
        |at: usize| bytes.get(at..at + 2).map(|b| usize::from(b[0]) | usize::from(b[1]) << 8);
    let long = |at: usize| Some(short(at)? | short(at + 2)? << 16);
    let mut at = long(end + 16).ok_or_else(|| broken("its end is cut"))?;
    for _ in 0..short(end + 10).ok_or_else(|| broken("its end is cut"))? {
        let entry = || {
            let [flags, method] = [short(at + 8)?, short(at + 10)?];
            let [size, start] = [long(at + 20)?, long(at + 42)?];
            let [path, extra, comment] = [short(at + 28)?, short(at + 30)?, short(at + 32)?];
            let path_bytes = bytes.get(at + 46..at + 46 + path)?;
            // The file's own head has lengths of its own.
            let data = start + 30 + short(start + 26)? + short(start + 28)?;
            let next = at + 46 + path + extra + comment;
            Some((flags, method, path_bytes, bytes.get(data..data + size), next))
        };
        if !bytes.get(at..).is_some_and(|rest| rest.starts_with(b"PK\x01\x02")) {
            return Err(broken("its table of contents is not where its end says"));
        }
        let (flags, method, path, data, next) =
            entry().ok_or_else(|| broken("its table of contents is cut"))?;
        at = next;
        let path = String::from_utf8_lossy(path).into_owned();
        let file = path.rsplit('/').next().unwrap_or_default();
        if file.is_empty() || file.starts_with('.') || path.starts_with("__MACOSX/") {
            continue;
        }
        let inside = format!("{name}/{path}");
        let data = data.ok_or_else(|| Error::content(&inside, "is cut, or larger than 4 GiB"))?;
        match (flags & 1, method) {
            (0, STORED) => visit(&inside, &mut &*data)?,
            (0, DEFLATED) => visit(&inside, &mut flate2::read::DeflateDecoder::new(data))?,
            (0, other) => {
                let reason = format!(
                    "is packed by method {other}, expected stored or deflated; unpack it first"
                );
                return Err(Error::content(inside, reason));
            }
            _ => return Err(Error::content(inside, "is encrypted; unpack it first")),
        }
    }
    Ok(())
}

const END: usize = 22; // bytes of the record at the end
const STORED: usize = 0;
const DEFLATED: usize = 8;
