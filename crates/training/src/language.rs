//! Languages of a translation: tokens that an imported encoder-decoder puts around its source and at the start of its target.
//!
//! M2M-100 calls them `__en__`, mBART `en_XX`, NLLB `eng_Latn`; models of Marian with several targets read `>>fra<<` before
//! the source.

use whatwhere_data::Tokenizer;
use whatwhere_settings::Refuses;

use crate::{Error, Run, Translation};

/// What languages ask of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Languages {
    /// Takes the place of the source's language, or stands before the source.
    source: Option<u32>,
    /// Stands before the source although it is the target's.
    before: Option<u32>,
    /// Begins a target, in place of what begins any.
    pub(crate) begin: Option<u32>,
    /// The first token of a target.
    pub(crate) forced: Option<u32>,
}

/// How a token names a language; nothing if it does not.
fn code(name: &str) -> Option<&str> {
    let is_code = |text: &str| {
        (2..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let marked = |start: &str, end: &str| name.strip_prefix(start)?.strip_suffix(end);
    if let Some(code) = marked("__", "__").or(marked(">>", "<<")) {
        return Some(code).filter(|code| !code.is_empty());
    }
    let (language, place) = name.split_once('_')?;
    let is_place = matches!(place.len(), 2 | 4) && place.bytes().all(|b| b.is_ascii_alphabetic());
    (is_code(language) && is_place && place.starts_with(|c: char| c.is_ascii_uppercase()))
        .then_some(language)
}

/// All tokens that name languages.
fn all(tokenizer: &Tokenizer) -> Vec<(u32, &str)> {
    let tokens = 0..tokenizer.vocabulary() as u32;
    let named = tokens.filter_map(|token| Some((token, tokenizer.name(token)?)));
    named.filter(|(_, name)| code(name).is_some()).collect()
}

/// The token of a language by the name it has in the file, or by its code where only one token has that.
fn find(tokenizer: &Tokenizer, setting: &'static str, language: &str) -> Result<u32, Error> {
    let all = all(tokenizer);
    if let Some((token, _)) = all.iter().find(|(_, name)| *name == language) {
        return Ok(*token);
    }
    let mut fitting = all.iter().filter(|(_, name)| code(name) == Some(language));
    if let (Some((token, _)), None) = (fitting.next(), fitting.next()) {
        return Ok(*token);
    }
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    let reason = match names.len() {
        0 => "the tokenizer has no tokens that name languages; leave it out".into(),
        _ => format!("expected one of {}", names.join(", ")),
    };
    Err(Error::setting(setting, language, reason))
}

impl Run {
    /// What the languages of a translation ask for; without them what the model's own files say.
    pub(crate) fn languages(&self, translation: &Translation) -> Result<Languages, Error> {
        let specials = self.imported.as_ref().map(|imported| &imported.specials);
        let mut found = Languages {
            forced: specials.and_then(|specials| specials.forced_begin),
            ..Languages::default()
        };
        let tokenizer = self.tokenizer()?;
        let reads_target = |token: u32| tokenizer.name(token).is_some_and(|n| n.starts_with(">>"));
        if let Some(language) = &translation.from_language {
            let token = find(tokenizer, "from_language", language)?;
            if reads_target(token) {
                let reason = "this model is told the language of its target only; use to_language";
                return Err(Error::setting("from_language", language, reason));
            }
            found.source = Some(token);
        }
        if let Some(language) = &translation.to_language {
            let token = find(tokenizer, "to_language", language)?;
            let begins = specials.and_then(|specials| specials.decoder_start);
            let begins = begins.and_then(|begin| tokenizer.name(begin)).and_then(code);
            match begins {
                _ if reads_target(token) => found.before = Some(token),
                Some(_) => found.begin = Some(token),
                None => found.forced = Some(token),
            }
        }
        Ok(found)
    }

    /// The tokens of a source in its language: [`Self::encode_source`] with the language's token where the tokenizer puts one,
    /// or before it.
    pub(crate) fn encode_in(&self, text: &str, languages: Languages) -> Result<Vec<u32>, Error> {
        let mut tokens = self.encode_source(text)?;
        let tokenizer = self.tokenizer()?;
        if let Some(language) = languages.source {
            let is_language = |token: &&mut u32| tokenizer.name(**token).and_then(code).is_some();
            // What is put around a text stands within two tokens of its ends.
            let count = tokens.len();
            let ends = tokens.iter_mut().enumerate().filter(|(i, _)| *i == 0 || i + 2 >= count);
            match ends.map(|(_, token)| token).find(is_language) {
                Some(token) => *token = language,
                None => tokens.insert(0, language),
            }
        }
        tokens.splice(..0, languages.before);
        Ok(tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_the_shape_of_their_tokens() {
        for (name, expected) in [
            ("__en__", Some("en")),
            ("en_XX", Some("en")),
            ("eng_Latn", Some("eng")),
            (">>fra<<", Some("fra")),
            (">>cmn_Hans<<", Some("cmn_Hans")),
            ("</s>", None),
            ("snake_case", None),
            ("a_b", None),
            ("____", None),
        ] {
            assert_eq!(code(name), expected, "{name}");
        }
    }
}
