//! One entry for each reader of files: any bytes in, no panic out.
//!
//! `main.rs` beside this file calls them with a bounded number of broken files, the targets in `fuzz/` without a bound.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tempfile::TempDir;
use whatwhere_data::{
    Corpus, DataSettings, Tokenizer,
    music::Music,
    settings::{Chorales, Midi},
};
use whatwhere_training::{Folder, Run, RunSettings, Trainer, interrupt::Interrupt};

/// A reader: its name, its entry, and a file it reads without complaint.
pub(crate) struct Reader {
    pub(crate) name: &'static str,
    pub(crate) entry: fn(&[u8]) -> bool,
    pub(crate) whole: fn() -> Vec<u8>,
}

/// Every reader of files. An entry returns whether the file was accepted.
pub(crate) const READERS: &[Reader] = &[
    Reader { name: "settings", entry: settings, whole: || SETTINGS.into() },
    Reader { name: "tokenizer", entry: tokenizer, whole: whole_tokenizer },
    Reader { name: "checkpoint", entry: checkpoint, whole: whole_checkpoint },
    Reader { name: "text", entry: text, whole: || TEXT.into() },
    Reader { name: "lines", entry: lines, whole: || LINES.into() },
    Reader { name: "pairs", entry: pairs, whole: || "a\tb\nc d\te f\ng\th\n".into() },
    Reader { name: "labeled", entry: labeled, whole: || "a\tb\nc d\te f\ng\tb\n".into() },
    Reader { name: "chorales", entry: chorales, whole: || CHORALES.into() },
    Reader { name: "midi", entry: midi, whole: whole_midi },
    Reader { name: "fasta", entry: fasta, whole: || ">one\nACGT\nNNA\n>two\nacgtac\n".into() },
    Reader { name: "listops", entry: listops, whole: || "4\t[MAX 4 3 [MIN 2 3 ] ]\n".into() },
    Reader { name: "gzip", entry: gzip, whole: whole_gzip },
    Reader { name: "zstandard", entry: zstandard, whole: whole_zstandard },
    Reader { name: "archive", entry: archive, whole: whole_archive },
];

const TEXT: &str = "what a token looks at, and where it stands\n";
const LINES: &str = "{\"text\": \"what and where\"}\n{\"text\": \"where\"}\n";
const CHORALES: &str =
    "{\"train\": [[[60, 50, 40, 30], [61, -1, 40, 30]]], \"valid\": [], \"test\": []}";
const SETTINGS: &str = "
[data]
tokenizer = 'characters'
[model]
width = 8
layers = 1
[model.attention]
heads = 2
[training]
steps = 1
batch = 1
length = 8
evaluate_batches = 1
";

fn settings(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let read = RunSettings::read(&text, &[]).is_ok();
    DataSettings::from_toml(&text).is_ok() || read
}

fn tokenizer(bytes: &[u8]) -> bool {
    let file = written("tokenizer.json", bytes);
    let Ok(tokenizer) = Tokenizer::load(&file.1) else { return false };
    // What was accepted must work.
    if let Ok(tokens) = tokenizer.encode("what and where") {
        tokenizer.decode(&tokens);
    }
    tokenizer.decode(&[0, u32::MAX]);
    true
}

/// A run folder of a model that was trained for one step.
fn run() -> &'static Path {
    static RUN: OnceLock<TempDir> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let settings = RunSettings::read(SETTINGS, &[]).expect("settings that are right");
        let texts = vec![TEXT.repeat(20)];
        let corpus = Corpus::from_texts(texts, &settings.data).expect("a text");
        let run = Folder::new(folder.path().join("run"));
        let mut trainer = Trainer::start(settings, corpus, run).expect("a run begins");
        trainer.run(&Interrupt::new().expect("a signal handler"), &mut ()).expect("a step");
        folder
    })
    .path()
}

fn checkpoint(bytes: &[u8]) -> bool {
    // Of its own, because tests run side by side.
    let (folder, _) = written("model.safetensors", bytes);
    for name in ["config.toml", "tokenizer.json"] {
        let from = run().join("run").join(name);
        fs::copy(from, folder.path().join(name)).expect("a file of the run");
    }
    Run::open(folder.path()).is_ok()
}

fn text(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "text.txt", bytes)
}

