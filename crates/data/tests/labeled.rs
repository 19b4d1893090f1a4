//! Texts with labels: where they are read from, what their batches are, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeSet, fs, path::Path};

use whatwhere_data::{
    Batch, BatchSettings, BatchSize, Batches, Corpus, DataSettings, Special, Split, Tokenizer,
    settings::Labeled,
};

fn settings(folder: &Path, text: &str) -> Result<DataSettings, whatwhere_data::Error> {
    DataSettings::from_toml(&text.replace('@', &folder.display().to_string()))
}

fn load(folder: &Path, text: &str) -> Result<Corpus, whatwhere_data::Error> {
    Corpus::load(&settings(folder, text)?)
}

fn batches(corpus: &Corpus, split: Split, length: usize, seed: u64) -> Batches {
    let settings = BatchSettings { batch: BatchSize::Rows(3), length, seed, ..Default::default() };
    Batches::new(corpus, split, &settings).unwrap()
}

/// Text and class of every row.
fn rows(corpus: &Corpus, batch: &Batch) -> Vec<(String, String)> {
    let labels = batch.labels.as_ref().unwrap();
    let row = |row: usize| {
        let tokens = &batch.tokens[row * batch.length..][..batch.lengths[row]];
        let class = &corpus.classes()[labels.classes[row] as usize];
        (corpus.tokenizer().decode(tokens), class.clone())
    };
    (0..batch.rows).map(row).collect()
}

fn all(corpus: &Corpus, split: Split) -> BTreeSet<(String, String)> {
    let batches = batches(corpus, split, 64, 0);
    batches.evaluation(None).flat_map(|batch| rows(corpus, &batch.unwrap())).collect()
}

/// The same six texts in every form.
fn files(folder: &Path) {
    let texts = [
        ("good", "pos"),
        ("fine, \"it\" is", "pos"),
        ("bad", "neg"),
        ("poor", "neg"),
        ("so so", "mid"),
        ("meh", "mid"),
    ];
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write(
        "head.tsv",
        texts.iter().fold("label\ttext\n".into(), |all, (t, l)| all + &format!("{l}\t{t}\n")),
    );
    write("plain.tsv", texts.iter().map(|(t, l)| format!("7\t{t}\t{l}\n")).collect());
    write(
        "quoted.csv",
        texts.iter().fold("text,label\n".into(), |all, (t, l)| {
            all + &format!("\"{}\",{l}\n", t.replace('"', "\"\""))
        }),
    );
    let line =
        |(t, l): &(&str, &str)| format!("{}\n", serde_json::json!({ "review": t, "class": l }));
    write("keys.jsonl", texts.iter().map(line).collect());
    for (i, (text, label)) in texts.iter().enumerate() {
        let inner = folder.join("folders").join(label);
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join(format!("{i}.txt")), text).unwrap();
    }
    let mut archive = tar::Builder::new(fs::File::create(folder.join("all.tar")).unwrap());
    archive.append_dir_all("reviews", folder.join("folders")).unwrap();
    archive.finish().unwrap();
}

#[test]
fn labels_come_from_columns_keys_and_folders() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let mut found = Vec::new();
    for source in [
        "path = '@/head.tsv'",
        "path = '@/plain.tsv', field = '2', label_field = '3'",
        "path = '@/quoted.csv'",
        "path = '@/keys.jsonl', field = 'review', label_field = 'class'",
        "path = '@/folders'",
        "path = '@/all.tar'",
    ] {
        let text = format!(
            "valid_share = 0.0\ntokenizer = 'bytes'\nsource = {{ kind = 'labeled', {source} }}"
        );
        let corpus = load(folder.path(), &text).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(corpus.classes(), ["mid", "neg", "pos"], "{source}");
        assert_eq!(corpus.objective().name(), "classify");
        found.push(all(&corpus, Split::Train));
    }
    assert_eq!(found[0].len(), 6);
    assert!(found[0].contains(&("fine, \"it\" is".into(), "pos".into())));
    assert!(found.iter().all(|texts| *texts == found[0]), "{found:?}");
}

