//! Every form of file gives its documents; splits share none; what is cached equals what is not.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeSet, io::Write, path::Path};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use whatwhere_data::{
    BatchSettings, Batches, Corpus, DataSettings, Source, Split, TokenizerSettings,
    settings::{Bpe, Characters, Fasta, Masked, Pairs, Text},
};

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

/// By Python's `zipfile`: `a/one.txt` (deflated), `__MACOSX/a/._one.txt`, `a/.hidden`, `two.txt` (stored).
const ZIP: &[u8] = &[
    80, 75, 3, 4, 20, 0, 0, 0, 8, 0, 0, 0, 33, 0, 181, 220, 157, 123, 11, 0, 0, 0, 120, 0, 0, 0, 9,
    0, 0, 0, 97, 47, 111, 110, 101, 46, 116, 120, 116, 75, 203, 44, 42, 46, 225, 74, 163, 59, 9, 0,
    80, 75, 3, 4, 20, 0, 0, 0, 0, 0, 0, 0, 33, 0, 31, 40, 170, 103, 2, 0, 0, 0, 2, 0, 0, 0, 20, 0,
    0, 0, 95, 95, 77, 65, 67, 79, 83, 88, 47, 97, 47, 46, 95, 111, 110, 101, 46, 116, 120, 116,
    110, 111, 80, 75, 3, 4, 20, 0, 0, 0, 0, 0, 0, 0, 33, 0, 31, 40, 170, 103, 2, 0, 0, 0, 2, 0, 0,
    0, 9, 0, 0, 0, 97, 47, 46, 104, 105, 100, 100, 101, 110, 110, 111, 80, 75, 3, 4, 20, 0, 0, 0,
    0, 0, 0, 0, 33, 0, 126, 192, 15, 6, 7, 0, 0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 116, 119, 111, 46, 116,
    120, 116, 115, 101, 99, 111, 110, 100, 10, 80, 75, 1, 2, 20, 3, 20, 0, 0, 0, 8, 0, 0, 0, 33, 0,
    181, 220, 157, 123, 11, 0, 0, 0, 120, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 1, 0,
    0, 0, 0, 97, 47, 111, 110, 101, 46, 116, 120, 116, 80, 75, 1, 2, 20, 3, 20, 0, 0, 0, 0, 0, 0,
    0, 33, 0, 31, 40, 170, 103, 2, 0, 0, 0, 2, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128,
    1, 50, 0, 0, 0, 95, 95, 77, 65, 67, 79, 83, 88, 47, 97, 47, 46, 95, 111, 110, 101, 46, 116,
    120, 116, 80, 75, 1, 2, 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 33, 0, 31, 40, 170, 103, 2, 0, 0, 0, 2,
    0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 1, 102, 0, 0, 0, 97, 47, 46, 104, 105, 100,
    100, 101, 110, 80, 75, 1, 2, 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 33, 0, 126, 192, 15, 6, 7, 0, 0,
    0, 7, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 1, 143, 0, 0, 0, 116, 119, 111, 46,
    116, 120, 116, 80, 75, 5, 6, 0, 0, 0, 0, 4, 0, 4, 0, 229, 0, 0, 0, 187, 0, 0, 0, 0, 0,
];

/// `printf 'xz\n' | xz`
const XZ: &[u8] = &[
    253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163,
    1, 0, 2, 120, 122, 10, 0, 0, 152, 222, 8, 106, 190, 227, 51, 71, 0, 1, 27, 3, 11, 47, 185, 16,
    31, 182, 243, 125, 1, 0, 0, 0, 0, 4, 89, 90,
];

const FIRST: &str = "첫째 문서, the first document.\n";
const SECOND: &str = "And the second.\n";

/// The documents of a path, without the end tokens between them, when nothing is kept back.
fn read(path: &Path) -> Vec<String> {
    let text = Text { path: path.into(), field: "body".into(), ..Text::default() };
    read_settings(&DataSettings { valid_share: 0.0, ..DataSettings::of(text) })
}

