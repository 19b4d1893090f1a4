//! Texts with labels: from rows of tables, or with the label of the folder that a file lies in. What lies beside them, such as
//! a README, is left out and named.

use std::{
    collections::BTreeSet,
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    table::{self, Wanted},
    unpacked, whole,
};
use crate::{
    Error, Result,
    corpus::Split,
    settings::{Labeled, TEST, TRAIN, VALID},
};

/// A text, or a pair of texts, and its label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabeledText {
    /// Where it stood.
    pub(crate) at: String,
    pub(crate) text: String,
    pub(crate) second: Option<String>,
    pub(crate) label: String,
    /// What folders around its class say.
    pub(crate) split: Option<Split>,
    /// Whether it is the first row of a table whose columns are numbers: perhaps a head that nobody left out.
    pub(crate) may_be_head: bool,
}

/// Texts with labels, and how many files and folders were left out, in words.
#[derive(Default)]
pub(crate) struct LabeledTexts {
    pub(crate) texts: Vec<LabeledText>,
    pub(crate) notes: Vec<String>,
}

/// What IMDB's reviews without a label lie in.
const UNLABELED: &str = "unsup";

/// Reads everything under a path. Refuses a text without a label, unless it lies beside tables or folders of classes, as a
/// README does; empty texts come along.
pub(crate) fn labeled(path: &Path, settings: &Labeled) -> Result<LabeledTexts> {
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    // Folders that hold tables.
    let mut tables: BTreeSet<PathBuf> = BTreeSet::new();
    unpacked(path, &mut |name, kind, reader| {
        let below = below(name, path);
        if table::is_table(kind) {
            tables.insert(below.parent().unwrap_or(Path::new("")).to_owned());
            return rows(name, kind, reader, settings, &mut texts);
        }
        let text = whole(name, reader);
        // A file that was asked for by itself may be a table whatever its name: no folder says its label.
        let is_alone = below.as_os_str().is_empty();
        if let Ok(text) = text.as_ref()
            && is_alone
            && text.lines().next().is_some_and(|line| line.contains('\t'))
        {
            return rows(name, ".tsv", &mut text.as_bytes(), settings, &mut texts);
        }
        files.push((name.to_owned(), below, text));
        Ok(())
    })?;
    // A folder with folders of classes in it is no class.
    let above = |folder: &Path| folder.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let folder = |below: &PathBuf| below.parent().unwrap_or(Path::new("")).to_owned();
    let outer: BTreeSet<PathBuf> =
        files.iter().flat_map(|(_, below, _)| above(&folder(below))).collect();
    let (mut beside, mut unlabeled) = (Vec::new(), 0);
    let mut wrong = None;
    for (name, below, text) in files {
        let folder = folder(&below);
        if folder.ends_with(UNLABELED) {
            unlabeled += 1;
            continue;
        }
        if folder.as_os_str().is_empty() || outer.contains(&folder) || tables.contains(&folder) {
            beside.push(name);
            continue;
        }
        let pairs = settings.second_field.as_ref().map(|second| {
            let reason = format!(
                "is one text, and source.second_field = {second:?} asks for pairs; expected a table"
            );
            Error::content(&name, reason)
        });
        wrong = wrong.or(pairs);
        let class = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let split = split_of(&folder);
        let (at, text) = (name, text?);
        texts.push(LabeledText { at, text, second: None, label: class, split, may_be_head: false });
    }
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    if texts.is_empty() {
        let name = beside.first().cloned();
        let reason = match name {
            Some(_) => {
                "has no label: it is no table (.csv, .tsv, .jsonl) and lies in no folder that is called as its class"
            }
            None => "is empty, expected texts with labels",
        };
        return Err(Error::content(name.unwrap_or_else(|| path.display().to_string()), reason));
    }
    let mut notes = Vec::new();
    if let [first, rest @ ..] = &beside[..] {
        let more =
            if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
        notes.push(format!("left out: {first}{more}, beside what has labels"));
    }
    if unlabeled > 0 {
        notes.push(format!("left out: {unlabeled} texts in {UNLABELED}, which are without labels"));
    }
    Ok(LabeledTexts { texts, notes })
}

/// Reads a table.
fn rows(
    name: &str,
    kind: &str,
    reader: &mut dyn Read,
    settings: &Labeled,
    texts: &mut Vec<LabeledText>,
) -> Result<()> {
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
        texts.push(LabeledText { at, text, second, label, split: None, may_be_head });
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
}

/// Where a file lies below the folder that is read, or within an archive; nothing of a file that is read by itself.
fn below(name: &str, root: &Path) -> PathBuf {
    Path::new(name).strip_prefix(root).map_or_else(|_| PathBuf::new(), PathBuf::from)
}

/// The split that folders around a class name, as IMDB's archive has `train/pos` and `test/pos`.
fn split_of(class: &Path) -> Option<Split> {
    let outer = class.parent()?.file_name()?.to_str()?;
    [(Split::Train, TRAIN), (Split::Valid, VALID), (Split::Test, TEST)]
        .into_iter()
        .find_map(|(split, names)| names.contains(&outer).then_some(split))
}
