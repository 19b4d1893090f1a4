//! Event files for TensorBoard: scalars and texts by step.
//!
//! A file is a row of records, each `length: u64, crc, data, crc` with masked CRC-32C; the data is a protobuf message
//! `Event`, of which the few fields used here are written by hand. A run that goes on drops what its files hold beyond the
//! checkpoint and opens a new one, which begins by telling a TensorBoard that has read them already to forget the same.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::Error;

/// A file of events, open at its end.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Writer {
    /// Starts a file in the folder, which is made if need be.
    pub fn create(folder: &Path) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder, "made"))?;
        let path = folder.join(file_name(folder)?);
        let file = File::create_new(&path).map_err(Error::file(&path, "made"))?;
        let mut writer = Self { path, file: BufWriter::new(file) };
        writer.write(Event { step: 0, wall_time: now(), content: Content::FileVersion })?;
        writer.flush()?;
        Ok(writer)
    }

    /// Starts a file that goes on after `step`; events beyond it are dropped from our older files in the folder.
    pub fn resume(folder: &Path, step: u64) -> Result<Self, Error> {
        // TensorBoard's data server forgets a tag's old points only when the tag comes again, and its reader in Python
        // forgets no texts: telling them is not enough.
        for path in event_files(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.contains(OURS) {
                truncate_after(&path, step)?;
            }
        }
        let mut writer = Self::create(folder)?;
        writer.write(Event { step: step + 1, wall_time: now(), content: Content::Start })?;
        writer.flush()?;
        Ok(writer)
    }

    /// Adds a point to a curve; `wall_time` in seconds since 1970. TensorBoard keeps single precision.
    pub fn scalar(
        &mut self,
        tag: &str,
        step: u64,
        value: f32,
        wall_time: f64,
    ) -> Result<(), Error> {
        self.write(Event { step, wall_time, content: Content::Scalar { tag, value } })
    }

    /// Adds a text, which TensorBoard shows as Markdown; `wall_time` in seconds since 1970.
    pub fn text(&mut self, tag: &str, step: u64, text: &str, wall_time: f64) -> Result<(), Error> {
        self.write(Event { step, wall_time, content: Content::Text { tag, text } })
    }

    /// Hands all events to the system, where TensorBoard sees them.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.file.flush().map_err(Error::file(&self.path, "written"))
    }

    fn write(&mut self, event: Event) -> Result<(), Error> {
        let data = record(&event.encode().0);
        self.file.write_all(&data).map_err(Error::file(&self.path, "written"))
    }
}

/// Seconds since 1970, as events count them.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

const PREFIX: &str = "events.out.tfevents.";
/// Marks files of this writer, whose layout [`step_of`] knows.
const OURS: &str = ".whatwhere.";

/// A name that sorts after all in the folder: TensorBoard reads files in this order, and never goes back.
fn file_name(folder: &Path) -> Result<String, Error> {
    let mut seconds = now() as u64;
    for path in event_files(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let time = name.and_then(|name| name.strip_prefix(PREFIX)?.split('.').next()?.parse().ok());
        seconds = seconds.max(time.map_or(0, |time: u64| time + 1));
    }
    Ok(format!("{PREFIX}{seconds:010}{OURS}{}.v2", std::process::id()))
}

/// Event files of a folder; none if there is no folder.
fn event_files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::file(folder, "read"))?,
    };
    let paths: io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(Error::file(folder, "read"))?;
    paths.retain(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
    });
    Ok(paths)
}

/// Drops the file's events after `last`, and a record that was never finished.
fn truncate_after(path: &Path, last: u64) -> Result<(), Error> {
    let bytes = fs::read(path).map_err(Error::file(path, "read"))?;
    let (mut kept, mut rest) = (Vec::with_capacity(bytes.len()), &bytes[..]);
    while let Some((record, after)) = split_record(rest) {
        if step_of(record).is_some_and(|step| step <= last) {
            kept.extend(record);
        }
        rest = after;
    }
    if kept.len() == bytes.len() {
        return Ok(());
    }
    Ok(whatwhere_files::replace(path, |out| out.write_all(&kept))?)
}

/// The first record with its frame, and what follows it; none if it is cut short.
fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u64::from_le_bytes(*bytes.first_chunk()?);
    bytes.split_at_checked(usize::try_from(length).ok()?.checked_add(FRAME)?)
}

/// The step of an event of ours, which stands after the frame's 12 bytes, the 9 of the wall time and the key.
fn step_of(record: &[u8]) -> Option<u64> {
    let mut step = 0;
    for (i, byte) in record.get(22..)?.iter().take(10).enumerate() {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(step);
        }
    }
    None
}

