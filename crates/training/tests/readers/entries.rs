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
use whatwhere_training::{Base, Folder, Run, RunSettings, Trainer, interrupt::Interrupt};

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
    Reader { name: "adapter", entry: adapter, whole: whole_adapter },
    Reader { name: "import", entry: import, whole: || IMPORT.into() },
    Reader { name: "text", entry: text, whole: || TEXT.into() },
    Reader { name: "lines", entry: lines, whole: || LINES.into() },
    Reader { name: "commas", entry: commas, whole: || COMMAS.into() },
    Reader { name: "pairs", entry: pairs, whole: || "a\tb\nc d\te f\ng\th\n".into() },
    Reader { name: "labeled", entry: labeled, whole: || "a\tb\nc d\te f\ng\tb\n".into() },
    Reader { name: "chorales", entry: chorales, whole: || CHORALES.into() },
    Reader { name: "midi", entry: midi, whole: whole_midi },
    Reader { name: "fasta", entry: fasta, whole: || ">one\nACGT\nNNA\n>two\nacgtac\n".into() },
    Reader { name: "listops", entry: listops, whole: || "4\t[MAX 4 3 [MIN 2 3 ] ]\n".into() },
    Reader { name: "gzip", entry: gzip, whole: whole_gzip },
    Reader { name: "zstandard", entry: zstandard, whole: whole_zstandard },
    Reader { name: "xz", entry: xz, whole: || XZ.into() },
    Reader { name: "archive", entry: archive, whole: whole_archive },
    Reader { name: "zip", entry: zip, whole: whole_zip },
];

const TEXT: &str = "what a token looks at, and where it stands\n";
const LINES: &str = "{\"text\": \"what and where\"}\n{\"text\": \"where\"}\n";
const COMMAS: &str = "id,text\r\n1,\"what, and \"\"where\"\"\"\r\n2,\"two\nlines\"\r\n3,plain\r\n";
const IMPORT: &str = r#"{"origin": "a/b", "family": "llama", "files": {"config.json": "00"}, "context": 8,
    "specials": {"begin": 1, "ends": [2, 1], "padding": 0}, "config": {"rms_norm_eps": 1e-5},
    "generation": {"temperature": 0.5}, "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}"#;
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

/// A run folder whose model was trained by adapters for one step.
fn adapted() -> &'static Path {
    static RUN: OnceLock<TempDir> = OnceLock::new();
    RUN.get_or_init(|| {
        let folder = TempDir::new().expect("a temporary folder");
        let lora = ["training.lora.rank=2".to_owned()];
        let settings = RunSettings::read(SETTINGS, &lora).expect("settings that are right");
        let corpus = Corpus::from_texts(vec![TEXT.repeat(20)], &settings.data).expect("a text");
        let base = Base { path: run().join("run"), new_embeddings: false };
        let tuned = Folder::new(folder.path());
        let (mut trainer, _) =
            Trainer::start_from(settings, corpus, tuned, Some(&base)).expect("a run begins");
        trainer.run(&Interrupt::default(), &mut ()).expect("a step");
        folder
    })
    .path()
}

fn adapter(bytes: &[u8]) -> bool {
    let (folder, _) = written("adapter.safetensors", bytes);
    for name in ["config.toml", "tokenizer.json", "model.safetensors"] {
        fs::copy(adapted().join(name), folder.path().join(name)).expect("a file of the run");
    }
    Run::open(folder.path()).is_ok()
}

/// What an imported run says of itself, its chat template too; what was accepted can be read with.
fn import(bytes: &[u8]) -> bool {
    let (folder, _) = written("import.json", bytes);
    for name in ["config.toml", "tokenizer.json", "model.safetensors"] {
        fs::copy(run().join("run").join(name), folder.path().join(name))
            .expect("a file of the run");
    }
    let Ok(run) = Run::open(folder.path()) else { return false };
    let Ok(tokenizer) = run.tokenizer() else { return false };
    if let Ok(tokens) = tokenizer.encode("what and where") {
        tokenizer.decode(&tokens);
    }
    true
}

fn text(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "text.txt", bytes)
}

fn lines(bytes: &[u8]) -> bool {
    let table = corpus("kind = 'text', field = '1'", "table.tsv", bytes);
    corpus("kind = 'text'", "lines.jsonl", bytes) || table
}

/// By the name of a column and by its number, alone and with labels.
fn commas(bytes: &[u8]) -> bool {
    let by_number = corpus("kind = 'text', field = '1'", "table.csv", bytes);
    let (_folder, path) = written("labeled.csv", bytes);
    let labeled = load(&format!(
        "tokenizer = 'bytes'\nvalid_share = 0.0\nsource = {{ kind = 'labeled', field = 'text', label_field = 'id', path = '{}' }}",
        path.display()
    ));
    corpus("kind = 'text', field = 'text'", "table.csv", bytes) && (by_number || labeled)
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

fn xz(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "text.txt.xz", bytes)
}

fn zip(bytes: &[u8]) -> bool {
    corpus("kind = 'text'", "texts.zip", bytes)
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

fn whole_adapter() -> Vec<u8> {
    fs::read(adapted().join("adapter.safetensors")).expect("a file of the run")
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

/// "what" as `xz --check=crc32 --lzma2=dict=4KiB` writes it.
const XZ: [u8; 56] = [
    0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 0x01, 0x69, 0x22, 0xde, 0x36, 0x02, 0, 0x21, 0x01, 0, 0, 0,
    0, 0x37, 0x27, 0x97, 0xd6, 0x01, 0, 0x03, 0x77, 0x68, 0x61, 0x74, 0, 0x62, 0x32, 0xe6, 0xba, 0,
    0x01, 0x18, 0x04, 0x6b, 0xe9, 0xf0, 0xa5, 0x90, 0x42, 0x99, 0x0d, 0x01, 0, 0, 0, 0, 0x01, 0x59,
    0x5a,
];

/// A stored and a deflated file in a zip archive.
fn whole_zip() -> Vec<u8> {
    // "what" as it is, and as a deflate stream of one stored block.
    let files: [(&[u8], u8, &[u8]); 2] =
        [(b"1.txt", 0, b"what"), (b"2.txt", 8, &[1, 4, 0, 251, 255, b'w', b'h', b'a', b't'])];
    let (mut bytes, mut contents) = (Vec::new(), Vec::new());
    for (name, method, data) in files {
        let start = bytes.len() as u32;
        // Version, flags, method, time, CRC-32, sizes packed and unpacked, lengths of the name and of what is extra.
        let mut about = vec![20, 0, 0, 0, method, 0, 0, 0, 0x21, 0];
        about.extend(
            [&0xbae6_3262_u32.to_le_bytes()[..], &[data.len() as u8, 0, 0, 0], &[4, 0, 0, 0]]
                .concat(),
        );
        about.extend([name.len() as u8, 0, 0, 0]);
        bytes.extend([&b"PK\x03\x04"[..], &about, name, data].concat());
        contents.extend(
            [&b"PK\x01\x02\x14\0"[..], &about, &[0; 10], &start.to_le_bytes(), name].concat(),
        );
    }
    let (size, start) = (contents.len() as u32, bytes.len() as u32);
    bytes.extend(contents);
    bytes.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    bytes.extend([&size.to_le_bytes()[..], &start.to_le_bytes(), &[0, 0]].concat());
    bytes
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
