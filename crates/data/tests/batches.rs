//! Batches are what they promise: a function of seed and step, padded without weight, complete in evaluation.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use whatwhere_data::{
    Batch, BatchSettings, BatchSize, Batches, Corpus, DataSettings, Objective, Split,
    TokenizerSettings,
    settings::{Bytes, Characters, Chorales, Examples, Masked, Pairs, Prefix, Translate},
    task::{Addition, IndirectIndexing, ListOps, Recall, Sort},
};

fn text() -> String {
    (0..4000).map(|i| format!("{} ", i * 7919 % 1000)).collect()
}

fn text_corpus(objective: Option<Objective>) -> Corpus {
    let settings = DataSettings { objective, ..DataSettings::default() };
    Corpus::from_texts(vec![text()], &settings).unwrap()
}

/// Pairs of numbers in words of differing lengths, in files that the folder keeps.
fn pair_corpus(folder: &std::path::Path) -> Corpus {
    let line = |i: usize, word: &str| format!("{i} {}\n", word.repeat(1 + i * 31 % 17));
    for (name, word) in [("a.txt", "ab "), ("b.txt", "xyz ")] {
        std::fs::write(folder.join(name), (0..500).map(|i| line(i, word)).collect::<String>())
            .unwrap();
    }
    let (source, target) = (folder.join("a.txt"), folder.join("b.txt"));
    let tokenizer = Some(TokenizerSettings::Bytes(Bytes {}));
    let settings = DataSettings::of(Pairs { source, target, ..Pairs::default() });
    Corpus::load(&DataSettings { tokenizer, ..settings }).unwrap()
}

fn chorale_corpus(folder: &std::path::Path) -> Corpus {
    let path = folder.join("chorales.json");
    let piece = |steps: usize| {
        let steps: Vec<String> =
            (0..steps).map(|i| format!("[{}, 60, 50, -1]", 61 + i % 20)).collect();
        format!("[{}]", steps.join(", "))
    };
    let pieces = |counts: &[usize]| counts.iter().map(|&c| piece(c)).collect::<Vec<_>>().join(", ");
    let json = format!(
        "{{\"train\": [{}], \"valid\": [{}], \"test\": [{}]}}",
        pieces(&[10, 20, 30, 40, 50]),
        pieces(&[10, 33]),
        pieces(&[5])
    );
    std::fs::write(&path, json).unwrap();
    Corpus::load(&DataSettings::of(Chorales { path })).unwrap()
}

fn task_corpora() -> Vec<Corpus> {
    let small = ListOps { depth: 5, arguments: 5, shortest: 5, longest: 60, path: None };
    let sources = [
        IndirectIndexing::default().into(),
        Sort::default().into(),
        Recall::default().into(),
        small.into(),
        Addition::default().into(),
    ];
    let objectives = [
        None,
        Some(Masked::default().into()),
        Some(Translate {}.into()),
        Some(Prefix::default().into()),
    ];
    let examples = Examples { train: 1000, valid: 70, test: 0 };
    sources
        .iter()
        .flat_map(|source: &whatwhere_data::Source| {
            objectives.iter().map(|o| (source.clone(), o.clone()))
        })
        .map(|(source, objective)| {
            let settings =
                DataSettings { objective, examples: examples.clone(), ..DataSettings::of(source) };
            Corpus::load(&settings).unwrap()
        })
        .collect()
}

fn all_corpora(folder: &std::path::Path) -> Vec<Corpus> {
    let mut corpora = vec![
        text_corpus(None),
        text_corpus(Some(Masked::default().into())),
        text_corpus(Some(Prefix::default().into())),
        pair_corpus(folder),
        chorale_corpus(folder),
    ];
    corpora.extend(task_corpora());
    corpora
}

fn settings(seed: u64) -> BatchSettings {
    BatchSettings { batch: BatchSize::Rows(8), length: 96, seed, ..Default::default() }
}

