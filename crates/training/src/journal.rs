//! Records of a run, one JSON object per line, each with its `step`: `{"step":10,"loss":3.2}`.
//!
//! Lines are only added. Going on from a checkpoint, [`Journal::truncate_after`] takes back what came after it, so that no
//! step is recorded twice.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::Error;

/// A file of records, open at its end.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole records.
    length: u64,
}

impl Journal {
    /// Opens the file, or makes it, and drops a last line that was never finished.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::file(path, "opened"))?;
        let mut journal = Self { path: path.into(), file, length: 0 };
        journal.truncate_after(u64::MAX)?;
        Ok(journal)
    }

    /// Adds a record: the fields of `record`, an object without a field `step`, after the step.
    ///
    /// The line reaches the system at once, so that a killed process loses none.
    pub fn append(&mut self, step: u64, record: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(&Line { step, record })
            .map_err(|e| Error::file(&self.path, "extended")(e.into()))?;
        line.push(b'\n');
        if let Err(e) = self.file.write_all(&line) {
            // Half a line would spoil the next one. Where this fails too, opening the file drops it.
            let _ = self.cut(self.length);
            return Err(Error::file(&self.path, "extended and is as it was")(e));
        }
        self.length += line.len() as u64;
        Ok(())
    }

    /// Makes all records last through a power cut; called before the checkpoint that continues them.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::file(&self.path, "synced"))
    }

    /// Drops the records after `step`, and a broken end.
    pub fn truncate_after(&mut self, step: u64) -> Result<(), Error> {
        let length = self.length_until(step)?;
        self.cut(length).map_err(Error::file(&self.path, "truncated"))
    }

    /// Bytes up to the first record after `last`. A broken line is an error only if sound ones follow.
    fn length_until(&mut self, last: u64) -> Result<u64, Error> {
        let read = |e| Error::file(&self.path, "read")(e);
        self.file.seek(SeekFrom::Start(0)).map_err(read)?;
        let mut reader = BufReader::new(&self.file);
        let (mut length, mut broken) = (0, None);
        let mut text = Vec::new();
        for line in 1.. {
            text.clear();
            let read = reader.read_until(b'\n', &mut text).map_err(read)?;
            match step_of(&text) {
                _ if read == 0 => break,
                Some(step) if step > last => break,
                Some(_) => {
                    if let Some((line, found)) = broken {
                        return Err(Error::Record { path: self.path.clone(), line, found });
                    }
                    length += read as u64;
                }
                None if broken.is_some() => {}
                None => {
                    let found =
                        String::from_utf8_lossy(&text).trim_end().chars().take(40).collect();
                    broken = Some((line, found));
                }
            }
        }
        Ok(length)
    }

    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::Start(length))?;
        self.length = length;
        Ok(())
    }
}

/// Losses of one step, as recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// The update.
    pub step: u64,
    /// Its loss, in nats per token that counts.
    pub loss: Option<f64>,
    /// The loss on what is held out, if it was evaluated.
    pub valid: Option<f64>,
}

impl Past {
    /// The losses of a file of records, in their order.
    pub fn read(path: &Path) -> Result<Vec<Self>, Error> {
        let text = std::fs::read_to_string(path).map_err(Error::file(path, "read"))?;
        Ok(text.lines().filter_map(Self::of).collect())
    }

    /// Losses of the whole lines from a byte on, reading at most so many bytes, and the byte after the last of them: where to
    /// read on while a run goes on. From the beginning where the file has become shorter.
    pub fn read_from(path: &Path, from: u64, most: u64) -> Result<(Vec<Self>, u64), Error> {
        let read = |e| Error::file(path, "read")(e);
        let mut file = File::open(path).map_err(read)?;
        let length = file.metadata().map_err(read)?.len();
        let from = if from > length { 0 } else { from };
        file.seek(SeekFrom::Start(from)).map_err(read)?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map_err(read)?;
        bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        let next = from + bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes);
        Ok((text.lines().filter_map(Self::of).collect(), next))
    }

    fn of(line: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct Record {
            step: u64,
            loss: Option<f64>,
            valid: Option<Valid>,
        }
        #[derive(Deserialize)]
        struct Valid {
            loss: f64,
        }
        let Record { step, loss, valid } = serde_json::from_str(line).ok()?;
        Some(Self { step, loss, valid: valid.map(|valid| valid.loss) })
    }
}

