//! A model held against itself: what must not change its logits, whatever they are.

use serde::Serialize;
use toml::Value;
use whatwhere_attention::{Position, Scaling};
use whatwhere_transformer::{Family, Model, ModelSettings, Sequences, Site};

use super::{
    distance, logits,
    tables::{tables, written_out},
};
use crate::error::Result;

/// Tokens of the sequence that is read if none are given.
const LENGTH: usize = 24;

/// One thing that must not change logits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// Its name: `cached`, `causal`, `shifted`, `padded`.
    pub name: &'static str,
    /// What was compared.
    pub compared: &'static str,
    /// The largest difference of the logits, of the largest; nothing if it has no meaning for this model.
    pub distance: Option<f64>,
    /// Whether that is rounding.
    pub agrees: bool,
    /// Why it has no meaning, or what a difference means.
    pub reason: String,
}

/// Holds a model against itself on these tokens, or on some of its vocabulary.
pub fn examine_itself(model: &Model, ids: Option<&[u32]>, tolerance: f64) -> Result<Vec<Check>> {
    let settings = model.settings();
    let places = settings.longest().unwrap_or(usize::MAX).min(encoder_longest(settings));
    let length = LENGTH.min(places).max(1);
    let vocabulary = settings.vocabulary.max(1) as u64;
    let some = |from: u64| (0..length as u64).map(move |i| ((from + i * 7919) % vocabulary) as u32);
    let ids: Vec<u32> = ids.map_or_else(|| some(13).collect(), <[u32]>::to_vec);
    let source: Option<Vec<u32>> =
        (settings.family == Family::EncoderDecoder).then(|| some(31).collect());
    let itself = Itself { model, ids, source, tolerance };
    Ok(vec![itself.cached()?, itself.causal()?, itself.shifted()?, itself.padded()?])
}

fn encoder_longest(settings: &ModelSettings) -> usize {
    let Ok(own) = settings.attention(Site::Encoder, 0) else { return usize::MAX };
    if settings.encoder_depth() == 0 {
        return usize::MAX;
    }
    own.position.iter().filter_map(|position| position.limit()).min().unwrap_or(usize::MAX)
}

/// The length up to which an encoding whose angles follow the length is as trained.
fn trained_length(position: &Position) -> Option<usize> {
    match position {
        Position::Rotary(rotary) if rotary.scaling.follows_length() => match rotary.scaling {
            Scaling::DynamicNtk { length, .. } | Scaling::Longrope { length, .. } => Some(length),
            _ => None,
        },
        _ => None,
    }
}

struct Itself<'a> {
    model: &'a Model,
    ids: Vec<u32>,
    source: Option<Vec<u32>>,
    tolerance: f64,
}

