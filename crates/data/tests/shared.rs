//! Real data, where they are at hand: `$WHATWHERE_SHARED`, or `../shared` beside the workspace.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{io::Write, path::PathBuf};

use whatwhere_data::{
    BatchSettings, BatchSize, Batches, Corpus, DataSettings, Split, Tokenizer, TokenizerSettings,
    music::Music,
    settings::{Bpe, Bytes, Characters, Chorales, Fasta, Pairs, Text},
    task::ListOps,
};

/// A path of the shared data; none, and said so, where there are none.
fn shared(path: &str) -> Option<PathBuf> {
    let root = std::env::var_os("WHATWHERE_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"),
        PathBuf::from,
    );
    let path = root.join("data").join(path);
    if !path.exists() {
        // The real standard error, which the test harness does not hold back; nobody to tell if it is closed.
        let _ = writeln!(std::io::stderr(), "SKIPPED: no {}; set WHATWHERE_SHARED", path.display());
        return None;
    }
    Some(path)
}

fn load(settings: DataSettings) -> Corpus {
    let corpus = Corpus::load(&settings).unwrap();
    println!("{}", corpus.describe());
    corpus
}

#[test]
fn tiny_shakespeare_has_nanogpts_vocabulary_and_split() {
    let tokenizer = Some(TokenizerSettings::Characters(Characters {}));
    let corpus = load(DataSettings { tokenizer, ..DataSettings::of(Text::default()) });
    let tokens = |split| corpus.tokens(split).unwrap().len();
    assert_eq!(corpus.vocabulary(), 65);
    assert_eq!((tokens(Split::Train), tokens(Split::Valid)), (1_003_854, 111_540));
    // nanoGPT's ids of the first words, from its prepare.py: sorted characters, "\n" is 0.
    assert_eq!(corpus.tokenizer().encode("First").unwrap(), [18, 47, 56, 57, 58]);
}

#[test]
fn chorales_have_the_measured_tokens() {
    let Some(path) = shared("jsb_chorales/Jsb16thSeparated.json") else { return };
    let corpus = load(DataSettings::of(Chorales { path }));
    let splits = corpus.describe().splits;
    let counts = |split: Split| (splits[&split].documents, splits[&split].tokens);
    assert_eq!(corpus.vocabulary(), 90);
    assert_eq!(counts(Split::Train), (229, 220_912));
    assert_eq!(counts(Split::Valid), (76, 73_632));
    assert_eq!(counts(Split::Test), (77, 75_600));
    let settings = BatchSettings { batch: BatchSize::Rows(4), length: 2048, ..Default::default() };
    let batches = Batches::new(&corpus, Split::Train, &settings).unwrap();
    assert_eq!(batches.batches_per_epoch(), 58);
    assert!(batches.get(10).unwrap().length <= 2048);
}

#[test]
fn every_chorale_comes_back_from_the_midi_file_that_plays_it() {
    let Some(path) = shared("jsb_chorales/Jsb16thSeparated.json") else { return };
    let chorales = Chorales { path };
    let corpus = load(DataSettings::of(chorales.clone()));
    // A window holds the longest piece, so that every row is one, without its last token.
    let settings = BatchSettings { batch: BatchSize::Rows(1), length: 4096, ..Default::default() };
    for split in [Split::Train, Split::Valid, Split::Test] {
        for batch in Batches::new(&corpus, split, &settings).unwrap().evaluation(None) {
            let batch = batch.unwrap();
            let mut piece = batch.tokens.clone();
            piece.extend(batch.targets.last());
            let played = chorales.play(&piece).unwrap();
            assert_eq!(chorales.tokens("played", &played.midi).unwrap(), piece);
        }
    }
}

#[test]
fn multi30k_has_its_lines_and_comes_back_from_its_tokens() {
    let Some(folder) = shared("multi30k") else { return };
    let pairs = Pairs {
        source: folder.join("train.en.gz"),
        target: folder.join("train.de.gz"),
        valid_source: Some(folder.join("val.en.gz")),
        valid_target: Some(folder.join("val.de.gz")),
        test_source: Some(folder.join("test_2016_flickr.en.gz")),
        test_target: Some(folder.join("test_2016_flickr.de.gz")),
        ..Pairs::default()
    };
    let corpus = load(DataSettings::of(pairs));
    let count = |split| corpus.pairs(split).unwrap().len();
    assert_eq!(
        (count(Split::Train), count(Split::Valid), count(Split::Test)),
        (29_000, 1014, 1000)
    );
    for pair in corpus.pairs(Split::Test).unwrap() {
        assert_eq!(corpus.tokenizer().decode(&pair.target), pair.target_text);
    }
    let settings = BatchSettings {
        batch: BatchSize::Tokens { tokens: 4096 },
        length: 128,
        ..Default::default()
    };
    let batches = Batches::new(&corpus, Split::Train, &settings).unwrap();
    assert_eq!(batches.left_out(), 0);
    let rows: usize =
        (0..batches.batches_per_epoch()).map(|step| batches.get(step).unwrap().rows).sum();
    assert_eq!(rows, 29_000);
}