#[test]
fn batches_are_a_function_of_seed_and_step() {
    let folder = tempfile::tempdir().unwrap();
    for corpus in all_corpora(folder.path()) {
        let make = |seed| Batches::new(&corpus, Split::Train, &settings(seed)).unwrap();
        let (first, second) = (make(1), make(1));
        let steps = [0, 1, 2, 57, 58, 1_000_003];
        let forwards: Vec<Batch> = steps.iter().map(|&s| first.get(s).unwrap()).collect();
        let backwards: Vec<Batch> = steps.iter().rev().map(|&s| second.get(s).unwrap()).collect();
        assert!(forwards.iter().eq(backwards.iter().rev()));
        assert_ne!(forwards[0], forwards[1]);
        assert_ne!(make(2).get(0).unwrap(), forwards[0]);
    }
}

#[test]
fn a_prefix_is_drawn_for_each_row_and_not_predicted() {
    let corpus = text_corpus(Some(Prefix { share: 0.25 }.into()));
    let batches = Batches::new(&corpus, Split::Train, &settings(3)).unwrap();
    let mut lengths = std::collections::BTreeSet::new();
    for step in 0..40 {
        let batch = batches.get(step).unwrap();
        let prefixes = batch.prefixes.unwrap();
        assert_eq!(prefixes.len(), batch.rows);
        for (weights, prefix) in batch.weights.chunks(96).zip(prefixes) {
            // The last token that is given predicts the first that is not.
            let first = prefix.saturating_sub(1);
            assert!(weights[..first].iter().all(|weight| *weight == 0.0), "{prefix}");
            assert!(weights[first..].iter().all(|weight| *weight == 1.0), "{prefix}");
            lengths.insert(prefix);
        }
    }
    // A quarter of 96 at the most, and every length on the way.
    assert_eq!(lengths, (0..=24).collect());
    let plain = Batches::new(&text_corpus(None), Split::Train, &settings(3)).unwrap();
    assert_eq!(plain.get(0).unwrap().prefixes, None);
}

#[test]
fn the_prompt_of_a_task_is_its_prefix() {
    let settings = DataSettings {
        objective: Some(Prefix::default().into()),
        ..DataSettings::of(Addition::default())
    };
    let corpus = Corpus::load(&settings).unwrap();
    let cut = BatchSettings { batch: BatchSize::Rows(4), length: 96, ..Default::default() };
    let batch = Batches::new(&corpus, Split::Valid, &cut).unwrap().get(0).unwrap();
    for (row, prefix) in batch.prefixes.unwrap().into_iter().enumerate() {
        let weights = &batch.weights[row * batch.length..][..batch.lengths[row]];
        assert_eq!(weights.iter().filter(|weight| **weight == 0.0).count(), prefix - 1);
        let tokens = &batch.tokens[row * batch.length..][..prefix];
        assert!(corpus.tokenizer().decode(tokens).trim_end().ends_with('='), "the question");
    }
}

#[test]
fn evaluation_does_not_depend_on_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    for corpus in all_corpora(folder.path()) {
        let pass = |seed| -> Vec<Batch> {
            let batches = Batches::new(&corpus, Split::Valid, &settings(seed)).unwrap();
            batches.evaluation(None).map(Result::unwrap).collect()
        };
        let all = pass(1);
        assert!(!all.is_empty());
        assert_eq!(all, pass(2));
        let batches = Batches::new(&corpus, Split::Valid, &settings(1)).unwrap();
        assert_eq!(batches.evaluation(Some(1)).count(), 1);
    }
}

#[test]
fn no_target_of_a_padded_place_counts() {
    let folder = tempfile::tempdir().unwrap();
    for corpus in all_corpora(folder.path()) {
        let padding = corpus.tokenizer().padding();
        for split in [Split::Train, Split::Valid] {
            let batches = Batches::new(&corpus, split, &settings(3)).unwrap();
            for batch in
                batches.evaluation(Some(20)).map(Result::unwrap).chain([batches.get(5).unwrap()])
            {
                check(&batch, corpus.vocabulary(), padding);
            }
        }
    }
}