struct Event<'a> {
    step: u64,
    wall_time: f64,
    content: Content<'a>,
}

enum Content<'a> {
    FileVersion,
    Start,
    Scalar { tag: &'a str, value: f32 },
    Text { tag: &'a str, text: &'a str },
}

impl Event<'_> {
    fn encode(&self) -> Message {
        let event = Message::default().double(1, self.wall_time).integer(2, self.step);
        match self.content {
            Content::FileVersion => event.bytes(3, b"brain.Event:2"),
            // SessionLog.status = START.
            Content::Start => event.message(7, Message::default().integer(1, 1)),
            Content::Scalar { tag, value } => {
                let value = Message::default().bytes(1, tag.as_bytes()).float(2, value);
                event.message(5, Message::default().message(1, value))
            }
            Content::Text { tag, text } => {
                // Summary.Value: tag, metadata (plugin, data class TENSOR), tensor (DT_STRING, no dimensions, text).
                let plugin = Message::default().bytes(1, b"text");
                let metadata = Message::default().message(1, plugin).integer(4, 2);
                let tensor = Message::default()
                    .integer(1, 7)
                    .message(2, Message::default())
                    .bytes(8, text.as_bytes());
                let value = Message::default()
                    .bytes(1, tag.as_bytes())
                    .message(9, metadata)
                    .message(8, tensor);
                event.message(5, Message::default().message(1, value))
            }
        }
    }
}

