//! MIDI files to events and back; folders of them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use tempfile::TempDir;
use whatwhere_data::{
    Batch, BatchSettings, BatchSize, Batches, Corpus, DataSettings, Split,
    music::{Event, Music},
    settings::{Chorales, Midi},
};

fn words(tokens: &[u32]) -> Vec<String> {
    tokens.iter().map(|token| Event::of(*token).expect("an event").name()).collect()
}

/// Files of mido, of pretty_midi and by hand, with the events that `bench/midi.py` found in them.
#[test]
fn files_of_others_have_the_events_that_others_find() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/midi");
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("the fixtures") {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "mid") {
            continue;
        }
        let text = fs::read_to_string(path.with_extension("json")).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected: Vec<String> =
            serde_json::from_value(expected["events"].clone()).expect("a list of names");
        let name = path.display().to_string();
        let tokens = Midi::default().tokens(&name, &fs::read(&path).unwrap()).unwrap();
        assert_eq!(words(&tokens), expected, "{name}");
        let written = Midi::default().play(&tokens).unwrap();
        assert_eq!(Midi::default().tokens(&name, &written.midi).unwrap(), tokens, "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
}

/// Start, end, pitch, bin.
type Note = (u32, u32, u8, u8);

/// The events of notes, by the plainest definition: step by step.
fn events(notes: &[Note]) -> Vec<u32> {
    let mut events = Vec::new();
    let (mut waited, mut velocity) = (0, None);
    let mut notes = notes.to_vec();
    notes.sort_by_key(|note| note.2);
    for step in 0..=notes.iter().map(|note| note.1).max().unwrap_or(0) {
        for (.., pitch, _) in notes.iter().filter(|note| note.1 == step) {
            wait(&mut waited, &mut events);
            events.push(Event::NoteOff(*pitch));
        }
        for (.., pitch, bin) in notes.iter().filter(|note| note.0 == step) {
            wait(&mut waited, &mut events);
            if velocity.replace(*bin) != Some(*bin) {
                events.push(Event::Velocity(*bin));
            }
            events.push(Event::NoteOn(*pitch));
        }
        waited += 1;
    }
    events.into_iter().map(Event::token).collect()
}

fn wait(waited: &mut u8, events: &mut Vec<Event>) {
    events.extend(Some(*waited).filter(|steps| *steps > 0).map(Event::TimeShift));
    *waited = 0;
}