fn check(batch: &Batch, vocabulary: usize, padding: Option<u32>) {
    let size = batch.rows * batch.length;
    assert!(batch.rows > 0 && batch.length > 0 && batch.length <= 96);
    assert_eq!([batch.tokens.len(), batch.targets.len(), batch.weights.len()], [size; 3]);
    assert_eq!(batch.lengths.len(), batch.rows);
    assert!(batch.tokens.iter().chain(&batch.targets).all(|&token| (token as usize) < vocabulary));
    assert!(batch.weights.iter().any(|&weight| weight > 0.0));
    for (row, &length) in batch.lengths.iter().enumerate() {
        for place in 0..batch.length {
            let at = row * batch.length + place;
            if place >= length {
                assert_eq!(batch.weights[at], 0.0);
            }
            if padding.is_some() && batch.weights[at] > 0.0 {
                assert_ne!(Some(batch.targets[at]), padding);
            }
        }
    }
    if let Some(source) = &batch.source {
        assert_eq!(source.tokens.len(), batch.rows * source.length);
        assert_eq!(source.lengths.iter().max(), Some(&source.length));
    }
}

#[test]
fn evaluation_of_text_predicts_every_token_but_the_first_once() {
    let corpus = text_corpus(None);
    let tokens = corpus.tokens(Split::Valid).unwrap();
    let all = tokens.read(0..tokens.len()).unwrap();
    let batches = Batches::new(&corpus, Split::Valid, &settings(0)).unwrap();
    let mut predicted = Vec::new();
    for batch in batches.evaluation(None) {
        let batch = batch.unwrap();
        predicted.extend(
            batch.targets.iter().zip(&batch.weights).filter(|(_, w)| **w > 0.0).map(|(t, _)| *t),
        );
    }
    assert_eq!(predicted, all[1..]);
}

#[test]
fn crops_of_text_are_pieces_of_it_with_the_next_token_as_target() {
    let corpus = text_corpus(None);
    let batch = Batches::new(&corpus, Split::Train, &settings(0)).unwrap().get(3).unwrap();
    for row in 0..batch.rows {
        let range = row * batch.length..(row + 1) * batch.length;
        let crop = corpus.tokenizer().decode(&batch.tokens[range.clone()]);
        assert!(text().contains(&crop));
        assert_eq!(
            batch.tokens[range.start + 1..range.end],
            batch.targets[range.start..range.end - 1]
        );
    }
}

#[test]
fn an_epoch_of_pairs_shows_each_once_and_little_padding() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = pair_corpus(folder.path());
    for batch in [BatchSize::Rows(8), BatchSize::Tokens { tokens: 400 }] {
        let settings = BatchSettings { batch, ..settings(4) };
        let batches = Batches::new(&corpus, Split::Train, &settings).unwrap();
        let epoch = batches.batches_per_epoch();
        let mut orders = Vec::new();
        for start in [0, epoch] {
            let (mut seen, mut places, mut used) = (Vec::new(), 0, 0);
            for step in start..start + epoch {
                let batch = batches.get(step).unwrap();
                let source = batch.source.unwrap();
                places += batch.tokens.len() + source.tokens.len();
                used += batch.lengths.iter().sum::<usize>() + source.lengths.iter().sum::<usize>();
                if let BatchSize::Tokens { tokens } = settings.batch {
                    assert!(source.tokens.len() <= tokens && batch.tokens.len() <= tokens);
                }
                let rows = source.tokens.chunks(source.length);
                seen.extend(rows.map(|row| corpus.tokenizer().decode(row)));
            }
            assert!(used * 10 > places * 9, "{used} of {places} places are used");
            orders.push(seen.clone());
            seen.sort();
            let mut all: Vec<String> = corpus
                .pairs(Split::Train)
                .unwrap()
                .iter()
                .map(|pair| pair.source_text.clone())
                .collect();
            all.sort();
            assert_eq!(seen.len() + batches.left_out(), all.len());
            seen.dedup();
            assert!(seen.iter().all(|text| all.binary_search(text).is_ok()));
        }
        assert_ne!(orders[0], orders[1]);
    }
}