fn read_settings(settings: &DataSettings) -> Vec<String> {
    let corpus = Corpus::load(settings).unwrap();
    documents(&corpus, Split::Train)
}

fn documents(corpus: &Corpus, split: Split) -> Vec<String> {
    let Some(tokens) = corpus.tokens(split) else { return Vec::new() };
    let tokens = tokens.read(0..tokens.len()).unwrap();
    let Some(end) = corpus.tokenizer().end() else {
        return vec![corpus.tokenizer().decode(&tokens)];
    };
    let parts = tokens.split_inclusive(|&token| token == end);
    parts.map(|part| corpus.tokenizer().decode(part)).collect()
}

#[test]
fn every_form_of_file_gives_its_documents() {
    let folder = tempfile::tempdir().unwrap();
    let json: String = [FIRST, SECOND]
        .iter()
        .map(|text| format!("{{\"id\": 1, \"body\": {}}}\n", serde_json::to_string(text).unwrap()))
        .collect();
    let packed = tar(&[("a/one.txt", FIRST), ("two.txt", SECOND)]);
    let half = FIRST.find(',').unwrap();
    let frames = [zstd(&FIRST.as_bytes()[..half]), zstd(&FIRST.as_bytes()[half..])].concat();
    let skippable =
        [&[0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 9, 9, 9][..], &zstd(FIRST.as_bytes())].concat();
    let first = "first\n".repeat(20);
    let cases: Vec<(&str, Vec<u8>, Vec<&str>)> = vec![
        ("one.txt", FIRST.into(), vec![FIRST]),
        ("mark.txt", format!("\u{FEFF}{FIRST}").into(), vec![FIRST]),
        ("one.txt.gz", gzip(FIRST.as_bytes()), vec![FIRST]),
        ("two.txt.gz", [gzip(FIRST.as_bytes()), gzip(SECOND.as_bytes())].concat(), vec![]),
        ("one.txt.zst", zstd(FIRST.as_bytes()), vec![FIRST]),
        ("frames.txt.zst", frames, vec![FIRST]),
        ("skippable.zst", skippable, vec![FIRST]),
        ("lines.jsonl", json.clone().into(), vec![FIRST, SECOND]),
        ("lines.jsonl.zst", zstd(json.as_bytes()), vec![FIRST, SECOND]),
        ("packed.tar", packed.clone(), vec![FIRST, SECOND]),
        ("packed.zip", ZIP.into(), vec![&first, "second\n"]),
        ("one.txt.xz", XZ.into(), vec!["xz\n"]),
        (
            "rows.csv",
            b"id,body\n1,\"a, \"\"quoted\"\"\nline\"\n2,b\n".into(),
            vec!["a, \"quoted\"\nline", "b"],
        ),
        ("rows.tsv", b"id\tbody\n1\ta\n2\tb\n".into(), vec!["a", "b"]),
        ("packed.tgz", gzip(&packed), vec![FIRST, SECOND]),
        ("packed.tar.gz", gzip(&packed), vec![FIRST, SECOND]),
        ("packed.tar.zst", zstd(&packed), vec![FIRST, SECOND]),
        ("lines.tar", tar(&[("l.jsonl", &json)]), vec![FIRST, SECOND]),
    ];
    for (name, bytes, expected) in cases {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let joined = vec![[FIRST, SECOND].concat()];
        let expected = if expected.is_empty() {
            joined
        } else {
            expected.iter().map(|s| s.to_string()).collect()
        };
        assert_eq!(read(&path), expected, "{name}");
    }
}

#[test]
fn folders_are_read_in_order_with_all_below_them_but_hidden_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("b")).unwrap();
    for (name, text) in
        [("c.txt", "third"), ("b/x.txt.gz", ""), ("a.txt", "first"), (".hidden", "no")]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    std::fs::write(folder.path().join("b/x.txt.gz"), gzip(b"second")).unwrap();
    assert_eq!(read(folder.path()), ["first", "second", "third"]);
}

