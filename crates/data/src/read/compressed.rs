//! Gzip, Zstandard and xz streams, of one member or frame or several.

use std::io::{self, Read};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// The ending of a lower-case name that says how the file is compressed.
pub(super) fn ending(kind: &str) -> Option<&'static str> {
    [".gz", ".zst", ".xz", ".tgz"].into_iter().find(|ending| kind.ends_with(ending))
}

/// The name without the ending of its compression, and the content; none if it is not compressed.
pub(super) fn opened<'a>(
    kind: &str,
    reader: &'a mut dyn Read,
) -> Option<(String, Box<dyn Read + 'a>)> {
    let ending = ending(kind)?;
    let packed = if ending == ".tgz" { ".tar" } else { "" };
    let inner = format!("{}{packed}", &kind[..kind.len() - ending.len()]);
    Some((inner, self::reader(ending, reader)))
}

/// The content of a stream with this ending.
pub(super) fn reader<'a, R: Read + 'a>(ending: &str, reader: R) -> Box<dyn Read + 'a> {
    match ending {
        ".zst" => Box::new(Zstandard { reader, decoder: FrameDecoder::new(), inside: false }),
        ".xz" => Box::new(lzma_rust2::XzReader::new(reader, true)),
        _ => Box::new(flate2::read::MultiGzDecoder::new(reader)),
    }
}

/// The content of a Zstandard stream.
pub(crate) fn zstandard<R: Read>(reader: R) -> impl Read {
    Zstandard { reader, decoder: FrameDecoder::new(), inside: false }
}

struct Zstandard<R> {
    reader: R,
    decoder: FrameDecoder,
    /// Whether a frame was begun and not yet read to its end.
    inside: bool,
}

impl<R: Read> Read for Zstandard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.inside {
                while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                    let some = BlockDecodingStrategy::UptoBytes(buffer.len());
                    self.decoder.decode_blocks(&mut self.reader, some).map_err(io::Error::other)?;
                }
                let count = self.decoder.read(buffer)?;
                if count > 0 || buffer.is_empty() {
                    return Ok(count);
                }
                self.inside = false;
            }
            if !self.next_frame()? {
                return Ok(0);
            }
        }
    }
}

impl<R: Read> Zstandard<R> {
    /// Begins the next frame; false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        let mut first = [0];
        if self.reader.read(&mut first)? == 0 {
            return Ok(false);
        }
        match self.decoder.init((&first[..]).chain(&mut self.reader)) {
            Ok(()) => self.inside = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length,
                ..
            })) => {
                io::copy(&mut (&mut self.reader).take(u64::from(length)), &mut io::sink())?;
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }
}
