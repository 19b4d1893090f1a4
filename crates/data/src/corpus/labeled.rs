//! Corpora of texts with labels.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rayon::prelude::*;
use whatwhere_random::Fingerprint;

use super::{Content, Corpus, Part, Split, classes::Classes, pairs::tokenizer_of, present};
use crate::{
    Error, Result, Watch, Work,
    frame::Framed,
    read::{self, LabeledText, LabeledTexts},
    settings::{Classify, DataSettings, Labeled, Objective, TokenizerSettings},
    split::{Shares, by_size_whole},
    tokenizer::{Special, Tokenizer},
};

/// A text, or a pair, as tokens without begin and end, and its class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabeledTokens {
    pub(crate) first: Vec<u32>,
    pub(crate) second: Option<Vec<u32>>,
    pub(crate) class: u32,
}

/// Texts that are encoded between two looks at who watches.
const TOGETHER: usize = 4096;

type Splits = BTreeMap<Split, Vec<LabeledText>>;

impl Corpus {
    pub(super) fn of_labeled(
        labeled: &Labeled,
        settings: &DataSettings,
        watch: Watch,
    ) -> Result<Self> {
        present("source.path", &labeled.path)?;
        let (mut texts, mut notes) = sorted(labeled, settings)?;
        notes.extend(leave_out(&mut texts, labeled, |text| {
            text.text.trim().is_empty()
                || text.second.as_ref().is_some_and(|second| second.trim().is_empty())
        })?);
        let classes = classes(&texts, labeled, settings)?;
        notes.extend(head(&texts));
        let specials = match settings.tokenizer() {
            TokenizerSettings::File(_) => &[][..], // another run's tokens stay as they are
            _ => &[Special::Padding, Special::Begin, Special::End],
        };
        let both = || {
            let all = texts.get(&Split::Train).into_iter().flatten();
            all.flat_map(|text| [Some(&text.text), text.second.as_ref()])
                .flatten()
                .map(String::as_str)
        };
        let tokenizer = tokenizer_of(both, settings, specials, watch)?;
        if labeled.second_field.is_some() && tokenizer.end().is_none() {
            let reason =
                "its tokenizer has no token to stand between two texts; use one that has an end";
            let found = labeled.second_field.clone().unwrap_or_default();
            return Err(Error::content(format!("source.second_field = {found:?}"), reason));
        }
        let mut hash = Fingerprint::new();
        classes.names.iter().for_each(|name| hash.add(name.as_bytes()));
        let (mut splits, mut parts) = (BTreeMap::new(), BTreeMap::new());
        let mut work = Work { what: "texts encoded", done: 0, of: 0 };
        work.of = texts.values().map(|texts| texts.len() as u64).sum();
        for (split, texts) in texts {
            hash.add(split.name().as_bytes());
            let mut part = Part::default();
            let mut all = Vec::with_capacity(texts.len());
            for some in texts.chunks(TOGETHER) {
                if watch(work).is_break() {
                    return Err(Error::Interrupted);
                }
                work.done += some.len() as u64;
                let encode = |text: &LabeledText| encoded(text, &tokenizer, &classes);
                let made: Vec<LabeledTokens> =
                    some.par_iter().map(encode).collect::<Result<_>>()?;
                for (text, tokens) in some.iter().zip(made) {
                    let second = text.second.as_deref().unwrap_or_default();
                    for said in [&text.text, second, &text.label] {
                        hash.add(said.as_bytes());
                    }
                    part.documents += 1;
                    part.bytes += (text.text.len() + second.len()) as u64;
                    let pair = tokens.second.as_deref();
                    let row = Framed::new(&tokenizer, &tokens.first, pair, usize::MAX);
                    part.tokens += row.tokens.len() as u64;
                    all.push(tokens);
                }
            }
            splits.insert(split, all);
            parts.insert(split, part);
        }
        hash.add(tokenizer.to_json()?.as_bytes());
        let content = Content::Labeled(splits);
        Ok(Self::new(tokenizer, content, parts, hash.finish(), settings)
            .with_classes(classes)
            .with_notes(notes))
    }
}

/// Texts by their split: from files or folders of their own, or by shares; with what was left out.
fn sorted(labeled: &Labeled, settings: &DataSettings) -> Result<(Splits, Vec<String>)> {
    let mut splits = Splits::new();
    let mut notes = Vec::new();
    let mut read = |path: &Path| -> Result<Vec<LabeledText>> {
        let LabeledTexts { texts, notes: said } = read::labeled(path, labeled)?;
        notes.extend(said);
        Ok(texts)
    };
    let given = [(Split::Valid, &labeled.valid), (Split::Test, &labeled.test)];
    for (split, path) in given {
        if let Some(path) = path {
            splits.insert(split, read(path)?);
        }
    }
    let mut texts = Vec::new();
    for text in read(&labeled.path)? {
        match text.split {
            // Files of their own come first, and then what the folders of an archive say.
            Some(split @ (Split::Valid | Split::Test)) => {
                splits.entry(split).or_default().push(text);
            }
            _ => texts.push(text),
        }
    }
    let shares = Shares {
        valid: if splits.contains_key(&Split::Valid) { 0.0 } else { settings.valid_share },
        test: if splits.contains_key(&Split::Test) { 0.0 } else { settings.test_share },
    };
    // By the text: the same text must not be learned and asked for. And as the source `text` holds out rows of the same
    // table, so that what is measured here was not read in a training before.
    let decides =
        |text: &LabeledText| (Fingerprint::of(text.text.as_bytes()), text.text.len() as u64);
    let documents: Vec<(u64, u64)> = texts.iter().map(decides).collect();
    for (text, split) in texts.into_iter().zip(by_size_whole(&documents, shares)) {
        splits.entry(split).or_default().push(text);
    }
    Ok((splits, notes))
}