#[test]
fn a_column_of_a_table_is_text_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reviews.tsv");
    std::fs::write(&path, "1\t9\t재미있다\n0\t2\t별로\n").unwrap();
    let text = Text { path, field: "3".into(), ..Text::default() };
    let settings = DataSettings { valid_share: 0.0, ..DataSettings::of(text) };
    assert_eq!(read_settings(&settings), ["재미있다", "별로"]);
}

#[test]
fn a_fasta_header_starts_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("genome.fa.gz");
    std::fs::write(&path, gzip(b">one human\nACgt\nNN\n>two\nTTTT\n")).unwrap();
    for (upper, first) in [(true, "ACGTNN"), (false, "ACgtNN")] {
        let fasta = Fasta { path: path.clone(), upper, ..Fasta::default() };
        let settings = DataSettings { valid_share: 0.0, ..DataSettings::of(fasta) };
        assert_eq!(read_settings(&settings), [first, "TTTT"]);
    }
    // A folder of them with a note beside.
    std::fs::write(folder.path().join("SOURCE.md"), "# Where they are from\n").unwrap();
    let fasta = Fasta { path: folder.path().into(), ..Fasta::default() };
    let settings = DataSettings { valid_share: 0.0, ..DataSettings::of(fasta) };
    assert_eq!(read_settings(&settings), ["ACGTNN", "TTTT"]);
}

#[test]
fn splits_share_no_document_and_lose_none() {
    let texts: Vec<String> =
        (0..200).map(|i| format!("document {} ", i % 150).repeat(1 + i % 150 % 7)).collect();
    let settings = DataSettings { valid_share: 0.1, test_share: 0.2, ..DataSettings::default() };
    let corpus = Corpus::from_texts(texts.clone(), &settings).unwrap();
    let splits = [Split::Train, Split::Valid, Split::Test].map(|split| documents(&corpus, split));
    let sets = splits.clone().map(|documents| documents.into_iter().collect::<BTreeSet<String>>());
    assert!(
        sets[0].is_disjoint(&sets[1])
            && sets[0].is_disjoint(&sets[2])
            && sets[1].is_disjoint(&sets[2])
    );
    let mut all: Vec<String> = splits.concat();
    all.sort();
    let mut given = texts;
    given.sort();
    assert_eq!(all, given);
    let bytes = |i: usize| splits[i].concat().len() as f64 / given.concat().len() as f64;
    assert!((bytes(1) - 0.1).abs() < 0.02 && (bytes(2) - 0.2).abs() < 0.02);
}

#[test]
fn pairs_with_the_same_source_stay_in_one_split() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pairs.tsv");
    let lines: String = (0..300).map(|i| format!("hello {}\t안녕 {i}\tnote\n", i % 100)).collect();
    std::fs::write(&path, lines).unwrap();
    let tokenizer = Some(TokenizerSettings::Bpe(Bpe { vocabulary: 300 }));
    let source = Pairs { source: path, ..Pairs::default() };
    let corpus = Corpus::load(&DataSettings { tokenizer, ..DataSettings::of(source) }).unwrap();
    let sources = |split| -> BTreeSet<String> {
        corpus.pairs(split).unwrap().iter().map(|pair| pair.source_text.clone()).collect()
    };
    assert!(sources(Split::Train).is_disjoint(&sources(Split::Valid)));
    assert_eq!(
        corpus.pairs(Split::Train).unwrap().len() + corpus.pairs(Split::Valid).unwrap().len(),
        300
    );
    let pair = &corpus.pairs(Split::Valid).unwrap()[0];
    assert_eq!(corpus.tokenizer().decode(&pair.target), pair.target_text);
}