impl Itself<'_> {
    fn check(
        &self,
        name: &'static str,
        compared: &'static str,
        found: std::result::Result<f64, &str>,
        meaning: &str,
    ) -> Check {
        let agrees = found.is_err() || found.is_ok_and(|far| far <= self.tolerance);
        let reason = match found {
            Err(reason) => reason.into(),
            Ok(_) if agrees => String::new(),
            Ok(_) => meaning.into(),
        };
        Check { name, compared, distance: found.ok(), agrees, reason }
    }

    fn whole(&self, model: &Model, ids: &[u32]) -> Result<Vec<f32>> {
        let source = self.source.as_ref().map(|source| Sequences::from_rows(&[source]));
        logits(model, source.as_ref(), &Sequences::from_rows(&[ids]))
    }

    /// Token by token and at once.
    fn cached(&self) -> Result<Check> {
        let (name, compared) = ("cached", "token by token and all at once");
        if self.model.family() == Family::Encoder {
            return Ok(self.check(name, compared, Err("an encoder keeps no cache"), ""));
        }
        let meaning = "the cache, or where new tokens are placed after it, is wrong";
        let far = self.stepped_and_whole(&self.ids)?;
        let Some(trained) = self.trained().filter(|_| far > self.tolerance) else {
            return Ok(self.check(name, compared, Ok(far), meaning));
        };
        // Up to there the angles are those of every length.
        let within = &self.ids[..trained.clamp(1, self.ids.len())];
        let near = self.stepped_and_whole(within)?;
        let mut check = self.check(name, compared, Ok(near), meaning);
        if check.agrees {
            check.reason = format!(
                "of the first {}: its angles follow the length, and beyond {trained} tokens those read before keep what they had",
                within.len()
            );
        }
        Ok(check)
    }

    /// How far logits token by token are from those of all at once.
    fn stepped_and_whole(&self, ids: &[u32]) -> Result<f64> {
        let whole = self.whole(self.model, ids)?;
        let source = self.source.as_ref().map(|source| Sequences::from_rows(&[source]));
        let mut state = self.model.start(source.as_ref())?;
        let mut stepped = Vec::with_capacity(whole.len());
        for id in ids {
            let step = self.model.step(&Sequences::from_rows(&[[*id]]), &mut state)?;
            stepped.extend(step.into_data().try_into_vec::<f32>().expect("f32"));
        }
        Ok(distance(&[stepped], &[whole]))
    }

    /// The length up to which angles that follow the length are as trained, where there are any.
    fn trained(&self) -> Option<usize> {
        let settings = self.model.settings();
        let layers = (0..settings.decoder_depth()).filter_map(|layer| {
            let own = settings.attention(Site::Decoder, layer).ok()?;
            own.position.iter().filter_map(trained_length).min()
        });
        layers.min()
    }

    /// Whether what is computed of a token depends on how long the sequence is.
    fn follows_length(&self) -> bool {
        let settings = self.model.settings();
        let layers = 0..settings.decoder_depth();
        let own = layers.filter_map(|layer| settings.attention(Site::Decoder, layer).ok());
        own.into_iter().any(|own| !own.can_roll_back())
    }

    /// Later tokens and earlier logits.
    fn causal(&self) -> Result<Check> {
        let (name, compared) = ("causal", "logits before a token, whatever that token is");
        if self.model.family() == Family::Encoder {
            return Ok(self.check(name, compared, Err("an encoder sees later tokens"), ""));
        }
        if self.ids.len() < 2 {
            return Ok(self.check(name, compared, Err("there is one token only"), ""));
        }
        let mut other = self.ids.clone();
        if let Some(last) = other.last_mut() {
            *last = (*last + 1) % self.model.settings().vocabulary.max(1) as u32;
        }
        let before = |all: Vec<f32>| {
            let count = all.len() / self.ids.len() * (self.ids.len() - 1);
            all[..count].to_vec()
        };
        let found = before(self.whole(self.model, &self.ids)?);
        let want = before(self.whole(self.model, &other)?);
        let meaning = "causal alignment: a query sees a key after its own place";
        Ok(self.check(name, compared, Ok(distance(&[found], &[want])), meaning))
    }

    /// The same text at other places.
    fn shifted(&self) -> Result<Check> {
        let (name, compared) =
            ("shifted", "the same tokens at the start and after others that they do not see");
        let refused = |reason| Ok(self.check(name, compared, Err(reason), ""));
        if self.source.is_some() {
            return refused("an encoder-decoder is not shifted");
        }
        let settings = self.model.settings();
        if settings.recurrent.is_some() {
            return refused("a recurrence sees all that stood before");
        }
        let site = if self.model.decoder.is_some() { Site::Decoder } else { Site::Encoder };
        for layer in 0..settings.layers {
            let own = settings.attention(site, layer)?;
            if !own.position.iter().all(|position| position.is_relative()) {
                return refused("its encoding knows places, not only distances");
            }
            if own.position.iter().any(|position| position.follows_length()) {
                return refused("its angles follow the length");
            }
            if !own.mixing.has_scores() {
                return refused("its mixing sums over all keys");
            }
        }
        let Some(mut apart) = written_out(settings) else {
            return refused("no settings to change");
        };
        for table in tables(&mut apart) {
            if let Some(pattern) = table.remove("pattern") {
                let both = Value::Array(vec![pattern, "document".into()]);
                let and = [("kind".to_owned(), "and".into()), ("of".to_owned(), both)];
                table.insert("pattern".into(), Value::Table(and.into_iter().collect()));
            }
        }
        apart.cross.remove("pattern");
        let Ok(model) = self.model.with_settings(&apart) else {
            return refused("its pattern does not go together with documents");
        };
        let shift = 5.min(self.ids.len());
        let mut sequences = Sequences::from_rows(&[[&self.ids[..shift], &self.ids[..]].concat()]);
        sequences.documents = Some(vec![vec![0, shift]]);
        let all = logits(&model, None, &sequences)?;
        let vocabulary = all.len() / (shift + self.ids.len());
        let found = all[shift * vocabulary..].to_vec();
        let want = self.whole(self.model, &self.ids)?;
        let meaning = "scores depend on places, not on distances only";
        Ok(self.check(name, compared, Ok(distance(&[found], &[want])), meaning))
    }

    /// Alone, and in a batch with a longer one.
    fn padded(&self) -> Result<Check> {
        let (name, compared) = ("padded", "alone and padded beside a longer sequence");
        if self.follows_length() {
            return Ok(self.check(name, compared, Err("its angles follow the length"), ""));
        }
        let want = self.whole(self.model, &self.ids)?;
        let vocabulary = want.len() / self.ids.len();
        let longest = self.model.settings().longest().unwrap_or(usize::MAX);
        let longest = longest.min(encoder_longest(self.model.settings()));
        let more = 3.min(longest.saturating_sub(self.ids.len()));
        let pad = |row: &[u32]| [row, &vec![0; more][..]].concat();
        let long = |row: &[u32]| [row, &row[..more.min(row.len())]].concat();
        let rows = |row: &[u32]| Sequences::from_rows(&[pad(row), long(row)]);
        if more == 0
            || self.ids.len() < more
            || self.source.as_ref().is_some_and(|s| s.len() < more)
        {
            return Ok(self.check(name, compared, Err("there is no room for padding"), ""));
        }
        let lengths = |count: usize| Some(vec![count, count + more]);
        let all = match &self.source {
            None => {
                let mut tokens = rows(&self.ids);
                tokens.lengths = lengths(self.ids.len());
                logits(self.model, None, &tokens)?
            }
            Some(source) => {
                let mut sources = rows(source);
                sources.lengths = lengths(source.len());
                logits(self.model, Some(&sources), &rows(&self.ids))?
            }
        };
        let found = all[..self.ids.len() * vocabulary].to_vec();
        let meaning = "padding is seen: its mask is lost, or stands elsewhere";
        Ok(self.check(name, compared, Ok(distance(&[found], &[want])), meaning))
    }
}
