//! Bad input is refused with what was wrong, what was found and what would be right.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;

use whatwhere_data::{BatchSettings, BatchSize, Batches, Corpus, DataSettings, Split};

/// Files of bad content, under their names.
fn files(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
    write("empty.txt", b"");
    write("latin.txt", b"caf\xe9 au lait");
    write("line.txt", b"one line");
    write("bad.jsonl", b"{\"text\": \"fine\"}\n{\"txt\": \"no\"}\n");
    write("broken.jsonl", b"{\"text\": \n");
    write("cut.txt.gz", &[0x1f, 0x8b, 8, 0, 0]);
    write("not.txt.zst", b"this is not compressed");
    write("not.tar", b"neither is this an archive, though it is a little longer");
    write("three.txt", b"a\nb\nc\n");
    write("two.txt", b"x\ny\n");
    write("table.tsv", b"a\tb\nc\n");
    write("latin.tsv", b"a\tb\nc\xff\td\n");
    write("list.json", b"[1, 2]");
    write("voices.json", b"{\"train\": [[[60, 50, 40]]]}");
    write("pitch.json", b"{\"train\": [[[60, 50, 40, 7]]]}");
    write("split.json", b"{\"training\": [[[60, 50, 40, 30]]]}");
    write("headless.fa", b"ACGT\n");
    write("digits.fa", b">x\nAC1\n");
    write("value.tsv", b"12\t[MAX 1 2 ]\n");
    std::fs::create_dir(folder.join("folder")).unwrap();
}

#[test]
fn files_are_refused_with_name_place_and_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let cases = [
        ("kind = 'fasta'", "source.path = \"\": expected a file or folder"),
        ("kind = 'text', path = '@/none.txt'", "none.txt: No such file"),
        ("kind = 'text', path = '@/empty.txt'", "empty.txt: is empty, expected text"),
        ("kind = 'text', path = '@/folder'", "folder: the folder has no files"),
        ("kind = 'text', path = '@/latin.txt'", "latin.txt: byte 3 is 0xe9, which is not UTF-8"),
        ("kind = 'text', path = '@/line.txt', valid = '@/empty.txt'", "empty.txt: is empty"),
        (
            "kind = 'text', path = '@/bad.jsonl'",
            "bad.jsonl, line 2: has no text at the key \"text\"; found the keys [\"txt\"]",
        ),
        ("kind = 'text', path = '@/broken.jsonl'", "broken.jsonl, line 1: is not JSON"),
        ("kind = 'text', path = '@/cut.txt.gz'", "cut.txt.gz: "),
        ("kind = 'text', path = '@/not.txt.zst'", "not.txt.zst: "),
        ("kind = 'text', path = '@/not.tar'", "not.tar: "),
        (
            "kind = 'text', path = '@/table.tsv'",
            "source.field = \"text\": expected the number of a column",
        ),
        (
            "kind = 'text', path = '@/table.tsv', field = '2'",
            "table.tsv, line 2: has 1 columns, expected at least 2",
        ),
        (
            "kind = 'pairs', source = '@/three.txt', target = '@/two.txt'",
            "three.txt: has 3 lines, and @/two.txt has 2; expected line by line",
        ),
        ("kind = 'pairs'", "source.source = \"\": expected a file"),
        (
            "kind = 'pairs', source = '@/table.tsv'",
            "table.tsv, line 2: has 1 columns, expected at least 2",
        ),
        (
            "kind = 'pairs', source = '@/latin.tsv'",
            "latin.tsv, line 2: byte 1 is 0xff, which is not UTF-8",
        ),
        ("kind = 'pairs', source = '@/empty.txt'", "empty.txt: has no pairs of lines"),
        (
            "kind = 'chorales', path = '@/list.json'",
            "list.json: expected an object of train, valid and test",
        ),
        (
            "kind = 'chorales', path = '@/voices.json'",
            "train, piece 0: step 0 has 3 voices, expected 4",
        ),
        (
            "kind = 'chorales', path = '@/pitch.json'",
            "step 0 has the pitch 7, expected 21 to 108, or -1",
        ),
        (
            "kind = 'chorales', path = '@/split.json'",
            "found the split \"training\", expected train",
        ),
        (
            "kind = 'fasta', path = '@/headless.fa'",
            "headless.fa, line 1: found \"ACGT\", expected a header",
        ),
        ("kind = 'fasta', path = '@/digits.fa'", "digits.fa, line 2: found '1' in a sequence"),
        (
            "kind = 'listops', path = '@/value.tsv'",
            "value.tsv, line 1: found \"12\\t[MAX 1 2 ]\", expected a digit",
        ),
    ];
    let root = folder.path().display().to_string();
    for (source, expected) in cases {
        let text = format!("source = {{ {source} }}").replace('@', &root);
        let settings = DataSettings::from_toml(&text).unwrap();
        let message = Corpus::load(&settings).unwrap_err().to_string().replace(&root, "@");
        assert!(message.contains(expected), "{source}: {message}");
    }
}

