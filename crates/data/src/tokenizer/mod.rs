//! Text to tokens and back, on the `tokenizers` crate: every tokenizer is saved as a standard `tokenizer.json`.
//!
//! [`Tokenizer`] is the public thing; `make` builds the ones we define ourselves, `train` learns merges, `stream` decodes token by token.

mod make;
mod specials;
mod stream;
mod train;

use std::{collections::HashMap, fmt, io::Write, path::Path};

pub use specials::SpecialTokens;
pub use stream::Decoder;

use crate::{Error, Result};

/// Text to tokens and back.
#[derive(Clone)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    form: Form,
    specials: Specials,
    /// What each token is called in the file, by id.
    names: Vec<String>,
}

/// How tokens spell text. Known forms need no general machinery, and decode exactly.
#[derive(Clone, Debug)]
enum Form {
    /// Token = byte.
    Bytes,
    /// Token = character.
    Characters(HashMap<char, u32>),
    /// Token = so many bases, or a character.
    Kmers(usize, HashMap<String, u32>),
    /// Token = word between spaces.
    Words(HashMap<String, u32>),
    /// Byte-level BPE: tokens spell bytes.
    Merges,
    /// Whatever the file says.
    Other,
}

/// Tokens that stand for no text, by id.
#[derive(Clone, Debug, Default, PartialEq)]
struct Specials {
    padding: Option<u32>,
    begin: Option<u32>,
    end: Option<u32>,
    mask: Option<u32>,
    unknown: Option<u32>,
    /// Others that end a document, as chat models have them.
    other_ends: Vec<u32>,
}

/// A special token by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// Fills rows up to a common length.
    Padding,
    /// Starts a target.
    Begin,
    /// Ends a document or a target.
    End,
    /// Hides a token.
    Mask,
    /// Stands for a character without a token.
    Unknown,
}

