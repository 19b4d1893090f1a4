//! Texts with labels: from rows of tables, or with the label of the folder that a file lies in.

use std::path::{Path, PathBuf};

use super::{
    table::{self, Wanted},
    unpacked, whole,
};
use crate::{Error, Result, settings::Labeled};

/// A text, or a pair of texts, and its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabeledText {
    /// Where it stood.
    pub(crate) at: String,
    pub(crate) text: String,
    pub(crate) second: Option<String>,
    pub(crate) label: String,
    /// Whether it is the first row of a table whose columns are numbers: perhaps a head that nobody left out.
    pub(crate) may_be_head: bool,
}

/// Reads everything under a path. Refuses a text without a label; empty texts come along.
pub(crate) fn labeled(path: &Path, settings: &Labeled) -> Result<Vec<LabeledText>> {
    let mut texts = Vec::new();
    let is_folder = path.is_dir();
    unpacked(path, &mut |name, kind, reader| {
        if !table::is_table(kind) {
            if let Some(second) = &settings.second_field {
                let reason = format!(
                    "is one text, and source.second_field = {second:?} asks for pairs; expected a table"
                );
                return Err(Error::content(name, reason));
            }
            let label = folder_of(name, path, is_folder)?;
            let text = whole(name, reader)?;
            let at = name.into();
            texts.push(LabeledText { at, text, second: None, label, may_be_head: false });
            return Ok(());
        }
        let (field, label) = (settings.field.as_str(), settings.label_field.as_str());
        let mut fields = [field, label].into_iter().chain(settings.second_field.as_deref());
        let mut may_be_head = !kind.ends_with(".jsonl")
            && !kind.ends_with(".parquet")
            && fields.all(|field| table::number(field).is_some());
        let mut add = |at: String, text: String, second: Option<String>, label: &str| {
            let label = label.trim().to_owned();
            if label.is_empty() {
                let field = &settings.label_field;
                let reason = format!("has no label in {field:?}; expected the name of its class");
                return Err(Error::content(at, reason));
            }
            let may_be_head = std::mem::take(&mut may_be_head);
            texts.push(LabeledText { at, text, second, label, may_be_head });
            Ok(())
        };
        let names = ["source.field", table::LABEL, "source.second_field"];
        match &settings.second_field {
            None => {
                let wanted = Wanted::labeled([field, label], [names[0], names[1]]);
                table::table(name, kind, reader, &wanted, &mut |at, [text, label]| {
                    add(at, text, None, &label)
                })
            }
            Some(second) => {
                let wanted = Wanted::labeled([field, label, second], names);
                table::table(name, kind, reader, &wanted, &mut |at, [text, label, second]| {
                    add(at, text, Some(second), &label)
                })
            }
        }
    })?;
    if texts.is_empty() {
        let reason = "is empty, expected texts with labels";
        return Err(Error::content(path.display().to_string(), reason));
    }
    Ok(texts)
}

/// The folder that a file lies in, below the one that is read or within an archive.
fn folder_of(name: &str, root: &Path, is_folder: bool) -> Result<String> {
    let is_archive = !is_folder && name != root.display().to_string();
    let below = Path::new(name).strip_prefix(root).map_or_else(|_| PathBuf::new(), PathBuf::from);
    let folder = below.parent().and_then(Path::file_name).filter(|_| is_folder || is_archive);
    folder.map(|folder| folder.to_string_lossy().into_owned()).ok_or_else(|| {
        let reason = "has no label: it is no table (.csv, .tsv, .jsonl) and lies in no folder that is called as its class";
        Error::content(name, reason)
    })
}
