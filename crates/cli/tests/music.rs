//! Music from the command line: folders of MIDI files in, MIDI files out.

mod common;

use std::fs;

use tempfile::TempDir;
use whatwhere_data::{
    music::{Event, Music},
    settings::{Chorales, Midi},
};

use common::{refusal, works};

const SMALL: [&str; 16] = [
    "--set",
    "model.width=16",
    "--set",
    "model.layers=1",
    "--set",
    "model.attention.heads=2",
    "--set",
    "training.steps=2",
    "--set",
    "training.length=32",
    "--set",
    "training.batch=2",
    "--set",
    "training.evaluate_every=2",
    "--set",
    "training.evaluate_batches=1",
];

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    ["train"].iter().chain(more).chain(&SMALL).copied().collect()
}

/// Rising notes, of 50 ms each.
fn piece(first: u8, notes: usize) -> Vec<u8> {
    let events = (0..notes).flat_map(|i| {
        let pitch = first + (i % 30) as u8;
        [Event::NoteOn(pitch), Event::TimeShift(5), Event::NoteOff(pitch)]
    });
    let tokens: Vec<u32> = events.map(Event::token).collect();
    Midi::default().play(&tokens).expect("a piece").midi
}

#[test]
fn a_folder_of_midi_files_trains_a_model_that_writes_and_continues_them() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("pieces")).unwrap();
    for i in 0..12 {
        let bytes = piece(30 + i, 40 + usize::from(i));
        fs::write(at.join(format!("pieces/{i:02}.mid")), bytes).unwrap();
    }
    fs::write(at.join("pieces/broken.mid"), b"MThd no").unwrap();
    let (_, said) = works(at, &train(&["--preset", "piano", "--data", "pieces", "--out", "run"]));
    assert!(said.contains("warning: 1 file is left out: broken.mid: "), "{said}");
    assert!(said.contains(" events in 1 piece, "), "{said}");

    let (out, _) = works(
        at,
        &["generate", "run", "--out", "new.mid", "--tokens", "60", "--temperature", "1.5"],
    );
    assert!(out.starts_with("new.mid\t") && out.contains(" notes\t"), "{out}");
    assert!(fs::read(at.join("new.mid")).unwrap().starts_with(b"MThd"));
    let refused = refusal(at, &["generate", "run", "--out", "new.mid"]);
    assert!(
        refused.contains("exists and stays as it is") && refused.contains("--force"),
        "{refused}"
    );
    works(at, &["generate", "run", "--out", "new.mid", "--force"]);

    let given = Midi::default().tokens("03", &fs::read(at.join("pieces/03.mid")).unwrap()).unwrap();
    let continued = ["generate", "run", "--continue", "pieces/03.mid", "--tokens", "16"];
    let (out, said) = works(at, &[&continued[..], &["--out", "more.mid", "--json"]].concat());
    assert!(said.contains("events; the model, trained at 32, goes on from the last 16"), "{said}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let more = fs::read(at.join("more.mid")).unwrap();
    let more = Midi::default().tokens("more", &more).unwrap();
    assert!(more.starts_with(&given[..given.len() - 1]), "what was given stays");
    let notes = more.iter().filter(|token| matches!(Event::of(**token), Some(Event::NoteOn(_))));
    assert_eq!(report["notes"], notes.count());
    let (out, _) = works(at, &continued);
    assert!(out.contains("note_on_33") && out.lines().count() == 1, "{out}");

    let (out, said) = works(at, &["evaluate", "run"]);
    assert!(out.contains("\tnats per event\n") && out.contains("events\t"), "{out}");
    assert!(said.contains("broken.mid"), "{said}");
    let (out, _) = works(at, &["evaluate", "run", "--data", "pieces/05.mid"]);
    assert!(out.contains("events\t"), "{out}");
    let (_, said) = works(at, &["extrapolate", "run", "--page", "page.html"]);
    assert!(said.contains("lengths are events of a part of a piece"), "{said}");
    let page = fs::read_to_string(at.join("page.html")).unwrap();
    assert!(page.contains("nats per event") && !page.contains("nats per token"));

    let (out, _) = works(at, &["generate", "run", "velocity_16 note_on_60", "--tokens", "5"]);
    assert!(out.starts_with("velocity_16 note_on_60 "), "{out}");
    let refused = refusal(at, &["generate", "run", "--continue", "pieces/broken.mid"]);
    assert!(refused.contains("broken.mid: "), "{refused}");
    let refused = refusal(at, &["generate", "run", "--continue", "none.mid"]);
    assert!(refused.contains("none.mid"), "{refused}");
}

#[test]
fn comparisons_of_performances_are_in_nats_per_event() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    fs::create_dir(at.join("pieces")).unwrap();
    for i in 0..12 {
        fs::write(at.join(format!("pieces/{i:02}.mid")), piece(30 + i, 40)).unwrap();
    }
    let over = ["--over", "data.source.transpose=0,3", "--seeds", "2", "--out", "compared"];
    let command =
        [&["compare", "--preset", "piano", "--data", "pieces"], &over[..], &SMALL].concat();
    let (out, _) = works(at, &command);
    assert!(out.contains(" nats per event, followed by "), "{out}");
    let report = fs::read_to_string(at.join("compared/report.html")).unwrap();
    assert!(report.contains("Loss in nats per event."), "the report names events");
    assert!(!report.contains("different held-out data"), "other keys are for training only");
}

#[test]
fn chorales_are_written_and_continued_and_text_is_not_music() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let step = |i: usize| format!("[{}, 60, 55, 48]", 62 + i % 12);
    let piece = |steps: usize| format!("[{}]", (0..steps).map(step).collect::<Vec<_>>().join(","));
    let json = format!("{{\"train\": [{}, {}], \"valid\": [{}]}}", piece(40), piece(30), piece(20));
    fs::write(at.join("chorales.json"), json).unwrap();
    works(at, &train(&["--preset", "music", "--data", "chorales.json", "--out", "run"]));
    let (out, _) = works(at, &["generate", "run", "--out", "new.mid", "--tokens", "39"]);
    assert!(out.starts_with("new.mid\t"), "{out}");
    let tokens =
        |name: &str| Chorales::default().tokens(name, &fs::read(at.join(name)).unwrap()).unwrap();
    // Ten sixteenths at the most; a model that learned nothing may write the token that fills rows, which is silent.
    let new = tokens("new.mid");
    assert!((32..=40).contains(&new.len()) && new.len() % 4 == 0, "{}", new.len());
    works(at, &["generate", "run", "--continue", "new.mid", "--out", "more.mid", "--tokens", "8"]);
    let more = tokens("more.mid");
    assert!(more.starts_with(&new) && more.len() > new.len(), "{new:?} {more:?}");

    works(at, &train(&["--preset", "tiny", "--out", "text"]));
    let refused = refusal(at, &["generate", "text", "--out", "text.mid"]);
    assert!(refused.contains("--out is for MIDI files, and this run reads text"), "{refused}");
}
