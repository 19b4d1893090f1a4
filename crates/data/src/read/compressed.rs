//! Gzip and Zstandard streams, of one member or frame or several.

use std::io::{self, Read};

use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

/// The content of a gzip stream.
pub(super) fn gzip<R: Read>(reader: R) -> impl Read {
    flate2::read::MultiGzDecoder::new(reader)
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
