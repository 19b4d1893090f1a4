//! What requests for text have in common: how it is chosen, and where it ends.

use std::{
    collections::{BTreeMap, hash_map::RandomState},
    hash::BuildHasher,
};

use schemars::JsonSchema;
use serde::Deserialize;
use whatwhere_random::Random;
use whatwhere_training::Sampling;

use crate::{
    Refusal, Served, Shared,
    engine::{Choosing, Request},
};

/// Texts for one prompt at the most.
const CHOICES: u32 = 8;
/// Strings that end a text at the most, and bytes of one.
const STOPS: (usize, usize) = (16, 1024);
/// Likeliest tokens that are told at the most.
pub(crate) const TOLD: u32 = 20;

/// How text is chosen, and where it ends.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Asked {
    /// Scores are divided by it, 0 to 2; 0 always takes the likeliest token. Default 1.
    #[schemars(range(min = 0.0, max = 2.0))]
    temperature: Option<f32>,
    /// Only the likeliest tokens that together have this probability, above 0 and at most 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    top_p: Option<f32>,
    /// Only so many of the likeliest tokens; 0 or -1 takes all.
    #[schemars(range(min = -1))]
    top_k: Option<i64>,
    /// Only tokens with this share of the likeliest one's probability, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    min_p: Option<f32>,
    /// Above 1, what was written becomes less likely.
    repetition_penalty: Option<f32>,
    /// Taken from the score of every token that was written, -2 to 2.
    #[schemars(range(min = -2.0, max = 2.0))]
    presence_penalty: Option<f32>,
    /// The same for every time that it was written, -2 to 2.
    #[schemars(range(min = -2.0, max = 2.0))]
    frequency_penalty: Option<f32>,
    /// Added to scores, -100 to 100, by the number of the token.
    logit_bias: Option<BTreeMap<String, f32>>,
    /// Seed of the draws; the same seed gives the same bytes.
    pub(crate) seed: Option<i64>,
    /// How many texts to write, 1 to 8.
    #[schemars(range(min = 1, max = 8))]
    n: Option<u32>,
    /// Strings that end the text; they are not part of it.
    stop: Option<OneOrMany>,
    /// Whether a token that ends a text is one like any other.
    ignore_eos: Option<bool>,
    /// Whether to send the text as it is written.
    pub(crate) stream: Option<bool>,
    /// What else is sent.
    pub(crate) stream_options: Option<StreamOptions>,
}

/// What else a stream has.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct StreamOptions {
    /// Whether its last event says how many tokens were read and written.
    pub(crate) include_usage: Option<bool>,
}

/// One string or several.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub(crate) enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// What is told of tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Telling {
    /// How many of the likeliest, if anything.
    pub(crate) count: Option<u32>,
    pub(crate) of_prompt: bool,
}

impl Asked {
    /// Strings that end the text.
    pub(crate) fn stops(&self) -> Result<Vec<String>, Refusal> {
        let stops = self.stop.clone().map(OneOrMany::into_vec).unwrap_or_default();
        let (most, longest) = STOPS;
        if stops.len() > most || stops.iter().any(|stop| stop.len() > longest) {
            let message =
                format!("stop: expected at most {most} strings of at most {longest} bytes");
            return Err(Refusal::invalid("stop", message));
        }
        Ok(stops)
    }

    /// Whether events are asked for, and whether they end with a count of tokens.
    pub(crate) fn streams(&self) -> (bool, bool) {
        let usage = self.stream_options.as_ref().and_then(|options| options.include_usage);
        (self.stream == Some(true), usage == Some(true))
    }

    /// The request for texts after one prompt.
    pub(crate) fn request(
        &self,
        shared: &Shared,
        served: &Served,
        prompt: Vec<u32>,
        limit: Limit,
        telling: Telling,
    ) -> Result<Request, Refusal> {
        let options = &shared.options;
        let most = CHOICES.min(options.slots as u32);
        let texts = self.n.unwrap_or(1);
        if !(1..=most).contains(&texts) {
            return Err(Refusal::invalid("n", format!("n = {texts}, expected 1 to {most}")));
        }
        if telling.count.is_some_and(|count| count > TOLD) {
            let found = telling.count.unwrap_or_default();
            let name = limit.told;
            let message = format!("{name} = {found}, expected 0 to {TOLD}");
            return Err(Refusal::invalid(name, message));
        }
        check_prompt(served, limit.prompt, &prompt)?;
        let limit = limit.tokens(served, prompt.len())?;
        // Whoever gives no seed gets another text each time.
        let seed = self.seed.map_or_else(|| RandomState::new().hash_one(0), |seed| seed as u64);
        let other = |text| match text {
            0 => seed,
            text => Random::new(&[seed, u64::from(text)]).bits(),
        };
        Ok(Request {
            prompt,
            seeds: (0..texts).map(other).collect(),
            choosing: self.choosing(served)?,
            limit,
            ignores_end: self.ignore_eos == Some(true),
            told: telling.count.map(|count| count as usize),
            tells_prompt: telling.of_prompt,
            deadline: shared.deadline(),
        })
    }

