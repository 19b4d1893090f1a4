//! What a model reads.

use burn::tensor::Tensor;

/// Tokens of several sequences of one length.
#[derive(Clone, Debug)]
pub struct Sequences {
    /// `[batch, length]`, row by row.
    pub(crate) ids: Vec<u32>,
    batch: usize,
    /// Tokens that are not padding, one for each sequence; all if absent.
    pub lengths: Option<Vec<usize>>,
    /// Where documents start, for the `document` pattern: one list for all sequences or one for each.
    pub documents: Option<Vec<Vec<usize>>>,
    /// The type of every token, row by row as the tokens, for models that have types; all 0 if absent.
    pub types: Option<Vec<u32>>,
    /// How many tokens at the start of each sequence a decoder sees in both directions; none if absent.
    pub prefixes: Option<Vec<usize>>,
}

impl Sequences {
    /// Sequences without padding, one after the other.
    ///
    /// # Panics
    /// If the tokens are no multiple of `batch`.
    pub fn new(ids: Vec<u32>, batch: usize) -> Self {
        let whole = ids.len().is_multiple_of(batch);
        assert!(whole, "{} tokens, expected {batch} rows of one length", ids.len());
        Self { ids, batch, lengths: None, documents: None, types: None, prefixes: None }
    }

    /// Sequences of one length, without padding.
    ///
    /// # Panics
    /// If the rows differ in length so that no length fits all.
    pub fn from_rows(rows: &[impl AsRef<[u32]>]) -> Self {
        let ids = rows.iter().flat_map(AsRef::as_ref).copied().collect();
        Self::new(ids, rows.len())
    }

    /// All tokens, row by row.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The tokens of each sequence.
    pub(crate) fn rows(&self) -> Vec<Vec<u32>> {
        let [batch, length] = self.dims();
        (0..batch).map(|row| self.ids[row * length..][..length].to_vec()).collect()
    }

    /// `[batch, length]`.
    pub fn dims(&self) -> [usize; 2] {
        [self.batch, self.ids.len() / self.batch.max(1)]
    }
}

/// What the encoder has read.
#[derive(Clone, Debug)]
pub struct Memory {
    /// `[batch, length, width]`.
    pub states: Tensor<3>,
    /// Tokens that are not padding, one for each sequence.
    pub lengths: Option<Vec<usize>>,
}
