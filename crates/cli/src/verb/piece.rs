//! Music for `whatwhere generate`: a MIDI file to go on from, and one to write.

use std::{
    fs::File,
    io::{self, Read, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde_json::json;
use whatwhere_data::music::{LARGEST, Music};
use whatwhere_training::{Generation, Run, interrupt::Interrupt};

use crate::{failure::Failure, progress::Bar, say::say};

/// What is asked of a piece.
pub(crate) struct Piece {
    begun: Option<PathBuf>,
    out: Option<PathBuf>,
}

impl Piece {
    /// Nothing if neither file is named; refuses to write over one.
    pub(crate) fn of(
        begun: Option<&Path>,
        out: Option<&Path>,
        force: bool,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(out) = out.filter(|out| out.exists() && !force) {
            let message = format!("{} exists and stays as it is", out.display());
            let hint = "name another file with --out, or use --force";
            return Err(Failure::usage(message, hint).into());
        }
        let (begun, out) = (begun.map(Into::into), out.map(Into::into));
        Ok((begun.is_some() || out.is_some()).then_some(Self { begun, out }))
    }

    /// Goes on from the file, or else the prompt, and writes all of it.
    pub(crate) fn write(
        &self,
        run: &Run,
        prompt: &str,
        generation: &Generation,
        json: bool,
    ) -> anyhow::Result<()> {
        let Some(music) = run.settings.data.source.music() else {
            let option = if self.out.is_some() { "--out" } else { "--continue" };
            let message = format!(
                "{option} is for MIDI files, and this run reads {}",
                run.settings.data.source.name()
            );
            let hint = "use a run of chorales or midi; text is written to standard output";
            return Err(Failure::usage(message, hint).into());
        };
        let tokenizer = run.tokenizer()?;
        let given = match &self.begun {
            Some(path) => self.read(path, music)?,
            None => run.encode(prompt)?,
        };
        let start = self.start(run, music, given.len(), generation.limit);
        let prompt = tokenizer.decode(&given[start..]);
        let text = go_on(run, &prompt, generation)?;
        let mut tokens = given.clone();
        tokens.extend(run.encode(&text)?);
        let mut report = json!({ "prompt": tokenizer.decode(&given), "text": text });
        let mut out = io::stdout();
        if let Some(path) = &self.out {
            let played = music.play(&tokens)?;
            played.save(path).context("the piece could not be written")?;
            let (notes, seconds) = (played.notes, played.seconds);
            if !json {
                writeln!(out, "{}\t{notes} notes\t{seconds:.1} s", path.display())?;
                return Ok(());
            }
            report["out"] = json!(path);
            report["notes"] = json!(notes);
            report["seconds"] = json!(seconds);
        }
        match json {
            true => writeln!(out, "{report}")?,
            false => writeln!(out, "{}", tokenizer.decode(&tokens))?,
        }
        Ok(())
    }

    fn read(&self, path: &Path, music: &dyn Music) -> anyhow::Result<Vec<u32>> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        let file = File::open(path).with_context(|| name.clone())?;
        file.take(LARGEST + 1).read_to_end(&mut bytes).with_context(|| name.clone())?;
        if bytes.len() as u64 > LARGEST {
            anyhow::bail!("{name} is larger than {} MiB", LARGEST >> 20);
        }
        Ok(music.tokens(&name, &bytes)?)
    }

    /// The token from which a file is read. Beyond the trained length a model would only guess, so that what it reads and
    /// writes should fit, half of it for what it reads at least.
    fn start(&self, run: &Run, music: &dyn Music, given: usize, limit: usize) -> usize {
        let trained = run.settings.training.length;
        let read = trained.saturating_sub(limit).max(trained / 2).max(1);
        let start = given.saturating_sub(read).next_multiple_of(music.stride()).min(given);
        if start > 0 {
            say!(
                "the piece has {given} {}s; the model, trained at {trained}, goes on from the last {}",
                music.unit(),
                given - start
            );
        }
        start
    }
}

/// What follows; Ctrl-C ends it and keeps what there is.
fn go_on(run: &Run, prompt: &str, generation: &Generation) -> anyhow::Result<String> {
    let unit = run.settings.data.source.unit();
    let bar =
        Bar::new(Some(generation.limit as u64), &format!("{{bar:24}} {{pos}}/{{len}} {unit}s"));
    let interrupt = Interrupt::new()?;
    Ok(run.generate(prompt, generation, |_| {
        bar.inc(1);
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?)
}