#[test]
fn translation_shifts_the_target_by_its_begin() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = pair_corpus(folder.path());
    let tokenizer = corpus.tokenizer();
    let (begin, end) = (tokenizer.begin().unwrap(), tokenizer.end().unwrap());
    let batch = Batches::new(&corpus, Split::Train, &settings(0)).unwrap().get(0).unwrap();
    let source = batch.source.as_ref().unwrap();
    for row in 0..batch.rows {
        let start = row * batch.length;
        let length = batch.lengths[row];
        let (tokens, targets) =
            (&batch.tokens[start..start + length], &batch.targets[start..start + length]);
        assert_eq!((tokens[0], targets[length - 1]), (begin, end));
        assert_eq!(tokens[1..], targets[..length - 1]);
        let from = &source.tokens[row * source.length..][..source.lengths[row]];
        assert_eq!(from.last(), Some(&end));
        let pairs = corpus.pairs(Split::Train).unwrap();
        assert!(pairs.iter().any(|pair| {
            pair.source_text == tokenizer.decode(from)
                && pair.target_text == tokenizer.decode(tokens)
        }));
    }
}

#[test]
fn masks_have_the_shares_of_the_settings() {
    let corpus = text_corpus(Some(Masked::default().into()));
    let mask = corpus.tokenizer().mask().unwrap();
    let batches = Batches::new(&corpus, Split::Train, &settings(0)).unwrap();
    let (mut all, mut chosen, mut hidden, mut same) = (0.0, 0.0, 0.0, 0.0);
    for step in 0..200 {
        let batch = batches.get(step).unwrap();
        for ((token, target), weight) in batch.tokens.iter().zip(&batch.targets).zip(&batch.weights)
        {
            all += 1.0;
            chosen += weight;
            if *weight > 0.0 {
                hidden += f32::from(*token == mask);
                same += f32::from(token == target);
            } else {
                assert_eq!(token, target);
            }
        }
    }
    // 153,600 places, 23,040 chosen: five standard deviations are 0.0046, 0.013 and 0.01.
    assert!((chosen / all - 0.15f32).abs() < 0.0046, "{}", chosen / all);
    assert!((hidden / chosen - 0.8).abs() < 0.013, "{}", hidden / chosen);
    assert!((same / chosen - 0.1).abs() < 0.01, "{}", same / chosen);
}

#[test]
fn a_short_row_has_at_least_one_place_to_predict() {
    let corpus = text_corpus(Some(Masked::default().into()));
    let short = BatchSettings { length: 2, ..settings(0) };
    let batches = Batches::new(&corpus, Split::Train, &short).unwrap();
    for step in 0..50 {
        let batch = batches.get(step).unwrap();
        assert!(batch.weights.chunks(2).all(|row| row.iter().sum::<f32>() > 0.0));
    }
}

#[test]
fn only_the_answer_of_a_task_counts() {
    for corpus in task_corpora() {
        let batches = Batches::new(&corpus, Split::Valid, &settings(0)).unwrap();
        let batch = batches.evaluation(Some(1)).next().unwrap().unwrap();
        for row in 0..batch.rows {
            let range = row * batch.length..(row + 1) * batch.length;
            let weights = &batch.weights[range];
            let first = weights.iter().position(|&w| w > 0.0).unwrap();
            let last = weights.iter().rposition(|&w| w > 0.0).unwrap();
            assert!(weights[first..=last].iter().all(|&w| w == 1.0));
            assert_eq!(last, batch.lengths[row] - 1);
        }
        assert_eq!(batches.evaluation(None).map(|batch| batch.unwrap().rows).sum::<usize>(), 70);
    }
}

