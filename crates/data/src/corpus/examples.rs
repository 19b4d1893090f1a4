//! Corpora of examples of tasks.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use whatwhere_random::{Fingerprint, Random};
use whatwhere_settings::Refuses;

use super::{Content, Corpus, Part, Split, classes::Classes};
use crate::{
    Error, Result, read,
    settings::{DataSettings, Examples, Objective, TokenizerSettings},
    split::{Shares, by_document},
    task::Example,
    tokenizer::{Special, Tokenizer},
};

impl Corpus {
    pub(super) fn of_task(settings: &DataSettings) -> Result<Self> {
        let source = settings.source.clone();
        let Some(task) = source.task() else {
            return Err(Error::setting("source.kind", source.name(), "expected a task"));
        };
        let symbols = task.symbols();
        let specials = of_examples(settings);
        let tokenizer = if symbols.iter().all(|symbol| symbol.chars().count() == 1) {
            Tokenizer::of_characters(&symbols.iter().flat_map(|s| s.chars()).collect(), &specials)?
        } else {
            Tokenizer::of_words(&symbols, &specials)?
        };
        let Examples { train, valid, test } = settings.examples;
        let train = if train == 0 { u64::MAX } else { train as u64 };
        let counts =
            [(Split::Train, train), (Split::Valid, valid as u64), (Split::Test, test as u64)];
        let mut hash = Fingerprint::new();
        hash.add(tokenizer.to_json()?.as_bytes());
        let mut parts = BTreeMap::new();
        for (split, documents) in counts {
            parts.insert(split, Part { documents, ..Part::default() });
            hash.add(&documents.to_le_bytes());
            // Some examples stand for all: they change when the parameters or their making change.
            for number in 0..SAMPLED {
                add(&mut hash, &task.example(&mut example_random(split, number)));
            }
        }
        let classes = classes(settings)?;
        let content = Content::Task(source);
        Ok(Self::new(tokenizer, content, parts, hash.finish(), settings).with_classes(classes))
    }

    pub(super) fn of_listops(path: &Path, settings: &DataSettings) -> Result<Self> {
        let examples = read::listops(path)?;
        let mut hash = Fingerprint::new();
        let mut symbols = BTreeSet::new();
        for (_, example) in &examples {
            add(&mut hash, example);
            symbols.extend(words(example).map(String::from));
        }
        let tokenizer = match &settings.tokenizer {
            // Another run's tokens stay as they are.
            Some(TokenizerSettings::File(file)) => {
                let tokenizer = file.load(&[])?;
                known(path, &examples, &tokenizer)?;
                tokenizer
            }
            _ => {
                let symbols: Vec<String> = symbols.into_iter().collect();
                Tokenizer::of_words(&symbols, &of_examples(settings))?
            }
        };
        let examples = examples.into_iter().map(|(_, example)| example);
        hash.add(tokenizer.to_json()?.as_bytes());
        let shares = Shares { valid: settings.valid_share, test: settings.test_share };
        hash.add(&shares.valid.to_le_bytes());
        hash.add(&shares.test.to_le_bytes());
        let documents: Vec<(u64, u64)> =
            examples.clone().map(|e| (Fingerprint::of(e.prompt.as_bytes()), 1)).collect();
        let mut splits: BTreeMap<Split, Vec<Example>> = BTreeMap::new();
        let mut parts: BTreeMap<Split, Part> = BTreeMap::new();
        for (example, split) in examples.zip(by_document(&documents, shares)) {
            splits.entry(split).or_default().push(example);
            parts.entry(split).or_default().documents += 1;
        }
        let (content, classes) = (Content::Examples(splits), classes(settings)?);
        Ok(Self::new(tokenizer, content, parts, hash.finish(), settings).with_classes(classes))
    }
}

/// The symbols of an example.
fn words(example: &Example) -> impl Iterator<Item = &str> {
    example.prompt.split(' ').chain([example.answer.as_str()])
}

/// Refuses symbols that have no token.
fn known(path: &Path, examples: &[(usize, Example)], tokenizer: &Tokenizer) -> Result<()> {
    for (line, example) in examples {
        let Some(word) = words(example).find(|word| tokenizer.id(word).is_none()) else { continue };
        let all = (0..tokenizer.vocabulary() as u32).filter(|token| !tokenizer.is_special(*token));
        let all: Vec<String> = all.map(|token| tokenizer.decode(&[token])).collect();
        let reason =
            format!("has {word:?}, which the model has no token for; it knows {}", all.join(" "));
        return Err(Error::content(format!("{}, line {line}", path.display()), reason));
    }
    Ok(())
}

/// The classes of a task's answers, where they are classified.
fn classes(settings: &DataSettings) -> Result<Classes> {
    let Objective::Classify(classify) = settings.objective() else {
        return Ok(Classes::default());
    };
    let answers = settings.source.task().and_then(|task| task.classes()).unwrap_or_default();
    let found: BTreeSet<&str> = answers.iter().map(String::as_str).collect();
    let classes = Classes::new(&classify, &found, None)?;
    if let Some(unknown) = answers.iter().find(|answer| classes.number(answer).is_none()) {
        let reason = format!("the task also answers {unknown:?}; leave it out to take all answers");
        return Err(Error::setting("objective.classes", format!("{:?}", classes.names), reason));
    }
    Ok(classes)
}

const SAMPLED: u64 = 8; // examples of each split in a fingerprint

fn add(hash: &mut Fingerprint, example: &Example) {
    hash.add(example.prompt.as_bytes());
    hash.add(example.answer.as_bytes());
}

/// What an example of a task follows from; the same for every seed of a run.
pub(crate) fn example_random(split: Split, number: u64) -> Random {
    Random::new(&[split as u64, number])
}

/// Special tokens for rows of different lengths.
pub(super) fn of_examples(settings: &DataSettings) -> Vec<Special> {
    let mut specials = vec![Special::Padding];
    match settings.objective() {
        Objective::NextToken(_) | Objective::Prefix(_) => {}
        Objective::Masked(_) => specials.push(Special::Mask),
        Objective::Translate(_) => specials.extend([Special::Begin, Special::End]),
        Objective::Classify(_) => {}
    }
    specials
}