#[derive(Serialize)]
struct Line<'a, T> {
    step: u64,
    #[serde(flatten)]
    record: &'a T,
}

/// The step of a whole line; none if it is broken.
fn step_of(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Step {
        step: u64,
    }
    let line = line.strip_suffix(b"\n")?;
    Some(serde_json::from_slice::<Step>(line).ok()?.step)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[derive(Serialize)]
    struct Loss {
        loss: f64,
    }

    fn journal(folder: &Path, steps: impl IntoIterator<Item = u64>) -> Journal {
        let mut journal = Journal::open(&folder.join("metrics.jsonl")).unwrap();
        for step in steps {
            journal.append(step, &Loss { loss: 1.0 / step as f64 }).unwrap();
        }
        journal
    }

    #[test]
    fn going_on_from_a_checkpoint_equals_never_having_stopped() {
        let (whole, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        journal(whole.path(), 1..=9);
        journal(stopped.path(), 1..=7);
        let mut again = journal(stopped.path(), []);
        again.truncate_after(5).unwrap();
        drop(again);
        journal(stopped.path(), 6..=9);
        let read = |folder: &Path| fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
        assert_eq!(read(stopped.path()), read(whole.path()));
        assert!(
            read(whole.path()).starts_with("{\"step\":1,\"loss\":1.0}\n{\"step\":2,\"loss\":0.5}")
        );
    }

    #[test]
    fn recorded_losses_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        fs::write(
            &path,
            "{\"step\":1,\"loss\":4.5,\"lr\":0.1}\n{\"step\":2,\"valid\":{\"loss\":3.0}}\n",
        )
        .unwrap();
        let past = |step, loss, valid| Past { step, loss, valid };
        let expected = [past(1, Some(4.5), None), past(2, None, Some(3.0))];
        assert_eq!(Past::read(&path).unwrap(), expected);
    }

    #[test]
    fn an_unfinished_end_is_dropped() {
        for end in ["{\"step\":3,\"lo", "{\"step\":3}", "\0\0\0\0", "{\"step\"\n", "\0\n\0\n{"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            journal(folder.path(), 1..=2);
            let whole = fs::read(&path).unwrap();
            fs::write(&path, [&whole, end.as_bytes()].concat()).unwrap();
            journal(folder.path(), []);
            assert_eq!(fs::read(&path).unwrap(), whole, "{end:?}");
        }
    }

    #[test]
    fn a_broken_line_among_sound_ones_is_not_dropped_silently() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let text = "{\"step\":1}\n{\"loss\":2}\n{\"step\":3}\n";
        fs::write(&path, text).unwrap();
        let message = Journal::open(&path).unwrap_err().to_string();
        assert!(
            message.ends_with(
                "metrics.jsonl line 2: found \"{\\\"loss\\\":2}\", expected a JSON object with a whole number \"step\""
            ),
            "{message}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn truncating_after_the_last_or_before_the_first_step_keeps_all_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = journal(folder.path(), 1..=3);
        let length = journal.length;
        journal.truncate_after(3).unwrap();
        assert_eq!(journal.length, length);
        journal.truncate_after(0).unwrap();
        assert_eq!(fs::read(&journal.path).unwrap(), b"");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut journal = Journal { path: "run/metrics.jsonl".into(), file, length: 0 };
        let message = journal.append(1, &Loss { loss: 1.0 }).unwrap_err().to_string();
        assert!(message.starts_with("run/metrics.jsonl could not be extended"), "{message}");
    }
}
