//! Trained runs at other lengths: pieces, pairs, tasks and genomes in words of several letters.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use tempfile::TempDir;
use whatwhere_data::{Corpus, Pair, Split};
use whatwhere_lab::extrapolate::{AtLength, Lengths, Unit, corpus_of};
use whatwhere_training::{Folder, Run, RunSettings, Trainer, interrupt::Interrupt};

const TINY: &str = "
seed = 5
[model]
width = 16
layers = 1
[model.attention]
heads = 2
[training]
steps = 2
batch = 2
length = 16
schedule = { kind = 'constant' }
evaluate_batches = 1
";

/// A run of two steps on these data, and what it held out.
fn trained(folder: &Path, data: &str, family: &str) -> (Run, Corpus, Split) {
    let text = format!("{TINY}[data]\n{data}");
    let settings = RunSettings::read(&text, &[format!("model.family={family}")]).unwrap();
    let corpus = Corpus::load(&settings.data).unwrap();
    let out = Folder::new(folder.join("run"));
    let mut trainer = Trainer::start(settings, corpus, out.clone()).unwrap();
    trainer.run(&Interrupt::default(), &mut ()).unwrap();
    drop(trainer);
    let (corpus, split) = corpus_of(&out, None).unwrap();
    (Run::open(folder.join("run")).unwrap(), corpus, split)
}

fn measured(run: &Run, corpus: &Corpus, split: Split, lengths: &[usize]) -> Vec<AtLength> {
    let lengths = Lengths { lengths: lengths.to_vec(), tokens: 512, scalings: false };
    lengths.measure(run, corpus, split, |_| {}).unwrap()
}

fn tokens(at: &AtLength) -> u64 {
    at.figures.as_ref().unwrap_or_else(|| panic!("{:?}", at.missing)).whole.tokens
}

#[test]
fn pieces_are_read_in_longer_parts_with_the_same_notes() {
    let folder = TempDir::new().unwrap();
    let piece = |steps: usize| {
        let steps: Vec<String> =
            (0..steps).map(|i| format!("[{}, 60, 50, -1]", 61 + i % 20)).collect();
        format!("[{}]", steps.join(", "))
    };
    let path = folder.path().join("chorales.json");
    let json = format!(
        "{{\"train\": [{}, {}], \"valid\": [{}, {}], \"test\": []}}",
        piece(20),
        piece(30),
        piece(10),
        piece(15)
    );
    fs::write(&path, json).unwrap();
    let data = format!("source = {{ kind = 'chorales', path = '{}' }}", path.display());
    let (run, corpus, split) = trained(folder.path(), &data, "decoder");
    assert_eq!(Unit::of(&corpus, split), Unit::Piece);
    let longest = corpus.longest_piece(split).unwrap();
    assert!((60..=64).contains(&longest), "15 steps of four voices: {longest}");
    assert_eq!(Lengths::worth_trying(&run, &corpus, split), [16, 32, 64]);
    let found = measured(&run, &corpus, split, &[16, 32, 64, 128]);
    let counts: Vec<u64> = found[..3].iter().map(tokens).collect();
    assert!(counts.iter().all(|count| *count == counts[0] && *count > 90), "{counts:?}");
    assert!(found[3].missing.as_ref().unwrap().contains("no piece has more than 64 tokens"));
}

#[test]
fn pairs_are_measured_by_their_length() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("pairs.tsv");
    let line = |i: usize| format!("{0}\t{0}\n", "ab ".repeat(1 + i % 13).trim_end());
    fs::write(&path, (0..300).map(|i| format!("{} {}", i, line(i))).collect::<String>()).unwrap();
    let data = format!(
        "source = {{ kind = 'pairs', source = '{0}', target = '{0}' }}\ntokenizer = 'bytes'",
        path.display()
    );
    let (run, corpus, split) = trained(folder.path(), &data, "encoder_decoder");
    assert_eq!(Unit::of(&corpus, split), Unit::Pair);
    let lengths = Lengths::worth_trying(&run, &corpus, split);
    assert_eq!(lengths, [8, 16, 32, 64]);
    let found = measured(&run, &corpus, split, &lengths);
    let pairs = corpus.pairs(split).unwrap();
    for (at, shorter) in found.iter().zip([0, 8, 16, 32]) {
        let own = |pair: &&Pair| pair.longer() > shorter && pair.longer() <= at.length;
        let expected: usize = pairs.iter().filter(own).map(|pair| pair.target.len() + 1).sum();
        let counted = at.figures.as_ref().map_or(0, |figures| figures.whole.tokens);
        // Not more than was asked for, in whole batches.
        assert!(counted == expected as u64 || counted >= 512, "{}: {counted}", at.length);
        assert_eq!(at.missing.is_some(), expected == 0);
    }
    let none = measured(&run, &corpus, split, &[64, 4096]);
    assert!(none[1].missing.as_ref().unwrap().contains("no pair has 65 to 4096 tokens"));
}

#[test]
fn tasks_are_asked_for_longer_examples() {
    for (source, worth) in [
        ("{ kind = 'addition', longest = 2 }", &[2, 4, 8][..]),
        ("{ kind = 'reverse', longest = 5 }", &[5, 10, 20]),
        ("{ kind = 'recall', shortest = 2, longest = 3 }", &[3, 6, 12]),
    ] {
        let folder = TempDir::new().unwrap();
        let (run, corpus, split) = trained(folder.path(), &format!("source = {source}"), "decoder");
        assert_eq!(Lengths::worth_trying(&run, &corpus, split), worth, "{source}");
        let found = measured(&run, &corpus, split, worth);
        let counts: Vec<u64> = found.iter().map(tokens).collect();
        assert!(counts.iter().all(|count| *count >= 64), "{source}: {counts:?}");
        assert!(found[2].figures.as_ref().unwrap().whole.accuracy <= 1.0);
    }
    let folder = TempDir::new().unwrap();
    let source = "source = { kind = 'recall', shortest = 2, longest = 3 }";
    let (run, corpus, split) = trained(folder.path(), source, "decoder");
    let reason = measured(&run, &corpus, split, &[60])[0].missing.clone().unwrap();
    assert!(reason.contains("source.longest = 60"), "{reason}");
}

#[test]
fn genomes_in_kmers_are_read_in_longer_windows() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("genome.fasta");
    let letters: String = (0..6000usize).map(|i| char::from(b"ACGT"[i * i / 3 % 4])).collect();
    fs::write(&path, format!(">one\n{letters}\n")).unwrap();
    let data = format!(
        "source = {{ kind = 'fasta', path = '{}' }}\ntokenizer = {{ kind = 'kmers', length = 3 }}",
        path.display()
    );
    let (run, corpus, split) = trained(folder.path(), &data, "decoder");
    assert_eq!(Unit::of(&corpus, split), Unit::Window);
    let found = measured(&run, &corpus, split, &[16, 64]);
    assert!(tokens(&found[1]) >= 64 && tokens(&found[0]) == tokens(&found[1]));
    let bits = found[0].figures.as_ref().unwrap().whole.bits_per_byte.unwrap();
    // A token stands for three letters.
    let loss = found[0].figures.as_ref().unwrap().whole.loss;
    assert!((bits - loss / 3.0 / 2f64.ln()).abs() < 0.02 * bits, "{bits}, {loss}");
}
