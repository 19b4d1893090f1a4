//! What can be wrong with a call. Everything is checked once, at the public entry.

/// A call the kernels refuse, with what was found and what would be right.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size that must not be zero.
    #[error("{what} is 0, expected at least 1")]
    Zero {
        /// The size's name.
        what: &'static str,
    },
    /// Grouped heads that do not divide evenly.
    #[error("heads = {heads} is not a multiple of kv_heads = {kv_heads}")]
    Heads {
        /// Query heads.
        heads: usize,
        /// Key heads.
        kv_heads: usize,
    },
    /// A tensor that could not be addressed.
    #[error("the shape's tensors are larger than this machine can address")]
    TooLarge,
    /// A slice of the wrong length.
    #[error("{what} has {found} values, expected {expected}")]
    Length {
        /// The slice's name.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length the shape asks for.
        expected: usize,
    },
    /// A setting outside its range.
    #[error("{what} = {found} is outside {allowed}")]
    Range {
        /// The setting's name.
        what: &'static str,
        /// What was found.
        found: String,
        /// What would be right.
        allowed: &'static str,
    },
    /// Two choices that have no meaning together.
    #[error("{what}: {reason}")]
    Combination {
        /// The choices.
        what: &'static str,
        /// Why they do not go together.
        reason: &'static str,
    },
    /// A pattern's settings that cannot be.
    #[cfg(feature = "settings")]
    #[error(transparent)]
    Refused(#[from] whatwhere_settings::Refusal),
}

/// Checks that a slice has the length the shape asks for.
pub(crate) fn expect_len(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Length { what, found, expected }) }
}

/// Checks several slices: their names, their lengths and those the shape asks for.
pub(crate) fn expect_lens(
    lengths: impl IntoIterator<Item = (&'static str, usize, usize)>,
) -> Result<(), Error> {
    lengths.into_iter().try_for_each(|(what, found, expected)| expect_len(what, found, expected))
}

/// Checks that sizes are not zero.
pub(crate) fn expect_nonzero<const N: usize>(
    sizes: [(&'static str, usize); N],
) -> Result<(), Error> {
    match sizes.into_iter().find(|(_, size)| *size == 0) {
        Some((what, _)) => Err(Error::Zero { what }),
        None => Ok(()),
    }
}

/// Checks that a setting is inside its range.
pub(crate) fn expect_range(
    what: &'static str,
    found: impl std::fmt::Debug,
    inside: bool,
    allowed: &'static str,
) -> Result<(), Error> {
    if inside { Ok(()) } else { Err(Error::Range { what, found: format!("{found:?}"), allowed }) }
}
