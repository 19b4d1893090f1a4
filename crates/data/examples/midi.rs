//! The events of a MIDI file, and a file that plays them: `midi FILE [OUT]`. `bench/midi.py` holds both against other readers.

use std::{error::Error, fs, path::Path};

use whatwhere_data::{
    music::{Event, Music},
    settings::Midi,
};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut files = std::env::args().skip(1);
    let name = files.next().ok_or("expected a MIDI file")?;
    let midi = Midi::default();
    let tokens = midi.tokens(&name, &fs::read(&name)?)?;
    let words: Vec<String> =
        tokens.iter().filter_map(|token| Event::of(*token)).map(Event::name).collect();
    println!("{}", words.join(" "));
    if let Some(out) = files.next() {
        midi.play(&tokens)?.save(Path::new(&out))?;
    }
    Ok(())
}