/// Leaves some texts out of every split, and says how many.
fn leave_out(
    splits: &mut Splits,
    labeled: &Labeled,
    is_out: impl Fn(&LabeledText) -> bool,
) -> Result<Option<String>> {
    let count = |splits: &Splits| splits.values().map(Vec::len).sum::<usize>();
    let before = count(splits);
    let first = splits.values().flatten().find(|text| is_out(text)).map(|text| text.at.clone());
    splits.values_mut().for_each(|texts| texts.retain(|text| !is_out(text)));
    splits.retain(|_, texts| !texts.is_empty());
    if !splits.contains_key(&Split::Train) {
        let reason = "has only empty texts, expected some to learn from";
        return Err(Error::content(labeled.path.display().to_string(), reason));
    }
    let out = before - count(splits);
    let first = first.unwrap_or_default();
    Ok((out > 0).then(|| format!("left out: {out} empty of {before} texts, the first at {first}")))
}

/// A warning where a label occurs in first rows only: a table's head, read as a text.
fn head(splits: &Splits) -> Option<String> {
    let all = || splits.values().flatten();
    let labels: BTreeSet<&str> =
        all().filter(|text| !text.may_be_head).map(|text| text.label.as_str()).collect();
    let head = all().find(|text| text.may_be_head && !labels.contains(text.label.as_str()))?;
    Some(format!("warning: {} alone has the label {:?}; {HEAD}", head.at, head.label))
}

const HEAD: &str = "if it is the head of the table, name the columns by it (source.field, source.label_field) in place of numbers";

/// The classes of the training texts, or those that the settings name, which must be all there are.
fn classes(splits: &Splits, labeled: &Labeled, settings: &DataSettings) -> Result<Classes> {
    let Objective::Classify(classify) = settings.objective() else {
        return Ok(Classes::default());
    };
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for text in splits.get(&Split::Train).into_iter().flatten() {
        *counts.entry(text.label.as_str()).or_default() += 1;
    }
    let found: BTreeSet<&str> = counts.keys().copied().collect();
    let classes = Classes::new(&classify, &found, Some(&counts))?;
    let texts: u64 = counts.values().sum();
    if classify.classes.is_empty() {
        check_labels(&classes, texts, &labeled.path, labeled)?;
    }
    for text in splits.values().flatten() {
        if classes.number(&text.label).is_none() {
            return Err(unknown(text, &classes, &classify));
        }
    }
    Ok(classes)
}

/// Refuses labels that nothing can be learned from.
fn check_labels(classes: &Classes, texts: u64, path: &Path, labeled: &Labeled) -> Result<()> {
    let name = path.display().to_string();
    if let [only] = classes.names.as_slice() {
        let reason = format!(
            "all {texts} texts for training have the label {only:?}; expected at least two classes"
        );
        return Err(Error::content(name, reason));
    }
    let many = classes.names.len() as u64;
    if many > 20 && many > texts / 2 {
        let reason = format!(
            "found {many} different labels for {texts} texts; is {:?} the field of labels? set source.label_field",
            labeled.label_field
        );
        return Err(Error::content(name, reason));
    }
    Ok(())
}

fn unknown(text: &LabeledText, classes: &Classes, classify: &Classify) -> Error {
    let (label, known) = (&text.label, classes.listed());
    let mut reason = match classify.classes.is_empty() {
        true => format!(
            "has the label {label:?}, which does not occur in the training data; expected one of {known}"
        ),
        false => format!("has the label {label:?}; expected one of {known}"),
    };
    if text.may_be_head {
        reason += &format!("; {HEAD}");
    }
    Error::content(&text.at, reason)
}

fn encoded(text: &LabeledText, tokenizer: &Tokenizer, classes: &Classes) -> Result<LabeledTokens> {
    let encode = |words: &str| {
        tokenizer.encode(words).map_err(|error| Error::content(&text.at, error.to_string()))
    };
    let first = encode(&text.text)?;
    let second = text.second.as_deref().map(encode).transpose()?;
    let class = classes.number(&text.label).expect("every label was looked up");
    if first.is_empty() && Framed::around(tokenizer, false) == 0 {
        return Err(Error::content(&text.at, "has no tokens; leave the text out"));
    }
    Ok(LabeledTokens { first, second, class })
}