/// A protobuf message under construction; the first argument of each method is the field's number.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn integer(mut self, field: u8, value: u64) -> Self {
        self.key(field, 0);
        self.varint(value);
        self
    }

    fn double(mut self, field: u8, value: f64) -> Self {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn float(mut self, field: u8, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(mut self, field: u8, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn message(self, field: u8, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// Field numbers here are below 16, so that a key is one byte.
    fn key(&mut self, field: u8, wire_type: u8) {
        self.0.push(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

const FRAME: usize = 8 + 4 + 4; // length, its checksum, the data's

/// The frame of TFRecord files.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length, &masked_crc(&length)[..], data, &masked_crc(data)].concat()
}

/// Masked, since the checksum of data that holds checksums is weak.
fn masked_crc(data: &[u8]) -> [u8; 4] {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was read of an event: its step, and what it holds.
    #[derive(Debug, PartialEq)]
    enum Read {
        Version(String),
        Start,
        Scalar(String, f32),
        Text(String, String),
    }

    /// All sound records of a file; stops at a cut one, and panics at a wrong checksum.
    fn records(path: &Path) -> Vec<Vec<u8>> {
        let bytes = fs::read(path).unwrap();
        let (mut rest, mut records) = (&bytes[..], Vec::new());
        while rest.len() >= 12 {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(rest[8..12], masked_crc(&rest[..8]));
            let Some(end) = rest.get(12..).and_then(|rest| rest.get(length..length + 4)) else {
                break;
            };
            let data = &rest[12..12 + length];
            assert_eq!(end, masked_crc(data));
            records.push(data.to_vec());
            rest = &rest[16 + length..];
        }
        records
    }

    /// The fields of a message by number: integers, bits of floats, or bytes.
    #[derive(Debug, Clone)]
    enum Field<'a> {
        Number(u64),
        Bytes(&'a [u8]),
    }

    impl<'a> Field<'a> {
        fn number(&self) -> u64 {
            let Self::Number(number) = self else { panic!("{self:?} is no number") };
            *number
        }

        fn bytes(&self) -> &'a [u8] {
            let Self::Bytes(bytes) = self else { panic!("{self:?} is not bytes") };
            bytes
        }

        fn text(&self) -> String {
            String::from_utf8(self.bytes().to_vec()).unwrap()
        }
    }

    fn varint(rest: &mut &[u8]) -> u64 {
        let end = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let (bytes, after) = rest.split_at(end);
        *rest = after;
        bytes.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }

    fn fields(mut rest: &[u8]) -> std::collections::HashMap<u64, Field<'_>> {
        let mut fields = std::collections::HashMap::new();
        while !rest.is_empty() {
            let key = varint(&mut rest);
            let wire_type = key & 7;
            let field = if wire_type == 0 {
                Field::Number(varint(&mut rest))
            } else {
                let length = [0, 8, varint_if(wire_type == 2, &mut rest), 0, 0, 4];
                let (bytes, after) = rest.split_at(length[wire_type as usize]);
                rest = after;
                Field::Bytes(bytes)
            };
            fields.insert(key >> 3, field);
        }
        fields
    }

    fn varint_if(wanted: bool, rest: &mut &[u8]) -> usize {
        if wanted { varint(rest) as usize } else { 0 }
    }

    fn read(data: &[u8]) -> (u64, f64, Read) {
        let event = fields(data);
        let wall_time = f64::from_le_bytes(event[&1].bytes().try_into().unwrap());
        let read = if let Some(version) = event.get(&3) {
            Read::Version(version.text())
        } else if let Some(log) = event.get(&7) {
            assert_eq!(fields(log.bytes())[&1].number(), 1);
            Read::Start
        } else {
            let value = fields(fields(event[&5].bytes())[&1].bytes());
            match value.get(&8) {
                Some(tensor) => Read::Text(value[&1].text(), fields(tensor.bytes())[&8].text()),
                None => Read::Scalar(
                    value[&1].text(),
                    f32::from_le_bytes(value[&2].bytes().try_into().unwrap()),
                ),
            }
        };
        (event[&2].number(), wall_time, read)
    }

    fn sorted(folder: &Path) -> Vec<PathBuf> {
        let mut paths: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn the_checksum_is_that_of_the_castagnoli_polynomial() {
        // RFC 3720, B.4: 32 bytes of zeros.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder.path()).unwrap();
        let long = "long text, ".repeat(40);
        writer.scalar("train/loss", 1, 3.25, 1e9 + 0.5).unwrap();
        writer.scalar("train/loss", u64::from(u32::MAX) + 7, f32::NAN, 1e9 + 1.5).unwrap();
        writer.text("sätze", 300, &long, 1e9 + 2.5).unwrap();
        writer.flush().unwrap();
        let events: Vec<_> = records(&writer.path).iter().map(|data| read(data)).collect();
        assert_eq!((events[0].0, &events[0].2), (0, &Read::Version("brain.Event:2".into())));
        assert_eq!(events[1], (1, 1e9 + 0.5, Read::Scalar("train/loss".into(), 3.25)));
        assert_eq!(events[2].0, u64::from(u32::MAX) + 7);
        assert!(matches!(&events[2].2, Read::Scalar(_, value) if value.is_nan()));
        assert_eq!(events[3], (300, 1e9 + 2.5, Read::Text("sätze".into(), long)));
        assert_eq!(events.len(), 4);
    }

    #[test]
    fn a_resumed_run_starts_a_later_file_after_its_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        // A file from a machine whose clock was ahead.
        let ahead = folder.path().join(format!("{PREFIX}9000000000.other.1"));
        fs::write(&ahead, "").unwrap();
        let first = Writer::create(folder.path()).unwrap();
        let second = Writer::resume(folder.path(), 20).unwrap();
        assert_eq!(sorted(folder.path()), [ahead, first.path, second.path.clone()]);
        let (step, _, start) = read(&records(&second.path)[1]);
        assert_eq!((step, start), (21, Read::Start));
    }

    #[test]
    fn a_resumed_run_drops_events_beyond_its_checkpoint_in_any_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(folder.path()).unwrap();
        let steps = [1, 127, 128, 301, 300, u64::from(u32::MAX)];
        steps.iter().for_each(|&step| writer.scalar("loss", step, 1.0, 0.0).unwrap());
        writer.flush().unwrap();
        let older = writer.path.clone();
        File::options().append(true).open(&older).unwrap().write_all(&[30, 0, 0]).unwrap();
        Writer::resume(folder.path(), 300).unwrap();
        let steps: Vec<u64> = records(&older).iter().map(|data| read(data).0).collect();
        assert_eq!(steps, [0, 1, 127, 128, 300]);
        let length: usize = records(&older).iter().map(|data| data.len() + FRAME).sum();
        assert_eq!(fs::read(&older).unwrap().len(), length, "the unfinished record is gone");
    }

    #[test]
    fn resuming_leaves_files_of_other_writers_alone() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(format!("{PREFIX}1000000000.host.1"));
        fs::write(&other, "not ours").unwrap();
        Writer::resume(folder.path(), 0).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"not ours");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_an_error_that_names_the_file() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = Writer { path: "run/events".into(), file: BufWriter::new(file) };
        writer.scalar("loss", 1, 1.0, 0.0).unwrap();
        let message = writer.flush().unwrap_err().to_string();
        assert!(message.starts_with("run/events could not be written: "), "{message}");
    }
}
