//! Parquet, as data hubs keep their tables; only with the feature `parquet`, whose crate is large.

use std::io::Read;

use super::table::{Visit, Wanted};
use crate::{Error, Result};

/// Visits the wanted columns of every row.
#[cfg(feature = "parquet")]
pub(super) fn rows<const N: usize>(
    name: &str,
    reader: &mut dyn Read,
    wanted: &Wanted<N>,
    visit: Visit<N>,
) -> Result<()> {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::Field,
    };

    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(Error::file(name))?;
    let refused = |error: parquet::errors::ParquetError| {
        Error::content(name, format!("is not read: {error}"))
    };
    let file = SerializedFileReader::new(bytes::Bytes::from(bytes)).map_err(refused)?;
    for (i, row) in file.get_row_iter(None).map_err(refused)?.enumerate() {
        let row = row.map_err(refused)?;
        let at = format!("{name}, row {}", i + 1);
        let found = super::table::each(wanted.fields, |field| {
            let number = field.parse::<usize>().ok().filter(|number| *number > 0);
            let by_number = number.and_then(|number| row.get_column_iter().nth(number - 1));
            let column = by_number
                .or_else(|| row.get_column_iter().find(|(name, _)| name.as_str() == field));
            match column {
                Some((_, Field::Str(text))) => Ok(text.clone()),
                Some((_, found)) if wanted.is_labeled && *found != Field::Null => {
                    Ok(found.to_string())
                }
                Some((_, other)) => {
                    Err(Error::content(&at, format!("has {other} in {field:?}, expected text")))
                }
                None => {
                    let names: Vec<&str> =
                        row.get_column_iter().map(|(name, _)| name.as_str()).collect();
                    let reason = format!("has no column {field:?}; found the columns {names:?}");
                    Err(Error::content(&at, reason))
                }
            }
        })?;
        visit(at, found)?;
    }
    Ok(())
}

/// Says how to read it.
#[cfg(not(feature = "parquet"))]
pub(super) fn rows<const N: usize>(
    name: &str,
    _: &mut dyn Read,
    _: &Wanted<N>,
    _: Visit<N>,
) -> Result<()> {
    let reason = "this build does not read Parquet; build it with --features parquet, or convert the file to .jsonl";
    Err(Error::content(name, reason))
}