#[test]
fn one_text_is_cut_at_its_tail_as_nanogpt_does() {
    let text: String = (0..1000u32).map(|i| char::from(b'a' + (i % 26) as u8)).collect();
    let corpus = Corpus::from_texts(vec![text.clone()], &DataSettings::default()).unwrap();
    assert_eq!(documents(&corpus, Split::Train), [&text[..900]]);
    assert_eq!(documents(&corpus, Split::Valid), [&text[900..]]);
    assert_eq!(corpus.tokenizer().end(), None);
    assert_eq!(corpus.bytes_per_token(Split::Train), Some(1.0));
    assert_eq!(corpus.bytes_per_token(Split::Test), None);
    assert_eq!(
        corpus.describe().to_string(),
        "vocabulary 256; train 1 document, 900 tokens, 900 bytes; valid 1 document, 100 tokens, 100 bytes"
    );
}

#[test]
fn a_character_first_seen_in_validation_is_unknown() {
    let tokenizer = Some(TokenizerSettings::Characters(Characters {}));
    let settings = DataSettings { tokenizer, ..DataSettings::default() };
    let corpus =
        Corpus::from_texts(vec![format!("{}{}", "ab".repeat(50), "z".repeat(10))], &settings)
            .unwrap();
    let valid = corpus.tokens(Split::Valid).unwrap();
    assert_eq!(valid.read(9..11).unwrap(), [2, 2]);
    assert_eq!((corpus.vocabulary(), corpus.tokenizer().unknown()), (3, Some(2)));
}

#[test]
fn a_cached_corpus_equals_one_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let texts: Vec<String> = (0..30).map(|i| format!("text {i} 글 ").repeat(20 + i)).collect();
    let tokenizer = Some(TokenizerSettings::Bpe(Bpe { vocabulary: 280 }));
    let memory = DataSettings { tokenizer, ..DataSettings::default() };
    let disk = DataSettings { cache: Some(cache.clone()), ..memory.clone() };
    let load = |settings| Corpus::from_texts(texts.clone(), settings).unwrap();
    let (first, second, third) = (load(&memory), load(&disk), load(&disk));
    assert_eq!(std::fs::read_dir(cache).unwrap().count(), 2);
    let settings = BatchSettings { length: 32, ..BatchSettings::default() };
    for other in [second, third] {
        assert_eq!(first.fingerprint(), other.fingerprint());
        assert_eq!(first.describe(), other.describe());
        let batch = |corpus| Batches::new(corpus, Split::Train, &settings).unwrap().get(7).unwrap();
        assert_eq!(batch(&first), batch(&other));
    }
}

#[test]
fn the_fingerprint_follows_text_tokenizer_and_shares() {
    let load = |text: &str, settings: &DataSettings| {
        Corpus::from_texts(vec![text.repeat(50)], settings).unwrap().fingerprint()
    };
    let plain = DataSettings::default();
    let same = load("some text ", &plain);
    assert_eq!(same, load("some text ", &plain));
    assert_ne!(same, load("some taxt ", &plain));
    assert_ne!(same, load("some text ", &DataSettings { valid_share: 0.2, ..plain.clone() }));
    let masked = DataSettings { objective: Some(Masked::default().into()), ..plain.clone() };
    assert_ne!(same, load("some text ", &masked));
    let tokenizer = Some(TokenizerSettings::Characters(Characters {}));
    assert_ne!(same, load("some text ", &DataSettings { tokenizer, ..plain }));
}

#[test]
fn settings_read_back_what_was_written() {
    for name in Source::NAMES {
        for objective in ["next_token", "translate", "{ kind = 'masked', share = 0.3 }"] {
            let objective =
                objective.strip_prefix('{').map_or(format!("'{objective}'"), |o| format!("{{{o}"));
            let text = format!("source = '{name}'\nobjective = {objective}\nvalid_share = 0.25");
            let Ok(settings) = DataSettings::from_toml(&text) else { continue };
            assert_eq!(settings.source.name(), *name);
            let written = toml::to_string(&settings).unwrap();
            assert_eq!(DataSettings::from_toml(&written).unwrap(), settings, "{written}");
            let json = serde_json::to_string(&settings).unwrap();
            assert_eq!(serde_json::from_str::<DataSettings>(&json).unwrap(), settings, "{json}");
        }
    }
}