fn labeled(folder: &Path, path: &str, more: &str) -> Result<Corpus, whatwhere_data::Error> {
    let source = format!("source = {{ kind = 'labeled', path = '@/{path}'{more} }}");
    load(folder, &format!("valid_share = 0.0\ntokenizer = 'bytes'\n{source}"))
}

#[test]
fn what_lies_beside_labels_is_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    files(at);
    let expected = all(&labeled(at, "folders", "").unwrap(), Split::Train);
    // As data come: a note at the top of folders of classes, and one beside a table.
    fs::write(at.join("folders/README.md"), "about these texts").unwrap();
    fs::create_dir(at.join("table")).unwrap();
    fs::copy(at.join("head.tsv"), at.join("table/reviews.tsv")).unwrap();
    fs::write(at.join("table/SOURCE.md"), [0xFF, 0xFE]).unwrap();
    for (path, note) in [("folders", "README.md"), ("table", "SOURCE.md")] {
        let corpus = labeled(at, path, "").unwrap();
        assert_eq!(corpus.classes(), ["mid", "neg", "pos"], "{path}");
        assert_eq!(all(&corpus, Split::Train), expected, "{path}");
        let notes = corpus.describe().notes;
        assert!(notes.len() == 1 && notes[0].starts_with("left out: "), "{notes:?}");
        assert!(notes[0].contains(note) && notes[0].contains("beside"), "{notes:?}");
    }
}

#[test]
fn an_archive_is_parted_as_its_folders_say() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |path: &str, text: &str| {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    // As IMDB's reviews are distributed.
    write("imdb/README", "what this is");
    write("imdb/train/urls_pos.txt", "http://");
    for (split, word) in [("train", "seen"), ("test", "asked")] {
        write(&format!("imdb/{split}/pos/0_9.txt"), &format!("good {word}"));
        write(&format!("imdb/{split}/neg/1_2.txt"), &format!("bad {word}"));
    }
    write("imdb/train/unsup/2_0.txt", "so so");
    let mut archive = tar::Builder::new(fs::File::create(at.join("imdb.tar")).unwrap());
    archive.append_dir_all("imdb", at.join("imdb")).unwrap();
    archive.finish().unwrap();
    let mut whole = settings(at, "valid_share = 0.0\ntokenizer = 'bytes'").unwrap();
    whole.source = Labeled::default().in_folder(&at.join("imdb")).unwrap().into();
    let unpacked = Corpus::load(&whole).unwrap();
    for corpus in [labeled(at, "imdb.tar", "").unwrap(), unpacked] {
        assert_eq!(corpus.classes(), ["neg", "pos"]);
        let texts = |split| all(&corpus, split).into_iter().map(|(text, _)| text);
        assert!(texts(Split::Train).eq(["bad seen", "good seen"]));
        assert!(texts(Split::Test).eq(["bad asked", "good asked"]));
        let notes = corpus.describe().notes.join("\n");
        assert!(notes.contains("beside") && notes.contains("1 texts in unsup"), "{notes}");
    }
}

#[test]
fn a_file_of_tabs_is_a_table_whatever_its_name_and_a_missing_column_names_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |path: &str, text: &str| fs::write(at.join(path), text).unwrap();
    // As NSMC is distributed.
    write("ratings.txt", "id\tdocument\tlabel\n7\tgood\t1\n8\tbad\t0\n");
    let corpus = labeled(at, "ratings.txt", ", field = 'document'").unwrap();
    assert_eq!(corpus.classes(), ["0", "1"]);
    let message = labeled(at, "ratings.txt", ", field = '4', label_field = '1'");
    let message = message.unwrap_err().to_string();
    assert!(
        message.contains("has 3 columns, expected at least 4, by data.source.field = \"4\"")
            && message.ends_with("found id, document, label"),
        "{message}"
    );
    write("keys.jsonl", "{\"review\": \"good\", \"label\": 1}\n");
    let message = labeled(at, "keys.jsonl", "").unwrap_err().to_string();
    assert!(message.contains("one of which data.source.field can name"), "{message}");
}

