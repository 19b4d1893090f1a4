//! A run reading a text: its tokens, and what every attention was called with.

use std::{ops::Deref, sync::Arc};

use burn::tensor::Tensor;
use whatwhere_attention::Attention;
use whatwhere_data::Tokenizer;
use whatwhere_training::{BLANK, Run, Translation};
use whatwhere_transformer::{AttentionInput, Family, Sequences, Site};

use crate::Error;

/// Tokens of a text at the most: beyond, all pairs of them take too long.
const LONGEST: usize = 1 << 16;

/// A run that reads: lent, or held together with others.
#[derive(Clone)]
pub enum Reader<'a> {
    /// For as long as it is looked at.
    Lent(&'a Run),
    /// For as long as anybody looks.
    Held(Arc<Run>),
}

impl Deref for Reader<'_> {
    type Target = Run;

    fn deref(&self) -> &Run {
        match self {
            Self::Lent(run) => run,
            Self::Held(run) => run,
        }
    }
}

/// A run and a text it has read.
pub struct Reading<'a> {
    run: Reader<'a>,
    text: String,
    source: Vec<u32>,
    tokens: Vec<u32>,
    first: usize,
    seen: Vec<AttentionInput>,
    states: Tensor<3>,
}

/// What a run is to read.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'t> {
    /// The text; the source, for an encoder-decoder.
    pub text: &'t str,
    /// What is written to a source; a run's own translation if absent. Other families have none.
    pub target: Option<&'t str>,
    /// Position of the first token; a source always stands at 0.
    pub first: usize,
    /// Tokens at the most; a longer text is refused before the model reads it.
    pub most: usize,
}

impl<'a> Reading<'a> {
    /// Reads a text. An encoder-decoder reads it as the source of `target`, or of its own translation if there is none;
    /// other families have no target.
    pub fn new(run: &'a Run, text: &str, target: Option<&str>) -> Result<Self, Error> {
        Self::of_at_most(run, text, target, LONGEST)
    }

    /// [`Self::new`] of a text with at most so many tokens; a longer one is refused before the model reads it.
    pub fn of_at_most(
        run: &'a Run,
        text: &str,
        target: Option<&str>,
        most: usize,
    ) -> Result<Self, Error> {
        Self::of(Reader::Lent(run), &Asked { text, target, first: 0, most })
    }

    /// Reads what is asked.
    pub fn of(run: Reader<'a>, asked: &Asked) -> Result<Self, Error> {
        let &Asked { text, target, first, most } = asked;
        let most = most.min(LONGEST);
        let family = run.model().family();
        if target.is_some() && family != Family::EncoderDecoder {
            let reason = "only an encoder-decoder has one; leave it out";
            return Err(Error::Request(format!("a target for a model with one stack: {reason}")));
        }
        let mut tokens = encode(&run, text)?;
        if tokens.len() > most {
            let found = tokens.len();
            let reason = "every pair of them is looked at; take a part of the text";
            return Err(Error::Request(format!(
                "found {found} tokens, expected at most {most}: {reason}"
            )));
        }
        let mut source = Vec::new();
        if family == Family::EncoderDecoder {
            let target = match target {
                Some(target) => target.to_owned(),
                None => run.translate(&[text], &Translation::default())?.swap_remove(0),
            };
            source = run.encode_source(text)?;
            tokens = run.tokenizer()?.begin().into_iter().collect();
            tokens.extend(run.tokenizer()?.encode(&target)?);
            // A model may write one token more than it has places to read.
            tokens.truncate(run.settings.model.longest().unwrap_or(usize::MAX));
        }
        if tokens.is_empty() {
            return Err(Error::Request("the text has no tokens, expected at least 1".into()));
        }
        Self::of_tokens(run, text.into(), source, tokens, first)
    }

    fn of_tokens(
        run: Reader<'a>,
        text: String,
        source: Vec<u32>,
        tokens: Vec<u32>,
        first: usize,
    ) -> Result<Self, Error> {
        let read = (!source.is_empty()).then(|| Sequences::from_rows(&[&source]));
        let mut written = Sequences::from_rows(&[&tokens]);
        let starts = document_starts(&run, &tokens).into_iter().map(|start| start + first);
        written.documents = Some(vec![starts.collect()]);
        let (seen, states) = run.model().look(read.as_ref(), &written, first)?;
        Ok(Self { run, text, source, tokens, first, seen, states })
    }

