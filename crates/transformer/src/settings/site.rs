//! Where a model has attention.

/// Whose attention is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Of the encoder to itself.
    Encoder,
    /// Of the decoder to itself.
    Decoder,
    /// Of the decoder to the encoder.
    Cross,
}

impl Site {
    /// The site in words.
    pub fn name(self) -> &'static str {
        match self {
            Site::Encoder => "encoder",
            Site::Decoder => "decoder",
            Site::Cross => "decoder to the encoder",
        }
    }
}