#[test]
fn rows_are_framed_and_every_text_comes_once_in_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String =
        (0..40).map(|i| format!("{}\t{}\n", "x".repeat(i % 9 + 1), i % 2)).collect();
    fs::write(folder.path().join("a.tsv"), lines).unwrap();
    let text = "tokenizer = 'characters'\nvalid_share = 0.0\n\
                source = { kind = 'labeled', path = '@/a.tsv', field = '1', label_field = '2' }";
    let corpus = load(folder.path(), text).unwrap();
    let (begin, end) = (corpus.tokenizer().begin(), corpus.tokenizer().end());
    for seed in [0, 1] {
        let batches = batches(&corpus, Split::Train, 64, seed);
        for epoch in 0..2 {
            let each = batches.batches_per_epoch();
            let mut count = 0;
            for step in epoch * each..(epoch + 1) * each {
                let batch = batches.get(step).unwrap();
                count += batch.rows;
                assert!(batch.weights.iter().all(|weight| *weight == 0.0), "no token is predicted");
                assert_eq!(batch.documents, vec![vec![0]; batch.rows]);
                for row in batch.tokens.chunks(batch.length).zip(&batch.lengths) {
                    assert_eq!((Some(row.0[0]), Some(row.0[row.1 - 1])), (begin, end));
                }
                assert_eq!(batch, batches.get(step).unwrap(), "a batch follows from its step");
            }
            assert_eq!(count, 40);
        }
    }
    let held = |seed| -> Vec<Batch> {
        batches(&corpus, Split::Train, 64, seed).evaluation(None).map(Result::unwrap).collect()
    };
    assert_eq!(held(0), held(7), "no seed changes an evaluation");
    let lengths: Vec<usize> = held(0).iter().map(|batch| batch.length).collect();
    assert!(!lengths.is_sorted(), "a part of an evaluation has short and long texts: {lengths:?}");
    let cut = batches(&corpus, Split::Train, 8, 0);
    assert_eq!(cut.cut(), (0..40).filter(|i| i % 9 + 3 > 8).count());
    assert!(cut.evaluation(None).all(|batch| batch.unwrap().length <= 8));
}

#[test]
fn pairs_have_their_second_text_marked_and_balanced_classes_count_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "a\tbb\tyes\naa\tb\tno\naaa\tb\tno\na\tb\tno\n";
    fs::write(folder.path().join("a.tsv"), lines).unwrap();
    let text = "tokenizer = 'characters'\nvalid_share = 0.0\n\
                objective = { kind = 'classify', class_weights = 'balanced' }\n\
                source = { kind = 'labeled', path = '@/a.tsv', field = '1', second_field = '2', label_field = '3' }";
    let corpus = load(folder.path(), text).unwrap();
    assert_eq!(corpus.classes(), ["no", "yes"]);
    let batches = batches(&corpus, Split::Train, 64, 0);
    let tokenizer = corpus.tokenizer();
    let b = tokenizer.encode("b").unwrap()[0];
    for batch in (0..batches.batches_per_epoch()).map(|step| batches.get(step).unwrap()) {
        let labels = batch.labels.clone().unwrap();
        for (row, second) in labels.seconds.iter().enumerate() {
            let tokens = &batch.tokens[row * batch.length..][..batch.lengths[row]];
            assert_eq!(tokens.iter().position(|token| *token == b), Some(*second));
            assert_eq!(Some(tokens[second - 1]), tokenizer.end());
            let weight = [4.0 / 6.0, 2.0][labels.classes[row] as usize];
            assert_eq!(labels.weights[row], weight);
        }
    }
    for batch in batches.evaluation(None) {
        assert!(batch.unwrap().labels.unwrap().weights.iter().all(|weight| *weight == 1.0));
    }
    // Tokens of another run that has no end leave nothing to stand between two texts.
    let plain = Tokenizer::of_characters(&"ab".chars().collect(), &[Special::Padding]).unwrap();
    plain.save(&folder.path().join("plain.json")).unwrap();
    let text = text.replace("'characters'", "{ kind = 'file', path = '@/plain.json' }");
    let message = load(folder.path(), &text).unwrap_err().to_string();
    assert!(message.contains("no token to stand between two texts"), "{message}");
}