#[test]
fn korean_pairs_and_verses_come_back_from_their_tokens() {
    let Some(path) = shared("tatoeba/kor.txt") else { return };
    let tokenizer = Some(TokenizerSettings::Bpe(Bpe { vocabulary: 2000 }));
    let pairs = Pairs { source: path, ..Pairs::default() };
    let corpus = load(DataSettings { tokenizer, ..DataSettings::of(pairs) });
    for pair in corpus.pairs(Split::Train).unwrap() {
        let mut decoder = corpus.tokenizer().stream();
        let text: String = pair.target.iter().map(|&token| decoder.push(token)).collect();
        assert_eq!(text + &decoder.finish(), pair.target_text);
    }
    let Some(path) = shared("bible_ko_en/train.tsv.zst") else { return };
    let fields = ("4".into(), "5".into());
    let pairs =
        Pairs { source: path, source_field: fields.0, target_field: fields.1, ..Pairs::default() };
    let tokenizer = Some(TokenizerSettings::Bytes(Bytes {}));
    let corpus = load(DataSettings { tokenizer, ..DataSettings::of(pairs) });
    let count = |split| corpus.pairs(split).unwrap().len();
    assert_eq!(count(Split::Train) + count(Split::Valid), 28_517);
}

#[test]
fn novels_are_unpacked_book_by_book_and_cached() {
    let Some(folder) = shared("novels100") else { return };
    let cache = tempfile::tempdir().unwrap();
    let text = Text {
        path: folder.join("valid.tar.zst"),
        test: Some(folder.join("test.tar.zst")),
        ..Text::default()
    };
    let settings = DataSettings {
        valid_share: 0.0,
        cache: Some(cache.path().into()),
        ..DataSettings::of(text)
    };
    for corpus in [load(settings.clone()), load(settings)] {
        let splits = corpus.describe().splits;
        let counts = |split: Split| (splits[&split].documents, splits[&split].bytes);
        assert_eq!(counts(Split::Train), (8, 9_404_963));
        assert_eq!(counts(Split::Test), (10, 13_507_236));
        assert_eq!(splits[&Split::Test].tokens, 13_507_236 + 10);
    }
}

#[test]
fn genomes_are_five_letters() {
    let Some(path) = shared("genome/human_grch38_chr22_20-21M.fa.gz") else { return };
    let corpus = load(DataSettings::of(Fasta { path, ..Fasta::default() }));
    assert_eq!(corpus.vocabulary(), 5);
    assert_eq!(corpus.describe().splits.values().map(|part| part.tokens).sum::<u64>(), 1_000_000);
}

#[test]
fn listops_files_become_examples() {
    let Some(path) = shared("listops/test_d5c.tsv.zst") else { return };
    let corpus = load(DataSettings::of(ListOps { path: Some(path), ..ListOps::default() }));
    let settings = BatchSettings { batch: BatchSize::Rows(16), length: 128, ..Default::default() };
    let batches = Batches::new(&corpus, Split::Valid, &settings).unwrap();
    let rows: usize = batches.evaluation(None).map(|batch| batch.unwrap().rows).sum();
    assert_eq!(rows as u64, corpus.describe().splits[&Split::Valid].documents);
}

#[test]
fn a_word_piece_tokenizer_is_read_with_its_special_tokens() {
    let Some(path) = shared("tokenizers/bert_base_uncased/tokenizer.json") else { return };
    let tokenizer = Tokenizer::load(&path).unwrap();
    assert_eq!(tokenizer.vocabulary(), 30_522);
    // BERT's ids of its special tokens and of "hello world", as published.
    assert_eq!(tokenizer.padding(), Some(0));
    assert_eq!(
        (tokenizer.unknown(), tokenizer.begin(), tokenizer.end()),
        (Some(100), Some(101), Some(102))
    );
    assert_eq!(tokenizer.mask(), Some(103));
    assert_eq!(tokenizer.encode("Hello world").unwrap(), [7592, 2088]);
    assert_eq!(tokenizer.decode(&[7592, 2088]), "hello world");
}
