//! From tokens to text, as they come.

use std::ops::ControlFlow;

use whatwhere_data::{Decoder, Tokenizer};
use whatwhere_training::StopFilter;

use crate::{
    Refusal,
    engine::{Event, Finish, Heard, Probability},
};

/// A text that is being written.
pub(crate) struct Text<'a> {
    events: Heard,
    tokenizer: &'a Tokenizer,
    decoder: Option<Decoder<'a>>,
    stops: StopFilter<'a>,
    /// Said before anything else.
    echo: String,
    is_done: bool,
    /// Characters of the tokens that were told so far.
    told: usize,
    /// Tokens written so far.
    pub(crate) tokens: Vec<u32>,
    /// Tokens of the prompt that were known before.
    pub(crate) cached: usize,
}

/// What is new in a text.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) told: Vec<Probability>,
    /// Characters of the tokens that were told before.
    pub(crate) offset: usize,
    /// Why it ends, with its last piece.
    pub(crate) finish: Option<Ending>,
}

/// Why a text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a token that ends it.
    End,
    /// By one of the strings that stop it.
    Stop,
    /// It has as many tokens as it may.
    Length,
}

impl Ending {
    /// In OpenAI's words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::End | Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

impl<'a> Text<'a> {
    /// A text after a prompt, up to one of these strings. `echo` is said before it.
    pub(crate) fn new(
        events: Heard,
        tokenizer: &'a Tokenizer,
        prompt: &[u32],
        stop: &'a [String],
        echo: Option<String>,
    ) -> Self {
        Self {
            events,
            tokenizer,
            decoder: Some(tokenizer.stream_after(prompt)),
            stops: StopFilter::new(stop),
            echo: echo.unwrap_or_default(),
            is_done: false,
            told: 0,
            tokens: Vec::new(),
            cached: 0,
        }
    }

    /// What is new; nothing after the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        while !self.is_done {
            let Some(event) = self.events.next().await else {
                return Err(Refusal::internal("the engine of this model has stopped"));
            };
            match event {
                Event::Read { cached, told } => {
                    self.cached = cached;
                    let text = std::mem::take(&mut self.echo);
                    if !text.is_empty() || !told.is_empty() {
                        return Ok(Some(self.piece(text, told, None)));
                    }
                }
                Event::Token { token, told } => {
                    self.tokens.push(token);
                    let (text, is_stopped) = self.push(token);
                    if is_stopped {
                        self.events.end();
                    }
                    let finish = is_stopped.then_some(Ending::Stop);
                    self.is_done = is_stopped;
                    return Ok(Some(self.piece(text, told.into_iter().collect(), finish)));
                }
                Event::Done(finish) => {
                    self.is_done = true;
                    let (text, is_stopped) = self.finish();
                    let finish = match finish {
                        _ if is_stopped => Ending::Stop,
                        Finish::Stop => Ending::End,
                        Finish::Length => Ending::Length,
                    };
                    return Ok(Some(self.piece(text, Vec::new(), Some(finish))));
                }
                Event::Failed(refusal) => return Err(refusal),
            }
        }
        Ok(None)
    }

    fn piece(&mut self, text: String, told: Vec<Probability>, finish: Option<Ending>) -> Piece {
        let offset = self.told;
        let length = |told: &Probability| self.tokenizer.token(told.token).chars().count();
        self.told += told.iter().map(length).sum::<usize>();
        Piece { text, told, offset, finish }
    }

    /// The text that a token completes, and whether it ends there.
    fn push(&mut self, token: u32) -> (String, bool) {
        let text = self.decoder.as_mut().map(|decoder| decoder.push(token)).unwrap_or_default();
        self.filter(&text)
    }

    fn filter(&mut self, text: &str) -> (String, bool) {
        let mut new = String::new();
        let flow = self.stops.push(text, &mut |text: &str| {
            new.push_str(text);
            ControlFlow::Continue(())
        });
        (new, flow.is_break())
    }

    /// What was held back.
    fn finish(&mut self) -> (String, bool) {
        let rest = self.decoder.take().map(Decoder::finish).unwrap_or_default();
        let (mut new, is_stopped) = self.filter(&rest);
        if !is_stopped {
            let _ = self.stops.release(&mut |text: &str| {
                new.push_str(text);
                ControlFlow::Continue(())
            });
        }
        (new, is_stopped)
    }
}