#[test]
fn settings_are_refused_with_what_was_found() {
    let cases = [
        ("sorce = 1", "unknown field `sorce`, expected"),
        ("source = 'txt'", "unknown variant `txt`, expected one of `text`, `pairs`"),
        (
            "source = { kind = 'copy', size = 3 }",
            "unknown field `size`, expected one of `shortest`",
        ),
        (
            "tokenizer = { kind = 'bpe', vocabulary = 100 }",
            "tokenizer.vocabulary = 100: expected at least 261",
        ),
        ("tokenizer = 'words'", "unknown variant `words`, expected one of `bytes`"),
        ("tokenizer = { kind = 'bytes', size = 3 }", "unknown field `size`"),
        (
            "source = 'copy'\ntokenizer = 'bytes'",
            "tokenizer = bytes: a task has symbols of its own",
        ),
        (
            "source = 'chorales'\ntokenizer = 'bytes'",
            "tokenizer = bytes: music has tokens of its own",
        ),
        (
            "source = 'pairs'\nobjective = 'next_token'",
            "objective = next_token: has no meaning for pairs; use translate",
        ),
        (
            "objective = 'translate'",
            "objective = translate: has no meaning for text; use next_token, prefix or masked",
        ),
        (
            "objective = { kind = 'masked', share = 0.0 }",
            "objective.share = 0: a share of positions is above 0",
        ),
        (
            "objective = { kind = 'masked', random = 0.5 }",
            "objective.random = 0.5: with hidden = 0.8 the sum is above 1",
        ),
        ("valid_share = 1.0", "valid_share = 1: a share is at least 0 and below 1"),
        (
            "valid_share = 0.6\ntest_share = 0.5",
            "valid_share = 0.6: with test_share = 0.5 nothing is left",
        ),
        (
            "source = { kind = 'indirect_indexing', longest = 60 }",
            "source.longest = 60: expected at most 52",
        ),
        (
            "source = { kind = 'indirect_indexing', shift = 0 }",
            "source.shift = 0: expected at least 1",
        ),
        ("source = { kind = 'sort', shortest = 0 }", "source.shortest = 0: expected at least 1"),
        ("source = { kind = 'sort', letters = 53 }", "source.letters = 53: expected 1 to 52"),
        (
            "source = { kind = 'recall', shortest = 30 }",
            "source.longest = 26: expected at least shortest = 30",
        ),
        (
            "source = { kind = 'listops', depth = 2 }",
            "source.shortest = 501: depth = 2 and arguments = 10 make at most 12",
        ),
    ];
    for (text, expected) in cases {
        let message = DataSettings::from_toml(text).unwrap_err().to_string();
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let corpus = Corpus::from_texts(vec!["a short text".into()], &DataSettings::default()).unwrap();
    let refusal = |split, batch, length| {
        let settings = BatchSettings { batch, length, ..Default::default() };
        Batches::new(&corpus, split, &settings).unwrap_err().to_string()
    };
    let rows = BatchSize::Rows(2);
    let cases = [
        (
            Split::Train,
            rows,
            10,
            "the train split has 10 tokens, expected at least 11 for length = 10; use more text or a shorter length",
        ),
        (
            Split::Test,
            rows,
            4,
            "the test split has nothing, expected some; give a file for it or a share above 0",
        ),
        (Split::Train, rows, 0, "length = 0: expected at least 1"),
        (Split::Train, BatchSize::Rows(0), 4, "batch = 0: expected at least 1"),
        (
            Split::Train,
            BatchSize::Tokens { tokens: 3 },
            4,
            "batch.tokens = 3: expected at least length = 4",
        ),
    ];
    for (split, batch, length, expected) in cases {
        assert_eq!(refusal(split, batch, length), expected);
    }
}

#[test]
fn a_file_that_is_no_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, "{}").unwrap();
    let message = whatwhere_data::Tokenizer::load(&path).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json: is not a tokenizer.json: "), "{message}");
}