    /// The same run reading the first so many tokens only, of source and target alike.
    pub fn beginning(&self, most: usize) -> Result<Self, Error> {
        let first = |tokens: &[u32]| tokens[..tokens.len().min(most)].to_vec();
        let (source, tokens) = (first(&self.source), first(&self.tokens));
        Self::of_tokens(self.run.clone(), self.text.clone(), source, tokens, self.first)
    }

    /// The run that reads.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The text that was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The model in words.
    pub fn about(&self) -> Vec<String> {
        let settings = &self.run.settings;
        let family = match self.run.model().family() {
            Family::Decoder => "decoder",
            Family::Encoder => "encoder",
            Family::EncoderDecoder => "encoder-decoder",
        };
        let kind = match settings.model.recurrent {
            Some(cell) => format!("A {} {family}", cell.name().to_uppercase()),
            None if family.starts_with('e') => format!("An {family}"),
            None => format!("A {family}"),
        };
        let (layers, width) = (settings.model.layers, settings.model.width);
        let (count, step) = (self.run.model().size(), self.run.step);
        vec![format!(
            "{kind} of {layers} layers, width {width}, {count} parameters, after {step} updates."
        )]
    }

    /// Position of the first token.
    pub fn first(&self) -> usize {
        self.first
    }

    /// The last layer's states of the tokens, `[1, tokens, width]`.
    pub fn states(&self) -> &Tensor<3> {
        &self.states
    }

    /// What every attention was called with.
    pub fn seen(&self) -> &[AttentionInput] {
        &self.seen
    }

    /// The attention that was called.
    pub fn attention(&self, seen: &AttentionInput) -> &Attention {
        let found = self.run.model().attention(seen.site, seen.layer);
        found.expect("it was called")
    }

    /// Tokens of the queries at a site.
    pub fn queries(&self, site: Site) -> &[u32] {
        match site {
            Site::Encoder if !self.source.is_empty() => &self.source,
            _ => &self.tokens,
        }
    }

    /// Tokens of the keys at a site.
    pub fn keys(&self, site: Site) -> &[u32] {
        match site {
            Site::Cross => &self.source,
            site => self.queries(site),
        }
    }

    /// The token ids of a site as a batch of one.
    pub fn sequences(&self, site: Site) -> Sequences {
        Sequences::from_rows(&[self.queries(site)])
    }

    /// Tokens as they are shown, blanks and line ends made visible.
    pub fn words(&self, tokens: &[u32]) -> Vec<String> {
        let Ok(tokenizer) = self.run.tokenizer() else { return Vec::new() };
        tokens.iter().map(|token| visible(&tokenizer.token(*token))).collect()
    }
}

/// Where documents start, as in batches: the token that ends one starts the next.
pub(crate) fn document_starts(run: &Run, tokens: &[u32]) -> Vec<usize> {
    let end = run.tokenizer().ok().and_then(Tokenizer::end);
    let ends = (1..tokens.len()).filter(|position| Some(tokens[*position]) == end);
    std::iter::once(0).chain(ends).collect()
}

/// Blanks and line ends as signs.
pub(crate) fn visible(token: &str) -> String {
    token.replace(' ', "␣").replace('\n', "⏎").replace('\t', "⇥").replace('\r', "␍")
}

/// A text as tokens; `[MASK]` is the model's blank if it has one.
fn encode(run: &Run, text: &str) -> Result<Vec<u32>, Error> {
    let tokenizer = run.tokenizer()?;
    let Some(mask) = tokenizer.mask().filter(|_| text.contains(BLANK)) else {
        return Ok(run.encode(text)?);
    };
    let mut tokens = Vec::new();
    for (part, words) in text.split(BLANK).enumerate() {
        tokens.extend((part > 0).then_some(mask));
        tokens.extend(tokenizer.encode(words)?);
    }
    Ok(tokens)
}