    fn choosing(&self, served: &Served) -> Result<Choosing, Refusal> {
        let within = |name: &str, value: Option<f32>, default: f32, least: f32, most: f32| {
            let value = value.unwrap_or(default);
            match (least..=most).contains(&value) {
                true => Ok(value),
                false => Err(Refusal::invalid(
                    name,
                    format!("{name} = {value}, expected {least} to {most}"),
                )),
            }
        };
        let top_p = self.top_p.unwrap_or(1.0);
        if !(top_p > 0.0 && top_p <= 1.0) {
            let message = format!("top_p = {top_p}, expected above 0 and at most 1");
            return Err(Refusal::invalid("top_p", message));
        }
        let top_k = self.top_k.unwrap_or(0);
        if top_k < -1 {
            let message = format!("top_k = {top_k}, expected -1 or more");
            return Err(Refusal::invalid("top_k", message));
        }
        let sampling = Sampling {
            temperature: within("temperature", self.temperature, 1.0, 0.0, 2.0)?,
            top_p,
            min_p: within("min_p", self.min_p, 0.0, 0.0, 1.0)?,
            repetition_penalty: within(
                "repetition_penalty",
                self.repetition_penalty,
                1.0,
                0.01,
                100.0,
            )?,
            top_k: top_k.max(0) as usize,
            seed: 0,
        };
        let vocabulary = served.run.settings.model.vocabulary;
        let mut bias = Vec::new();
        for (token, value) in self.logit_bias.iter().flatten() {
            let id = token.parse().ok().filter(|id: &u32| (*id as usize) < vocabulary);
            let Some(id) = id.filter(|_| (-100.0..=100.0).contains(value)) else {
                let message = format!(
                    "logit_bias: found {token:?}: {value}, expected the number of a token, 0 to {}, and -100 to 100",
                    vocabulary.saturating_sub(1)
                );
                return Err(Refusal::invalid("logit_bias", message));
            };
            bias.push((id, *value));
        }
        Ok(Choosing {
            sampling,
            bias,
            presence_penalty: within("presence_penalty", self.presence_penalty, 0.0, -2.0, 2.0)?,
            frequency_penalty: within("frequency_penalty", self.frequency_penalty, 0.0, -2.0, 2.0)?,
        })
    }
}

/// How many tokens may be written, and what the fields are called that say so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// As it was asked for.
    pub(crate) asked: Option<u32>,
    /// Where it was not; as many as there is room for if absent.
    pub(crate) default: Option<u32>,
    /// The field that says so.
    pub(crate) name: &'static str,
    /// The field of the prompt.
    pub(crate) prompt: &'static str,
    /// The field that says how many likely tokens are told.
    pub(crate) told: &'static str,
}

impl Limit {
    /// Tokens at the most after a prompt of so many.
    fn tokens(self, served: &Served, prompt: usize) -> Result<usize, Refusal> {
        let (context, name) = (served.context, self.name);
        if prompt > context {
            return Err(Refusal::too_long(
                self.prompt,
                format!("the prompt has {prompt} tokens, the model reads {context} at the most"),
            ));
        }
        let rest = context - prompt;
        match self.asked.map(|asked| asked as usize) {
            Some(asked) if asked > rest => Err(Refusal::too_long(
                name,
                format!(
                    "{name} = {asked} after a prompt of {prompt} tokens makes {}, the model reads {context} at the most",
                    prompt + asked
                ),
            )),
            Some(asked) => Ok(asked),
            None => Ok(self.default.map_or(rest, |default| rest.min(default as usize))),
        }
    }
}

/// Refuses an empty prompt and tokens that the model does not know.
fn check_prompt(served: &Served, name: &str, prompt: &[u32]) -> Result<(), Refusal> {
    let vocabulary = served.run.settings.model.vocabulary;
    if prompt.is_empty() {
        let message = "the prompt has no tokens, expected at least 1";
        return Err(Refusal::invalid(name, message));
    }
    match prompt.iter().find(|token| **token as usize >= vocabulary) {
        None => Ok(()),
        Some(token) => Err(Refusal::invalid(
            name,
            format!(
                "token {token} is outside the vocabulary, expected 0 to {}",
                vocabulary.saturating_sub(1)
            ),
        )),
    }
}