#[test]
fn a_task_has_classes_where_its_answers_are_some() {
    let text = "source = { kind = 'listops', shortest = 5, longest = 40, depth = 4 }\n\
                objective = 'classify'\nexamples = { train = 50, valid = 20, test = 20 }";
    let corpus = Corpus::load(&DataSettings::from_toml(text).unwrap()).unwrap();
    assert_eq!(corpus.classes().len(), 10);
    let settings = BatchSettings { batch: BatchSize::Rows(4), length: 41, ..Default::default() };
    let batch = Batches::new(&corpus, Split::Train, &settings).unwrap().get(3).unwrap();
    for (text, class) in rows(&corpus, &batch) {
        assert!(text.starts_with('[') || text.starts_with(|c: char| c.is_ascii_digit()), "{text}");
        assert!(class.parse::<u8>().unwrap() < 10);
    }
    let message = DataSettings::from_toml("source = 'copy'\nobjective = 'classify'").unwrap_err();
    assert!(message.to_string().contains("its answers are no classes"), "{message}");
}

#[test]
fn labels_that_cannot_be_learned_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |name: &str, text: &str| fs::write(at.join(name), text).unwrap();
    write("train.tsv", "good\tpos\nbad\tneg\n");
    write("valid.tsv", "good\tpos\nodd\tneutral\n");
    write("missing.tsv", "good\tpos\nbad\t\n");
    write("short.tsv", "good\tpos\nbad\n");
    write("torn.tsv", "good\tpos\nbad\tvery\tneg\n");
    write("one.tsv", "good\tpos\nfine\tpos\n");
    write("empty.tsv", "");
    write("blank.tsv", " \tpos\n\tneg\n");
    write("key.jsonl", "{\"text\": \"good\", \"label\": 1}\n{\"text\": \"bad\"}\n");
    write("lone.txt", "a text");
    write("unique.tsv", &(0..60).map(|i| format!("text {i}\tname {i}\n")).collect::<String>());
    let fields = "field = '1', label_field = '2'";
    for (source, more, expected) in [
        (
            "path = '@/train.tsv', valid = '@/valid.tsv'",
            "",
            "valid.tsv, line 2: has the label \"neutral\", which does not occur in the training data; expected one of neg, pos",
        ),
        ("path = '@/missing.tsv'", "", "missing.tsv, line 2: has no label in \"2\""),
        ("path = '@/short.tsv'", "", "short.tsv, line 2: has 1 columns, and the first row has 2"),
        ("path = '@/torn.tsv'", "", "torn.tsv, line 2: has 3 columns, and the first row has 2"),
        (
            "path = '@/one.tsv'",
            "",
            "one.tsv: all 2 texts for training have the label \"pos\"; expected at least two",
        ),
        ("path = '@/empty.tsv'", "", "empty.tsv: is empty, expected texts with labels"),
        ("path = '@/blank.tsv'", "", "blank.tsv: has only empty texts"),
        ("path = '@/unique.tsv'", "", "unique.tsv: found 60 different labels for 60 texts"),
        ("path = '@/lone.txt'", "", "lone.txt: has no label: it is no table"),
        (
            "path = '@/train.tsv'",
            "objective = { kind = 'classify', classes = ['pos', 'mid'] }",
            "has the label \"neg\"; expected one of pos, mid",
        ),
        (
            "path = '@/train.tsv'",
            "objective = { kind = 'classify', classes = ['pos'] }",
            "at least two different names",
        ),
        (
            "path = '@/train.tsv'",
            "objective = { kind = 'classify', class_weights = { pos = 0.0 } }",
            "a weight is above 0",
        ),
        (
            "path = '@/train.tsv'",
            "objective = { kind = 'classify', class_weights = { good = 2.0 } }",
            "there is no such class",
        ),
        (
            "path = '@/train.tsv'",
            "objective = 'masked'",
            "has no meaning for labeled; use classify",
        ),
    ] {
        let text = format!(
            "valid_share = 0.0\ntokenizer = 'bytes'\n{more}\nsource = {{ kind = 'labeled', {source}, {fields} }}"
        );
        let message = load(at, &text).expect_err(source).to_string();
        assert!(message.contains(expected), "{source} {more}: {message}");
    }
    let named = "valid_share = 0.0\nsource = { kind = 'labeled', path = '@/key.jsonl' }";
    let message = load(at, named).unwrap_err().to_string();
    assert!(message.contains("key.jsonl, line 2: has no label at the key \"label\""), "{message}");
    assert!(message.contains("found the keys [\"text\"]"), "{message}");
    for (value, found) in [("null", "null"), ("[1]", "a list")] {
        let row = format!(
            "{{\"text\": \"good\", \"label\": 1}}\n{{\"text\": \"bad\", \"label\": {value}}}\n"
        );
        write("key.jsonl", &row);
        let message = load(at, named).unwrap_err().to_string();
        let expected =
            format!("line 2: has no label at the key \"label\": found {found}, expected");
        assert!(message.contains(&expected), "{message}");
    }
    write("key.jsonl", "{\"text\": null, \"label\": 1}\n");
    let message = load(at, named).unwrap_err().to_string();
    assert!(message.contains("line 1: has no text at the key \"text\": found null"), "{message}");
    let head =
        "valid_share = 0.0\nsource = { kind = 'labeled', path = '@/train.tsv', field = '1' }";
    let message = load(at, head).unwrap_err().to_string();
    assert!(message.contains("source.label_field = \"label\": expected the number"), "{message}");
    let text = DataSettings::from_toml("objective = 'classify'").unwrap_err().to_string();
    assert!(text.contains("read by the source labeled"), "{text}");
    // What is left out is said.
    write("some.tsv", "good\tpos\n\tpos\nbad\tneg\n");
    let text = format!(
        "valid_share = 0.0\ntokenizer = 'bytes'\nsource = {{ kind = 'labeled', path = '@/some.tsv', {fields} }}"
    );
    let notes = load(at, &text).unwrap().describe().notes;
    assert!(
        notes[0].contains("left out: 1 empty of 3 texts") && notes[0].contains("line 2"),
        "{notes:?}"
    );
}

