//! What patterns have in common as settings: read by name or table, checked, and built for a call.

use whatwhere_settings::Refuses;

use super::{Full, Pattern, settings};
use crate::Error;

/// What a pattern may need to know of a call.
#[derive(Clone, Debug)]
pub struct PatternContext<'a> {
    /// Query heads.
    pub heads: usize,
    /// Where the documents of each sequence start, for [`Document`](settings::Document).
    pub documents: Option<&'a [Vec<usize>]>,
    /// The tokens of each sequence and the position of the first of them, one list for all sequences or one for each, for
    /// patterns that [ask for some](PatternSettings::tokens).
    pub tokens: Option<(&'a [Vec<u32>], usize)>,
    /// Position of the first query.
    pub first_query: usize,
    /// The position each query predicts, `[batch, heads, queries]` with these sizes, for a pattern with a
    /// [deviation](PatternSettings::deviation).
    pub centers: Option<(&'a [f32], [usize; 3])>,
}

/// Settings of a pattern.
pub trait PatternSettings {
    /// Refuses settings without meaning.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// The pattern for a call.
    fn build(&self, context: &PatternContext) -> Result<Box<dyn Pattern>, Error>;

    /// How many keys before its own position a query can see at the most; nothing if there is no such bound.
    fn reach(&self) -> Option<usize> {
        None
    }

    /// Whether no query sees a key after its own position.
    fn is_causal(&self) -> bool;

    /// Whether a query sees every key, or every key up to its own position: what a sum over keys can stand for.
    fn is_whole(&self) -> bool {
        false
    }

    /// Whether the call has to say where documents start.
    fn needs_documents(&self) -> bool {
        false
    }

    /// Tokens that are seen for what they are: the call then has to say which it has.
    fn tokens(&self) -> Vec<settings::Token> {
        Vec::new()
    }

    /// The same with ids for tokens that are named by their text, or why one has none; nothing if it names none.
    fn with_tokens(
        &self,
        _id_of: &dyn Fn(&str) -> Result<u32, String>,
    ) -> Result<Option<settings::Pattern>, Error> {
        Ok(None)
    }

    /// Whether each head sees other pairs.
    fn differs_by_head(&self) -> bool {
        false
    }

    /// Deviation in positions of the Gaussian around predicted positions, for a pattern that follows what the queries hold:
    /// a layer then learns to predict them.
    fn deviation(&self) -> Option<f32> {
        None
    }
}

/// Declares the list of patterns that can be chosen, each with its file and its name.
macro_rules! patterns {
    ($($file:ident::$pattern:ident => $name:literal,)*) => {
        $(pub use super::$file::settings::$pattern;)*

        whatwhere_settings::choice! {
            /// Which keys a query may see.
            Pattern: PatternSettings { $($pattern => $name,)* }
        }
    };
}

pub(super) use patterns;

impl settings::Pattern {
    /// Refuses settings without meaning.
    pub fn check(&self) -> Result<(), Error> {
        self.role().check()
    }

    /// The pattern for a call.
    pub fn build(&self, context: &PatternContext) -> Result<Box<dyn Pattern>, Error> {
        self.role().build(context)
    }

    /// How many keys before its own position a query can see at the most; nothing if there is no such bound.
    pub fn reach(&self) -> Option<usize> {
        self.role().reach()
    }

    /// Whether no query sees a key after its own position.
    pub fn is_causal(&self) -> bool {
        self.role().is_causal()
    }

    /// Whether a query sees every key, or every key up to its own position.
    pub fn is_whole(&self) -> bool {
        self.role().is_whole()
    }

    /// Whether the call has to say where documents start.
    pub fn needs_documents(&self) -> bool {
        self.role().needs_documents()
    }

    /// Whether the call has to say which tokens it has.
    pub fn needs_tokens(&self) -> bool {
        !self.tokens().is_empty()
    }

    /// Tokens that are seen for what they are.
    pub fn tokens(&self) -> Vec<settings::Token> {
        self.role().tokens()
    }

    /// The same with ids for tokens that are named by their text, or why one has none.
    pub fn with_tokens(&self, id_of: &dyn Fn(&str) -> Result<u32, String>) -> Result<Self, Error> {
        Ok(self.role().with_tokens(id_of)?.unwrap_or_else(|| self.clone()))
    }

    /// Whether each head sees other pairs.
    pub fn differs_by_head(&self) -> bool {
        self.role().differs_by_head()
    }

    /// Deviation in positions of the Gaussian around predicted positions, for a pattern that follows what the queries hold.
    pub fn deviation(&self) -> Option<f32> {
        self.role().deviation()
    }
}

/// Refuses parts that `and` and `or` cannot join.
pub(super) fn check_parts(joint: &'static str, of: &[settings::Pattern]) -> Result<(), Error> {
    if of.is_empty() {
        return Err(Error::setting("pattern.of", "[]", "expected at least one pattern"));
    }
    of.iter().try_for_each(|part| {
        if part.deviation().is_some() {
            let reason = "its center is a share of all keys, and its Gaussian weighs every key that is seen; use it alone";
            return Err(Error::combination(part.name(), joint, reason));
        }
        part.check()
    })
}

/// The parts of `and` and `or`, built and joined two by two.
pub(super) fn join(
    of: &[settings::Pattern],
    context: &PatternContext,
    both: impl Fn(Box<dyn Pattern>, Box<dyn Pattern>) -> Box<dyn Pattern>,
) -> Result<Box<dyn Pattern>, Error> {
    let mut parts = of.iter().map(|part| part.build(context));
    let first = parts.next().unwrap_or_else(|| Ok(Box::new(Full)))?;
    parts.try_fold(first, |joined, next| Ok(both(joined, next?)))
}