/// Notes of which none is struck while it sounds, with no more than a second between two events.
fn notes() -> impl Strategy<Value = Vec<Note>> {
    let note = (0..100u32, 1..100u32, 0..128u8, 0..32u8);
    prop::collection::vec(note, 1..40).prop_map(|drawn| {
        let (mut now, mut notes) = (0, Vec::<Note>::new());
        for (gap, length, pitch, bin) in drawn {
            now += gap;
            let sounds = |note: &Note| note.2 == pitch && note.1 > now;
            if !notes.iter().any(sounds) {
                notes.push((now, now + length, pitch, bin));
            }
        }
        notes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back_event_by_event(notes in notes()) {
        let tokens = events(&notes);
        let played = Midi::default().play(&tokens).unwrap();
        prop_assert_eq!(played.notes, notes.len());
        prop_assert_eq!(Midi::default().tokens("written", &played.midi).unwrap(), tokens);
    }

    /// What a model may write: any tokens in any order. The file has every note that is heard, and reading settles it.
    #[test]
    fn any_tokens_make_a_file_that_plays_what_they_say(tokens in prop::collection::vec(0..395u32, 1..300)) {
        let midi = Midi::default();
        let played = midi.play(&tokens).unwrap();
        let (mut struck, mut now) = (std::collections::BTreeSet::new(), 0);
        for event in tokens.iter().filter_map(|token| Event::of(*token)) {
            match event {
                Event::TimeShift(steps) => now += u32::from(steps),
                Event::NoteOn(pitch) => { struck.insert((now, pitch)); }
                _ => {}
            }
        }
        prop_assert_eq!(played.notes, struck.len(), "a key can be struck once at a time");
        if !struck.is_empty() {
            let read = midi.tokens("written", &played.midi).unwrap();
            prop_assert_eq!(midi.play(&read).unwrap(), played);
        }
    }

    #[test]
    fn chorales_are_read_back_voice_by_voice(
        steps in prop::collection::vec([0..89u32, 0..89u32, 0..89u32, 0..89u32], 1..60)
    ) {
        let grid: Vec<u32> = steps.concat();
        prop_assume!(grid.iter().any(|token| *token < 88));
        let chorales = Chorales::default();
        let played = chorales.play(&grid).unwrap();
        prop_assert_eq!(chorales.tokens("written", &played.midi).unwrap(), grid);
    }
}

#[test]
fn a_chorale_on_one_channel_is_read_from_high_to_low() {
    // Four notes of a quarter each, as the performance of a piano.
    let chord = [48, 55, 64, 72].map(|pitch| (0, 50, pitch, 20));
    let played = Midi::default().play(&events(&chord)).unwrap();
    let grid = Chorales::default().tokens("chord", &played.midi).unwrap();
    let expected: Vec<u32> = [72, 64, 55, 48].map(|pitch| pitch - 21).repeat(4);
    assert_eq!(grid, expected);
    let five = [40, 48, 55, 64, 72].map(|pitch| (0, 50, pitch, 20));
    let played = Midi::default().play(&events(&five)).unwrap();
    let refused = Chorales::default().tokens("five", &played.midi).unwrap_err().to_string();
    assert!(refused.contains("four voices"), "{refused}");
}

/// A scale that begins at a pitch.
fn scale(pitch: u8, notes: u32) -> Vec<u8> {
    let note = |i: u32| (20 * i, 20 * i + 15, pitch + (i % 24) as u8, 16);
    let notes: Vec<Note> = (0..notes).map(note).collect();
    Midi::default().play(&events(&notes)).unwrap().midi
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    folder
}

fn load(path: &Path) -> whatwhere_data::Result<Corpus> {
    Corpus::load(&DataSettings::of(Midi { path: path.into(), ..Midi::default() }))
}

#[test]
fn broken_files_among_many_are_named_left_out_and_counted() {
    let good = scale(60, 30);
    let mut days = good.clone();
    // The tempo's three bytes, and ticks of which a beat has 500.
    let tempo = days.windows(3).position(|bytes| bytes == [0xFF, 0x51, 3]).unwrap();
    days[tempo + 3..tempo + 6].fill(0xFF);
    days[12..14].copy_from_slice(&[0, 1]);
    let cut = &good[..good.len() - 20];
    let mut missing = good.clone();
    missing[11] = 2;
    let mut film = good.clone();
    film[12..14].copy_from_slice(&[0x80, 40]);
    let empty = Midi::default().play(&[]).unwrap().midi;
    let at = folder(&[
        ("a.mid", &good),
        ("b.MIDI", &scale(40, 30)),
        ("c.mid", &scale(50, 30)),
        ("cut.mid", cut),
        ("days.mid", &days),
        ("empty.mid", &empty),
        ("film.mid", &film),
        ("missing.mid", &missing),
        ("text.mid", b"not music"),
        ("zero.mid", b""),
        ("notes.txt", b"no music, and nobody asks"),
        ("numbers.csv", b"a,b\n1,2\n"),
        ("numbers.json", b"{\"a\": [1"),
    ]);
    let about = load(at.path()).unwrap().describe();
    assert_eq!(about.splits.values().map(|part| part.documents).sum::<u64>(), 3);
    let said = about.notes.first().cloned().expect("a warning");
    assert!(
        said.starts_with("warning: 7 files are left out: cut.mid: track 1 breaks off"),
        "{said}"
    );
    for (name, reason) in [
        ("days.mid", "lasts "),
        ("empty.mid", "has no notes"),
        ("film.mid", "has a time code of 128 frames"),
        ("missing.mid", "has 1 of the 2 tracks"),
        ("text.mid", "is no MIDI file"),
        ("zero.mid", "is no MIDI file"),
    ] {
        assert!(said.contains(&format!("{name}: {reason}")), "{name}: {said}");
    }
    assert_eq!(about.held_out()[0], said);

    let none = folder(&[("one.mid", b"MThd"), ("two.mid", cut)]);
    let refused = load(none.path()).unwrap_err().to_string();
    assert!(
        refused.contains("none of its 2 MIDI files can be read; the first is one.mid: "),
        "{refused}"
    );
    let other = folder(&[("readme.txt", b"none")]);
    let refused = load(other.path()).unwrap_err().to_string();
    assert!(refused.ends_with("has no .mid or .midi files"), "{refused}");
}

/// As MAESTRO is distributed: folders of years, a table in two formats, notes on the licence.
#[test]
fn maestro_is_read_as_it_is_distributed() {
    let row = |composer: &str, split: &str, file: &str| {
        format!(
            "{composer},\"Sonata, \"\"No. 1\"\"\",{split},2018,2018/{file}.midi,2018/{file}.wav,661.6\n"
        )
    };
    let csv =
        "canonical_composer,canonical_title,split,year,midi_filename,audio_filename,duration\n"
            .to_owned()
            + &row("Alban Berg", "train", "a")
            + &row("Scriabin", "train", "b")
            + &row("Bach", "validation", "c")
            + &row("Chopin", "test", "d")
            + &row("Liszt", "test", "gone");
    let files: Vec<(String, Vec<u8>)> = ["a", "b", "c", "d"]
        .iter()
        .zip(40..)
        .map(|(n, p)| (format!("2018/{n}.midi"), scale(p, 50)))
        .collect();
    let mut all: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    all.extend([("LICENSE", &b"CC"[..]), ("README", b"MAESTRO")]);
    let json = r#"{"canonical_composer": {"0": "Alban Berg", "1": "Scriabin", "2": "Bach", "3": "Chopin"},
        "split": {"0": "train", "1": "train", "2": "validation", "3": "test"},
        "midi_filename": {"0": "2018/a.midi", "1": "2018/b.midi", "2": "2018/c.midi", "3": "2018/d.midi"},
        "duration": {"0": 1.5, "1": 1, "2": 2, "3": 3}}"#;
    let rows = r#"[{"split": "train", "midi_filename": "2018/a.midi"}, {"split": "train", "midi_filename": "2018/b.midi"},
        {"split": "validation", "midi_filename": "2018/c.midi"}, {"split": "test", "midi_filename": "2018/d.midi", "year": 2018}]"#;
    for (name, table) in [
        ("maestro-v3.0.0.csv", csv.as_str()),
        ("maestro-v3.0.0.json", json),
        ("maestro-v2.0.0.json", rows),
    ] {
        let mut all = all.clone();
        all.push((name, table.as_bytes()));
        let at = folder(&all);
        let about = load(at.path()).unwrap().describe();
        let counts: BTreeMap<&str, u64> =
            about.splits.iter().map(|(split, part)| (split.name(), part.documents)).collect();
        assert_eq!(counts, [("train", 2), ("valid", 1), ("test", 1)].into(), "{name}");
        assert_eq!(about.splits[&Split::Valid].names, ["2018/c.midi"]);
        let missing = about.notes.join("\n");
        match name.ends_with(".csv") {
            true => assert_eq!(
                missing,
                "warning: 1 file is left out: 2018/gone.midi: is in maestro-v3.0.0.csv and not there"
            ),
            false => assert_eq!(missing, ""),
        }
        assert!(about.to_string().contains(" events"), "{about}");
    }
    let wrong = csv.replace("validation", "holdout");
    all.push(("maestro-v3.0.0.csv", wrong.as_bytes()));
    let refused = load(folder(&all).path()).unwrap_err().to_string();
    assert!(refused.contains("line 4: found the split \"holdout\""), "{refused}");
}

