//! A run as a GGUF file for llama.cpp: the names of transformers by the second table, and what the converter would do.
//!
//! What is written is read as any other file before anything goes to the disk: it must mean the run's settings.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Map;
use whatwhere_training::{Folder, Run};
use whatwhere_transformer::{Family, ModelSettings};

use super::{
    meant,
    names::{ARCHITECTURES, Architecture, Done},
    said, vocabulary,
    write::{Info, Typed, write},
};
use crate::{
    Error,
    error::Result,
    export::{Exported, INSTEAD, Worded, must_be_new, same::differences_as, truly, worded},
    give::{Ours, Piece, plan},
    table::{at, fits},
    tensors::{Array, Entry, Kind, Tensors},
    turn::{Heads, Split, Turn},
};

/// How matrices are stored; vectors, norms and tables of places are always f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// As they are.
    #[default]
    F32,
    /// 16 bits.
    F16,
    /// 8 bits, 32 of them with a common step; rows that are no multiple of 32 stay f16.
    Q8_0,
}

impl Weights {
    /// llama.cpp's number for a file that is mostly of this kind.
    fn file_type(self) -> usize {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 7,
        }
    }

    /// The kind of one tensor.
    fn kind(self, name: &str, shape: &[usize]) -> Kind {
        let is_matrix = shape.len() == 2
            && !name.ends_with("_norm.weight")
            && !matches!(name, "position_embd.weight" | "token_types.weight");
        match self {
            _ if !is_matrix => Kind::F32,
            Self::F32 => Kind::F32,
            Self::Q8_0 if shape[1].is_multiple_of(Kind::Q8_0.block().0) => Kind::Q8_0,
            Self::F16 | Self::Q8_0 => Kind::F16,
        }
    }
}

/// Writes a run as a GGUF file, which must not be there yet.
pub fn to_gguf(run: &Path, out: &Path, weights: Weights) -> Result<Exported> {
    must_be_new(out, "file")?;
    let opened = Run::open(run)?;
    truly(write_run(run, &opened, out, weights), &opened)
}

fn write_run(run: &Path, opened: &Run, out: &Path, weights: Weights) -> Result<Exported> {
    let words = worded(opened)?;
    let architecture = architecture(&words)?;
    let views = opened.model().views();
    let ours = Ours::new(&views).widened(&words.settings)?;
    let pieces = plan(&words.names, &ours, &words.settings)?;
    let context = opened.imported.as_ref().and_then(|imported| imported.context);
    let context = context.unwrap_or(opened.settings.training.length);
    let said = said::said(architecture.name, &words.settings, context)?;
    let mut values: Vec<(String, Typed)> = vec![
        ("general.architecture".into(), architecture.name.into()),
        ("general.file_type".into(), weights.file_type().into()),
        ("general.quantization_version".into(), 2usize.into()),
    ];
    if let Some(name) = run.file_name() {
        values.push(("general.name".into(), Typed::Text(name.to_string_lossy().into_owned())));
    }
    let own = |(key, value): (String, Typed)| (format!("{}.{key}", architecture.name), value);
    values.extend(said.values.into_iter().map(own));
    let tokenizer = match opened.tokenizer() {
        Err(_) => None,
        Ok(_) => {
            let path = Folder::new(run).tokenizer();
            Some(fs::read_to_string(&path).map_err(Error::file(&path))?)
        }
    };
    values.extend(vocabulary::values(opened, tokenizer.as_deref(), words.settings.vocabulary)?);
    // Tensors that say something of the settings come first, and from no parameter.
    let mut made: Vec<Made> = Vec::new();
    for (name, list) in &said.tensors {
        made.push(Made { name: name.clone(), shape: vec![list.len()], of: Of::List(list) });
    }
    for piece in &pieces {
        made.push(renamed(architecture, piece)?);
    }
    let mut meant = words.settings.clone();
    if meant.tied && matches!(architecture.name, "olmo2" | "stablelm" | "phi2") {
        // llama.cpp's have an output of their own, and take none from the embeddings.
        meant.tied = false;
        let embeddings = made.iter().find(|made| made.name == "token_embd.weight").cloned();
        made.extend(embeddings.map(|made| Made { name: "output.weight".into(), ..made }));
    }
    check(out, &values, &made, &meant)?;
    let info = |made: &Made| {
        let kind = weights.kind(&made.name, &made.shape);
        Info { name: made.name.clone(), shape: made.shape.clone(), kind }
    };
    let infos: Vec<Info> = made.iter().map(info).collect();
    write(out, &values, &infos, |i| made[i].values(&ours))?;
    Ok(Exported { path: out.into(), family: architecture.name.into(), tensors: infos.len() })
}