#[test]
fn indirect_indexing_has_the_papers_vocabulary_and_padding() {
    let corpus = Corpus::load(&DataSettings::of(IndirectIndexing::default())).unwrap();
    assert_eq!(corpus.vocabulary(), 66);
    let fits = BatchSettings { length: 47, ..settings(0) };
    assert!(Batches::new(&corpus, Split::Train, &fits).is_ok());
    let short = BatchSettings { length: 46, ..settings(0) };
    let refusal = Batches::new(&corpus, Split::Train, &short).unwrap_err().to_string();
    assert!(refusal.contains("length = 46: the task's examples have up to 47"), "{refusal}");
}

#[test]
fn pieces_are_cropped_at_the_start_of_a_step_and_evaluated_whole() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = chorale_corpus(folder.path());
    assert_eq!(corpus.vocabulary(), 90);
    let batches = Batches::new(&corpus, Split::Train, &settings(0)).unwrap();
    assert_eq!(batches.batches_per_epoch(), 1);
    for step in 0..20 {
        let batch = batches.get(step).unwrap();
        for row in 0..batch.rows {
            let start = &batch.tokens[row * batch.length..][..4];
            assert_eq!(start[1..], [60 - 21, 50 - 21, 88]);
        }
    }
    let batches = Batches::new(&corpus, Split::Valid, &settings(0)).unwrap();
    let counted: f32 = batches.evaluation(None).flat_map(|b| b.unwrap().weights).sum();
    assert_eq!(counted, (10 * 4 - 1 + 33 * 4 - 1) as f32);
}

#[test]
fn characters_are_in_the_order_of_unicode_without_special_tokens() {
    let tokenizer = Some(TokenizerSettings::Characters(Characters {}));
    let settings = DataSettings { tokenizer, ..DataSettings::default() };
    let corpus = Corpus::from_texts(vec!["cab ".repeat(50)], &settings).unwrap();
    assert_eq!(corpus.vocabulary(), 4);
    assert_eq!(corpus.tokenizer().encode(" abc").unwrap(), [0, 1, 2, 3]);
}

#[test]
fn continuous_rows_go_on_where_they_ended() {
    let text: String = (0..900u32).map(|i| char::from(b'a' + (i * i % 26) as u8)).collect();
    let settings = DataSettings { valid_share: 0.3, ..DataSettings::default() };
    let corpus = Corpus::from_texts(vec![text], &settings).unwrap();
    let cut = BatchSettings {
        batch: BatchSize::Rows(3),
        length: 10,
        is_continuous: true,
        ..BatchSettings::default()
    };
    let batches = Batches::new(&corpus, Split::Train, &cut).unwrap();
    assert!(batches.begins_anew(0) && !batches.begins_anew(1));
    for step in 0..19 {
        let (now, then) = (batches.get(step).unwrap(), batches.get(step + 1).unwrap());
        for row in 0..3 {
            // The last target of a segment is the first token of the next.
            assert_eq!(now.targets[row * 10 + 9], then.tokens[row * 10], "step {step} row {row}");
        }
    }
    // Every place of the evaluation is read once, rows in their own order.
    let valid = Batches::new(&corpus, Split::Valid, &cut).unwrap();
    let batches: Vec<_> = valid.evaluation(None).map(Result::unwrap).collect();
    let counted: f32 = batches.iter().flat_map(|batch| &batch.weights).sum();
    assert_eq!(counted as usize, corpus.tokens(Split::Valid).unwrap().len() - 1);
    for (now, then) in batches.iter().zip(&batches[1..]).filter(|(a, b)| a.rows == b.rows) {
        for row in 0..now.rows {
            assert_eq!(now.targets[row * now.length + 9], then.tokens[row * then.length]);
        }
    }
}