#[test]
fn names_decide_what_is_held_out_whatever_the_texts_say() {
    let settings = DataSettings { valid_share: 0.3, ..DataSettings::default() };
    let held_out = |letter: &str| {
        let texts = (0..20).map(|i| (format!("file {i}"), format!("{i:02}{}", letter.repeat(48))));
        let corpus = Corpus::from_named_texts(texts.collect(), &settings).unwrap();
        let tokens = corpus.tokens(Split::Valid).unwrap();
        let text = corpus.tokenizer().decode(&tokens.read(0..tokens.len()).unwrap());
        let numbers: String = text.chars().filter(char::is_ascii_digit).collect();
        (numbers, corpus.fingerprint())
    };
    let ((a, a_print), (b, b_print)) = (held_out("a"), held_out("b"));
    assert_eq!(a.len(), 2 * 6, "{a}");
    assert_eq!(a, b);
    assert_ne!(a_print, b_print);
}

/// A text with a note of where it came from beside it, as downloads have it.
#[test]
fn the_tail_of_a_text_is_held_out_and_not_the_note_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = |i: usize| format!("line {i} of a long text\n");
    let text: String = (0..5000).map(line).collect();
    std::fs::write(folder.path().join("input.txt"), &text).unwrap();
    std::fs::write(folder.path().join("SOURCE.md"), "Where it came from.\n".repeat(20)).unwrap();
    let settings = DataSettings::of(Text { path: folder.path().into(), ..Text::default() });
    let corpus = Corpus::load(&settings).unwrap();
    let held = documents(&corpus, Split::Valid).concat();
    assert!(text.ends_with(&held), "{held:.100}");
    assert_eq!(held.len(), text.len().div_ceil(10));
    assert!(documents(&corpus, Split::Train).concat().starts_with("Where it came from."));
    let said = corpus.describe().held_out();
    let bytes = held.len();
    assert_eq!(
        said,
        [format!(
            "held out for validation: {} tokens in 1 document, {bytes} bytes at the end of input.txt",
            bytes + 1
        )]
    );

    std::fs::write(folder.path().join("input.txt"), &text[..5000]).unwrap();
    let said = Corpus::load(&settings).unwrap().describe().held_out();
    assert!(
        said[1].starts_with("warning: only 501 tokens are held out for validation"),
        "{said:?}"
    );
}

#[test]
fn whole_documents_are_held_out_where_they_are_many_and_named_in_words() {
    let texts: Vec<(String, String)> =
        (0..100).map(|i| (format!("{i}.txt"), format!("document {i}\n").repeat(500))).collect();
    let corpus = Corpus::from_named_texts(texts.clone(), &DataSettings::default()).unwrap();
    let held = documents(&corpus, Split::Valid);
    assert!((9..=11).contains(&held.len()), "{}", held.len());
    assert!(held.iter().all(|text| texts.iter().any(|(_, whole)| whole == text)));
    let said = corpus.describe().held_out().join("\n");
    assert!(said.contains(&format!("in {} documents, ", held.len())), "{said}");
    assert!(said.contains(&format!(" and {} more", held.len() - 5)), "{said}");
}

/// Files are compared with what is kept of them: what was read once is what is encoded.
#[test]
fn a_corpus_is_the_same_from_files_and_from_memory() {
    let folder = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..30).map(|i| format!("document {i}. ").repeat(40 + i)).collect();
    for (i, text) in texts.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{i:02}.txt")), text).unwrap();
    }
    let settings = DataSettings {
        tokenizer: Some(TokenizerSettings::Characters(Characters {})),
        ..DataSettings::of(Text { path: folder.path().into(), ..Text::default() })
    };
    let (files, memory) =
        (Corpus::load(&settings).unwrap(), Corpus::from_texts(texts, &settings).unwrap());
    assert_eq!(files.fingerprint(), memory.fingerprint());
    assert_eq!(documents(&files, Split::Valid), documents(&memory, Split::Valid));
}