fn batches(settings: Midi, seed: u64) -> (Corpus, Batches) {
    let data = DataSettings { valid_share: 0.3, ..DataSettings::of(settings) };
    let corpus = Corpus::load(&data).unwrap();
    let settings =
        BatchSettings { batch: BatchSize::Rows(2), length: 32, seed, ..Default::default() };
    let batches = Batches::new(&corpus, Split::Train, &settings).unwrap();
    (corpus, batches)
}

#[test]
fn other_keys_and_tempos_follow_from_seed_and_step_and_only_train() {
    let scales: Vec<Vec<u8>> = (0..8).map(|i| scale(40 + i, 60)).collect();
    let names: Vec<String> = (0..8).map(|i| format!("{i}.mid")).collect();
    let files: Vec<(&str, &[u8])> =
        names.iter().map(String::as_str).zip(scales.iter().map(Vec::as_slice)).collect();
    let at = folder(&files);
    let plain = Midi { path: at.path().into(), ..Midi::default() };
    let moved = Midi { transpose: 3, stretch: vec![0.9, 1.1], ..plain.clone() };
    let ((corpus, plain), (_, moved), (_, again), (_, other)) = (
        batches(plain, 1),
        batches(moved.clone(), 1),
        batches(moved.clone(), 1),
        batches(moved, 2),
    );
    let tokens = |batches: &Batches, step| batches.get(step).unwrap().tokens;
    for step in [0, 1, 2, 7, 30] {
        assert_eq!(tokens(&moved, step), tokens(&again, step), "step {step}");
    }
    assert_ne!(tokens(&moved, 0), tokens(&plain, 0));
    assert_ne!(tokens(&moved, 0), tokens(&other, 0));
    let measured = |batches: &Batches| -> Vec<Batch> {
        batches.evaluation(None).map(|batch| batch.unwrap()).collect()
    };
    assert_eq!(measured(&moved), measured(&plain), "figures are of the pieces as they are");
    // Every piece begins and ends with the token that ends pieces.
    let first = &measured(&plain)[0];
    assert_eq!(Some(first.tokens[0]), corpus.tokenizer().end());
    assert!(first.tokens[1..first.length].iter().all(|token| Event::of(*token).is_some()));
    assert_eq!(corpus.vocabulary(), Event::COUNT + 2);
    let held = corpus.describe().held_out().join("\n");
    assert!(held.contains(" events in 2 pieces, "), "{held}");
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    for (settings, expected) in [
        ("source = { kind = 'midi', transpose = 25 }", "two octaves"),
        ("source = { kind = 'midi', stretch = [1.0, 0.0] }", "0.25 to 4"),
        ("source = { kind = 'midi', stretch = [nan] }", "0.25 to 4"),
        ("source = { kind = 'midi' }\ntokenizer = 'bytes'", "music has tokens of its own"),
        ("source = { kind = 'midi' }\nobjective = 'translate'", "has no meaning for midi"),
    ] {
        let refused = DataSettings::from_toml(settings).unwrap_err().to_string();
        assert!(refused.contains(expected), "{settings}: {refused}");
    }
}