impl Special {
    /// The names by which files know it, ours first.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Padding => &["<padding>", "<pad>", "[PAD]", "<|padding|>", "<|pad|>"],
            Self::Begin => &["<begin>", "<s>", "[CLS]", "<bos>", "<|begin_of_text|>"],
            Self::End => &["<end>", "</s>", "[SEP]", "<eos>", "<|endoftext|>", "<|end_of_text|>"],
            Self::Mask => &["<mask>", "[MASK]", "<|mask|>"],
            Self::Unknown => &["<unknown>", "<unk>", "[UNK]"],
        }
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    pub fn load(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).map_err(Error::file(path))?;
        Self::from_json(&bytes).map_err(|error| {
            Error::content(path.display().to_string(), format!("is not a tokenizer.json: {error}"))
        })
    }

    /// Writes a `tokenizer.json`.
    pub fn save(&self, path: &Path) -> Result<()> {
        let json = self.to_json()?;
        Ok(whatwhere_files::replace(path, |out| out.write_all(json.as_bytes()))?)
    }

    /// The tokens of a text. Names of special tokens in it are plain text.
    ///
    /// Fails on a character without a token, if there is none for unknown ones.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match &self.form {
            Form::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Form::Characters(ids) => text
                .chars()
                .map(|character| {
                    ids.get(&character)
                        .copied()
                        .or(self.specials.unknown)
                        .ok_or(Error::Character { character, vocabulary: self.vocabulary() })
                })
                .collect(),
            Form::Kmers(length, ids) => kmers(text, *length)
                .map(|word| {
                    let unknown = || Error::Character {
                        character: word.chars().next().unwrap_or_default(),
                        vocabulary: self.vocabulary(),
                    };
                    ids.get(word).copied().or(self.specials.unknown).ok_or_else(unknown)
                })
                .collect(),
            Form::Words(ids) => text
                .split_whitespace()
                .map(|word| {
                    ids.get(word).copied().or(self.specials.unknown).ok_or_else(|| {
                        Error::Tokenizer(format!(
                            "word {word:?} is not among the {} tokens",
                            self.vocabulary()
                        ))
                    })
                })
                .collect(),
            Form::Merges => {
                let encodings =
                    self.inner.encode_batch_fast(pieces(text), false).map_err(refused)?;
                Ok(encodings.iter().flat_map(|piece| piece.get_ids().iter().copied()).collect())
            }
            Form::Other => {
                let encoding = self.inner.encode_fast(text, false).map_err(refused)?;
                Ok(encoding.get_ids().to_vec())
            }
        }
    }

    /// [`Self::encode`] with what the file says stands around a text, such as `[CLS]` and `[SEP]`.
    pub fn encode_framed(&self, text: &str) -> Result<Vec<u32>> {
        match self.form {
            Form::Merges | Form::Other => {
                let encoding = self.inner.encode_fast(text, true).map_err(refused)?;
                Ok(encoding.get_ids().to_vec())
            }
            _ => self.encode(text),
        }
    }

    /// The text of tokens. Special tokens have none; bytes that are not UTF-8 become `�`.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.form {
            Form::Bytes | Form::Merges => {
                let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.bytes(token)).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Form::Characters(_) | Form::Kmers(..) => {
                tokens.iter().filter_map(|&token| self.spelling(token)).collect()
            }
            Form::Words(_) => {
                let words: Vec<&str> =
                    tokens.iter().filter_map(|&token| self.spelling(token)).collect();
                words.join(" ")
            }
            Form::Other => self.inner.decode(tokens, true).unwrap_or_default(),
        }
    }

    /// One token as it may be shown: special ones by name, others by their text, in which bytes that are only a part of a
    /// character stand as `<ED>`.
    pub fn token(&self, token: u32) -> String {
        match self.names.get(token as usize) {
            Some(name) if self.is_special(token) => name.clone(),
            Some(name) if matches!(self.form, Form::Other) => name.clone(),
            Some(_) if matches!(self.form, Form::Bytes | Form::Merges) => {
                let mut text = String::new();
                for chunk in self.bytes(token).utf8_chunks() {
                    text += chunk.valid();
                    text.extend(chunk.invalid().iter().map(|byte| format!("<{byte:02X}>")));
                }
                text
            }
            Some(_) => self.decode(&[token]),
            None => format!("<{token}?>"),
        }
    }

    /// Decodes token by token, holding back characters that are not complete.
    pub fn stream(&self) -> Decoder<'_> {
        Decoder::new(self)
    }

    /// [`Self::stream`] of what follows these tokens: with the blank between words, where words have one.
    pub fn stream_after(&self, tokens: &[u32]) -> Decoder<'_> {
        Decoder::after(self, tokens)
    }

    /// Whether words bring the blank before them, as those of byte-level BPE do: ` the` is one token.
    pub fn has_blanks_before_words(&self) -> bool {
        (0..self.vocabulary() as u32).filter(|token| !self.is_special(*token)).any(|token| {
            let text = self.token(token);
            text.strip_prefix(' ').is_some_and(|rest| rest.starts_with(char::is_alphabetic))
        })
    }

    /// The token that its file calls by this name.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// What its file calls a token.
    pub fn name(&self, token: u32) -> Option<&str> {
        self.names.get(token as usize).map(String::as_str)
    }

    /// Number of tokens, special ones included.
    pub fn vocabulary(&self) -> usize {
        self.names.len()
    }

    /// The token that fills rows.
    pub fn padding(&self) -> Option<u32> {
        self.specials.padding
    }

    /// The token that starts a target.
    pub fn begin(&self) -> Option<u32> {
        self.specials.begin
    }

    /// The token that ends a document or a target.
    pub fn end(&self) -> Option<u32> {
        self.specials.end
    }

    /// The token that hides another.
    pub fn mask(&self) -> Option<u32> {
        self.specials.mask
    }

    /// The token for characters without one.
    pub fn unknown(&self) -> Option<u32> {
        self.specials.unknown
    }

    /// Whether a token stands for no text.
    pub fn is_special(&self, token: u32) -> bool {
        let Specials { padding, begin, end, mask, unknown, .. } = self.specials;
        [padding, begin, end, mask, unknown].contains(&Some(token)) || self.ends(token)
    }

    /// The text of its `tokenizer.json`.
    pub fn to_json(&self) -> Result<String> {
        self.inner.to_string(true).map_err(refused)
    }

    /// Reads the text of a `tokenizer.json`.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        let mut inner = parsed(bytes)?;
        // A text that spells "<end>" must not end a document.
        inner.set_encode_special_tokens(true);
        inner.with_truncation(None).map_err(refused)?;
        inner.with_padding(None);
        let vocabulary = inner.get_vocab(true);
        let size = vocabulary.values().max().map_or(0, |&largest| largest as usize + 1);
        // Every token takes more than a byte of the file, so a larger id can only be a broken or hostile one.
        if size > bytes.len() {
            return Err(refused(format!(
                "it has a token with the id {}, too large for its {} bytes",
                size - 1,
                bytes.len()
            )));
        }
        let mut names = vec![String::new(); size];
        for (name, id) in vocabulary {
            names[id as usize] = name;
        }
        let find = |special: Special| special.names().iter().find_map(|n| inner.token_to_id(n));
        let specials = Specials {
            padding: find(Special::Padding),
            begin: find(Special::Begin),
            end: find(Special::End),
            mask: find(Special::Mask),
            unknown: find(Special::Unknown),
            other_ends: Vec::new(),
        };
        let form = make::form(&serde_json::from_slice(bytes).map_err(refused)?, &names);
        Ok(Self { inner, form, specials, names })
    }

    /// The same with these special tokens, added after the others where they are missing.
    fn with(&self, wanted: &[Special]) -> Result<Self> {
        let mut inner = self.inner.clone();
        let missing: Vec<tokenizers::AddedToken> = wanted
            .iter()
            .filter(|special| self.special(**special).is_none())
            .map(|special| tokenizers::AddedToken::from(special.names()[0], true))
            .collect();
        if missing.is_empty() {
            return Ok(self.clone());
        }
        inner.add_special_tokens(&missing);
        let all = Self::from_json(inner.to_string(false).map_err(refused)?.as_bytes())?;
        let Specials { padding, begin, end, mask, unknown, other_ends } = self.specials.clone();
        let ends = end.into_iter().chain(other_ends).collect();
        Ok(all.with_special_ids(&SpecialTokens { begin, ends, padding, mask, unknown }))
    }

    /// A special token by its role.
    fn special(&self, special: Special) -> Option<u32> {
        match special {
            Special::Padding => self.specials.padding,
            Special::Begin => self.specials.begin,
            Special::End => self.specials.end,
            Special::Mask => self.specials.mask,
            Special::Unknown => self.specials.unknown,
        }
    }

    /// What a token that is not special spells in its file.
    fn spelling(&self, token: u32) -> Option<&str> {
        self.names.get(token as usize).filter(|_| !self.is_special(token)).map(String::as_str)
    }

    /// The bytes of a token that spells bytes.
    fn bytes(&self, token: u32) -> Vec<u8> {
        let spelling = self.spelling(token).unwrap_or_default();
        // A token added by hand spells characters that stand for no byte: it is its own text.
        spelling
            .chars()
            .map(make::byte_of)
            .collect::<Option<Vec<u8>>>()
            .unwrap_or_else(|| spelling.as_bytes().to_vec())
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer of {} tokens", self.vocabulary())
    }
}

