//! A checkpoint is written from where its values lie: it needs no memory of its own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, process::Command};

use whatwhere_data::Corpus;
use whatwhere_training::{Folder, Observer, Record, RunSettings, Trainer, interrupt::Interrupt};

/// 6.4 million weights: with moments and gradients 100 MB, of which a copy would show.
const SETTINGS: &str = "
[data]
source = 'copy'
[model]
width = 256
layers = 8
[model.attention]
heads = 4
[training]
steps = 3
batch = 1
length = 48
evaluate_batches = 1
";

#[test]
fn saving_takes_at_most_a_tenth_more_than_a_step() {
    // Memory belongs to a process, and other tests run beside this one.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "train", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let out = String::from_utf8(child.stdout).unwrap();
    let peak = |of: &str| -> f64 {
        let line = out.lines().find_map(|line| line.trim().strip_prefix(of));
        line.unwrap_or_else(|| panic!("no {of}: {out}")).trim().parse().unwrap()
    };
    let (step, save) = (peak("step"), peak("save"));
    println!("peak of a step {step} kB, of a save {save} kB, {:.3} ×", save / step);
    assert!(save <= 1.1 * step, "a save takes {save} kB, a step {step} kB");
}

/// The process that is measured.
#[test]
#[ignore = "started by the other test"]
fn train() {
    let folder = tempfile::tempdir().unwrap();
    let settings = RunSettings::read(SETTINGS, &[]).unwrap();
    let corpus = Corpus::load(&settings.data).unwrap();
    let mut trainer = Trainer::start(settings, corpus, Folder::new(folder.path())).unwrap();
    reset_peak();
    trainer.run(&Interrupt::default(), &mut Meter).unwrap();
    println!("\nsave {}", peak());
    assert!(fs::metadata(folder.path().join("last.safetensors")).unwrap().len() > 70_000_000);
}

/// Says the peak of all steps before the last save, and forgets it.
struct Meter;

impl Observer for Meter {
    fn updated(&mut self, _: &Record, step: u64) {
        if step == 3 {
            println!("\nstep {}", peak());
            reset_peak();
        }
    }
}

fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// In kB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