/// The architecture of a family, if llama.cpp has it with these settings.
fn architecture(words: &Worded) -> Result<&'static Architecture> {
    let name = match words.family.as_str() {
        "mistral" => "llama",
        other => other,
    };
    let Some(found) = ARCHITECTURES.iter().find(|known| known.model_type == name) else {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
        let known = known.join(", ");
        return Err(Error::Refused(format!(
            "{name} is no architecture that is written as GGUF, which are {known}; {INSTEAD}"
        )));
    };
    if words.settings.family == Family::EncoderDecoder {
        let reason = "encoder-decoders are not written as GGUF";
        return Err(Error::Refused(format!("family = encoder_decoder: {reason}; {INSTEAD}")));
    }
    Ok(found)
}

/// A tensor under its name in GGUF.
#[derive(Clone)]
struct Made<'a> {
    name: String,
    shape: Vec<usize>,
    of: Of<'a>,
}

#[derive(Clone, Copy)]
enum Of<'a> {
    List(&'a [f32]),
    Piece(&'a Piece, Done),
}

impl Made<'_> {
    fn values(&self, ours: &Ours) -> Result<Vec<f32>> {
        match &self.of {
            Of::List(list) => Ok(list.to_vec()),
            Of::Piece(piece, done) => {
                let array = piece.make(ours)?;
                let found = format!("shape {:?}", array.shape);
                let done = do_again(*done, array, piece.heads);
                let done = done.ok_or_else(|| {
                    Error::tensor(&self.name, found, "rows of heads, or a matrix")
                })?;
                Ok(done.values)
            }
        }
    }
}

/// What the converter does to a tensor of transformers.
fn do_again(done: Done, array: Array, heads: Heads) -> Option<Array> {
    match done {
        Done::Nothing => Some(array),
        Done::Permuted => Turn::Unpermute.give(array, heads),
        Done::PlusOne => Turn::PlusOne.take(array, heads),
        Done::Transposed => Turn::Transpose.take(array, heads),
        Done::Thirds => {
            let parts = Split::ByHead.take(&array, 3, heads);
            parts.and_then(|parts| Split::ByThird.give(&parts, heads))
        }
    }
}

fn renamed<'a>(architecture: &Architecture, piece: &'a Piece) -> Result<Made<'a>> {
    let row = architecture.rows.iter().find(|(_, known, _)| fits(known, &piece.name));
    let Some((theirs, _, done)) = row else {
        let (name, of) = (&piece.name, architecture.name);
        return Err(Error::Refused(format!(
            "{name}: llama.cpp's {of} has no such tensor; {INSTEAD}"
        )));
    };
    let layer = piece.name.split('.').find_map(|part| part.parse().ok()).unwrap_or(0);
    let mut shape = piece.shape.clone();
    if *done == Done::Transposed {
        shape.reverse();
    }
    Ok(Made { name: at(theirs, layer), shape, of: Of::Piece(piece, *done) })
}

/// Reads what is about to be written: it must mean these settings.
fn check(
    path: &Path,
    values: &[(String, Typed)],
    made: &[Made],
    settings: &ModelSettings,
) -> Result<()> {
    let values: Map<String, serde_json::Value> =
        values.iter().map(|(key, value)| (key.clone(), value.json())).collect();
    let mut tensors = Tensors::default();
    let mut lists = BTreeMap::new();
    for Made { name, shape, of } in made {
        match of {
            Of::List(list) => {
                let array = Array { shape: shape.clone(), values: list.to_vec() };
                lists.insert(name.clone(), array);
            }
            Of::Piece(..) => {
                let entry = Entry { file: 0, kind: Kind::F32, shape: shape.clone(), start: 0 };
                tensors.entries.insert(name.clone(), entry);
            }
        }
    }
    let read = meant(path, &values, tensors, lists)?.settings;
    let mut own = settings.clone();
    own.epsilon = said::single(own.epsilon);
    match differences_as(&read, &own, &said::round)?.first() {
        None => Ok(()),
        Some(first) => {
            let name = &values["general.architecture"];
            let name = name.as_str().unwrap_or_default();
            Err(Error::Refused(format!("GGUF's {name} cannot say {first}; {INSTEAD}")))
        }
    }
}