/// A `tokenizer.json` as the crate reads it. The crate panics on some broken files; to us they are refused files.
fn parsed(bytes: &[u8]) -> Result<tokenizers::Tokenizer> {
    std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes))
        .unwrap_or_else(|_| Err("it is broken in a way that its reader does not survive".into()))
        .map_err(refused)
}

fn refused(error: impl fmt::Display) -> Error {
    Error::Tokenizer(error.to_string())
}

/// Words of so many bases, and what stands between them character by character.
fn kmers(text: &str, length: usize) -> impl Iterator<Item = &str> {
    let is_base = |byte: &u8| b"ACGT".contains(byte);
    let mut rest = text;
    std::iter::from_fn(move || {
        let whole = rest.as_bytes().get(..length).is_some_and(|word| word.iter().all(is_base));
        let end = if whole { length } else { rest.chars().next()?.len_utf8() };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

const PIECE: usize = 1 << 16; // Bytes: enough to keep a core busy, little enough for its memory.

/// Cuts a text where byte-level BPE's own rule always cuts: at a single line end between two visible characters.
fn pieces(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut place = PIECE;
    while place + 1 < bytes.len() {
        let visible = |byte: u8| byte.is_ascii_graphic();
        if bytes[place] == b'\n' && visible(bytes[place - 1]) && visible(bytes[place + 1]) {
            pieces.push(&text[start..=place]);
            start = place + 1;
            place += PIECE;
        } else {
            place += 1;
        }
    }
    pieces.push(&text[start..]);
    pieces
}