#[test]
fn the_head_of_a_table_that_became_a_text_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rows: String = (0..12).map(|i| format!("text {i}\t{}\n", i % 2)).collect();
    fs::write(at.join("head.tsv"), format!("text\tlabel\n{rows}")).unwrap();
    fs::write(at.join("plain.tsv"), &rows).unwrap();
    let corpus = |path: &str, valid: &str, fields: &str| {
        let source = format!("kind = 'labeled', path = '@/{path}', {valid}{fields}");
        load(at, &format!("valid_share = 0.0\ntokenizer = 'bytes'\nsource = {{ {source} }}"))
    };
    let numbers = "field = '1', label_field = '2'";
    let notes = |path: &str, fields: &str| corpus(path, "", fields).unwrap().describe().notes;
    let said = notes("head.tsv", numbers);
    assert!(said[0].contains("head.tsv, line 1 alone has the label \"label\""), "{said:?}");
    assert!(said[0].starts_with("warning: ") && said[0].contains("name the columns"), "{said:?}");
    assert!(notes("plain.tsv", numbers).is_empty());
    assert!(notes("head.tsv", "field = 'text', label_field = 'label'").is_empty());
    // The head of each file, too; of one alone the error says what it may be.
    let said = corpus("head.tsv", "valid = '@/head.tsv', ", numbers).unwrap().describe().notes;
    assert!(said[0].contains("alone has the label"), "{said:?}");
    let said = corpus("plain.tsv", "valid = '@/head.tsv', ", numbers).unwrap_err().to_string();
    assert!(said.contains("does not occur in the training data"), "{said}");
    assert!(said.contains("if it is the head of the table"), "{said}");
}

