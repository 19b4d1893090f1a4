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