fn lines(bytes: &[u8]) -> bool {
    let table = corpus("kind = 'text', field = '1'", "table.tsv", bytes);
    corpus("kind = 'text'", "lines.jsonl", bytes) || table
}

fn pairs(bytes: &[u8]) -> bool {
    let (_folder, path) = written("pairs.tsv", bytes);
    load(&format!("source = {{ kind = 'pairs', source = '{}' }}", path.display()))
}

fn labeled(bytes: &[u8]) -> bool {
    let (_folder, path) = written("labeled.tsv", bytes);
    let fields = "field = '1', label_field = '2'";
    load(&format!(
        "tokenizer = 'bytes'\nvalid_share = 0.0\nsource = {{ kind = 'labeled', {fields}, path = '{}' }}",
        path.display()
    ))
}

fn chorales(bytes: &[u8]) -> bool {
    corpus("kind = 'chorales'", "chorales.json", bytes)
}

/// As a performance and as a chorale; what was accepted can be played.
fn midi(bytes: &[u8]) -> bool {
    let chorales = Chorales::default();
    if let Ok(tokens) = chorales.tokens("piece.mid", bytes) {
        chorales.play(&tokens).expect("a chorale that was read");
    }
    if let Ok(tokens) = Midi::default().tokens("piece.mid", bytes) {
        let played = Midi::default().play(&tokens).expect("a piece that was read");
        let again = Midi::default().tokens("played.mid", &played.midi);
        assert_eq!(again.ok(), Some(tokens), "a file of ours is read as what it was made of");
    }
    corpus("kind = 'midi'", "piece.mid", bytes)
}

/// Two voices of a chorale, on a tempo and tracks of their own.
fn whole_midi() -> Vec<u8> {
    let silence = 88;
    let steps = [[40, 36, silence, silence], [40, 38, silence, silence], [43, 38, 20, silence]];
    Chorales::default().play(&steps.concat()).expect("a chorale").midi
}

fn fasta(bytes: &[u8]) -> bool {
    corpus("kind = 'fasta'", "genome.fa", bytes)
}

fn listops(bytes: &[u8]) -> bool {
    corpus("kind = 'listops'", "listops.tsv", bytes)
}

fn gzip(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "text.txt.gz", bytes)
}

fn zstandard(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "text.txt.zst", bytes)
}

fn archive(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "texts.tar", bytes)
}

fn corpus(source: &str, name: &str, bytes: &[u8]) -> bool {
    let (_folder, path) = written(name, bytes);
    load(&format!("source = {{ {source}, path = '{}' }}", path.display()))
}

fn load(settings: &str) -> bool {
    let settings = DataSettings::from_toml(settings).expect("settings that are right");
    Corpus::load(&settings).is_ok()
}

/// A file of these bytes, in a folder that goes away with the first of the two.
fn written(name: &str, bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join(name);
    fs::write(&path, bytes).expect("the temporary folder is writable");
    (folder, path)
}

fn whole_tokenizer() -> Vec<u8> {
    fs::read(run().join("run/tokenizer.json")).expect("a file of the run")
}

fn whole_checkpoint() -> Vec<u8> {
    fs::read(run().join("run/model.safetensors")).expect("a file of the run")
}

/// One stored block.
fn whole_gzip() -> Vec<u8> {
    // Magic, deflate, no flags, no time; the last block, stored; "what"; CRC-32 and length.
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 4, 0, 251, 255];
    [&head[..], b"what", &0xbae6_3262_u32.to_le_bytes(), &4_u32.to_le_bytes()].concat()
}

/// One raw block of a frame with one segment.
fn whole_zstandard() -> Vec<u8> {
    // Magic, one segment of 4 bytes; the last block, raw, of 4 bytes.
    [&[0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0][..], b"what"].concat()
}

/// One file of text in a tar archive.
fn whole_archive() -> Vec<u8> {
    let mut header = [0; 512];
    let fields: [(usize, &[u8]); 7] = [
        (0, b"one.txt"),
        (100, b"0000644\0"),
        (124, b"00000000004\0"),
        (136, b"00000000000\0"),
        (148, b"        "),
        (156, b"0"),
        (257, b"ustar\x0000"),
    ];
    for (at, field) in fields {
        header[at..at + field.len()].copy_from_slice(field);
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut content = [0; 512];
    content[..4].copy_from_slice(b"what");
    [&header[..], &content, &[0; 1024]].concat()
}