#[test]
fn a_table_holds_out_the_same_rows_with_labels_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = |i: usize| format!("{i}{}", "x".repeat(i * i % 53));
    let rows: String = (0..300).map(|i| format!("{}\t{}\n", text(i), i % 3)).collect();
    fs::write(at.join("all.tsv"), rows).unwrap();
    for shares in ["valid_share = 0.1", "valid_share = 0.2\ntest_share = 0.1"] {
        let of = |source: &str| {
            let source = format!("source = {{ path = '@/all.tsv', field = '1', {source} }}");
            load(at, &format!("{shares}\ntokenizer = 'bytes'\n{source}")).unwrap()
        };
        let (labeled, plain) = (of("kind = 'labeled', label_field = '2'"), of("kind = 'text'"));
        for split in [Split::Valid, Split::Test].into_iter().filter(|split| labeled.has(*split)) {
            let tokens = plain.tokens(split).unwrap();
            let tokens = tokens.read(0..tokens.len()).unwrap();
            let end = plain.tokenizer().end().unwrap();
            let decode = |tokens: &[u32]| plain.tokenizer().decode(tokens);
            let held: BTreeSet<String> =
                tokens.split(|token| *token == end).map(decode).filter(|t| !t.is_empty()).collect();
            let told: BTreeSet<String> =
                all(&labeled, split).into_iter().map(|(text, _)| text).collect();
            assert!(told.len() > 10, "{told:?}");
            assert_eq!(told, held, "{shares}");
        }
    }
}

#[test]
fn rows_of_a_table_are_held_out_by_their_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rows: String = (0..40).map(|i| format!("text {i}\n")).collect();
    fs::write(at.join("all.tsv"), rows).unwrap();
    for path in ["@/all.tsv", "@"] {
        let source = format!("source = {{ kind = 'text', path = '{path}', field = '1' }}");
        let corpus = load(at, &format!("tokenizer = 'bytes'\n{source}")).unwrap();
        let names = &corpus.describe().splits[&Split::Valid].names;
        assert!(!names.is_empty());
        assert!(names.iter().all(|name| name.starts_with("all.tsv, line ")), "{names:?}");
    }
}

#[test]
fn expressions_are_read_by_the_tokens_of_another_run_or_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("examples")).unwrap();
    let good = "3\t[MIN 4 3 ]\n9\t[SM 5 [MAX 4 1 ] ]\n".repeat(20);
    fs::write(at.join("good.tsv"), &good).unwrap();
    fs::write(at.join("examples/odd.tsv"), format!("{good}1\t( ( ( [PM 2 ) 2 ) ] )\n")).unwrap();
    let made = "source = { kind = 'listops', shortest = 5, longest = 40, depth = 4 }\n\
                objective = 'classify'\nexamples = { train = 50, valid = 20, test = 20 }";
    let made = load(at, made).unwrap();
    made.tokenizer().save(&at.join("tokens.json")).unwrap();
    let read = |path: &str| {
        load(
            at,
            &format!(
                "source = {{ kind = 'listops', path = '@/{path}' }}\nobjective = 'classify'\n\
                 valid_share = 0.0\ntokenizer = {{ kind = 'file', path = '@/tokens.json' }}"
            ),
        )
    };
    let corpus = read("good.tsv").unwrap();
    assert_eq!(corpus.vocabulary(), made.vocabulary());
    let settings = BatchSettings { batch: BatchSize::Rows(4), length: 16, ..Default::default() };
    let batch = Batches::new(&corpus, Split::Train, &settings).unwrap().get(0).unwrap();
    let rows = rows(&corpus, &batch);
    assert!(rows.iter().any(|(text, class)| text == "[MIN 4 3 ] =" && class == "3"), "{rows:?}");
    // The ids are the other run's.
    assert_eq!(corpus.tokenizer().encode("[SM").unwrap(), made.tokenizer().encode("[SM").unwrap());
    let message = read("examples/odd.tsv").unwrap_err().to_string();
    assert!(message.contains("odd.tsv, line 41: has \"[PM\""), "{message}");
    assert!(message.contains("it knows 0 1 2") && message.contains("[MED"), "{message}");
}
