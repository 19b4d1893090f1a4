//! A grid: some settings take several values, and every combination of them is a cell.

use std::collections::BTreeSet;

use whatwhere_training::{RunSettings, full_key};
use whatwhere_transformer::Site;

use crate::Error;

/// A setting and the values it takes: `position=rotary,alibi,{kind="polar",delta="uniform"}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The setting's full key, such as `model.attention.position`.
    pub key: String,
    /// Its values, as `--set` takes them.
    pub values: Vec<String>,
}

/// One combination of values.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What people call it: its values, shortened.
    pub name: String,
    /// The name of its folder.
    pub folder: String,
    /// One value for each axis.
    pub values: Vec<String>,
    /// Its settings, or why they do not go together.
    pub settings: Result<RunSettings, String>,
}

impl Axis {
    /// Reads `key=value,value,…`, the key by its full or its short name: `position`, `lr`, `width`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::of_flag("--over", text)
    }

    /// [`Self::parse`] of what another flag was given.
    pub(crate) fn of_flag(flag: &str, text: &str) -> Result<Self, Error> {
        let wrong = |reason: &str| Error::Request(format!("{flag} {text}: {reason}"));
        let (key, values) = text
            .split_once('=')
            .ok_or_else(|| wrong("expected KEY=VALUE,VALUE,…, such as position=rotary,alibi"))?;
        let key = full_key(key.trim()).map_err(|reason| wrong(&reason))?;
        let values = split(values);
        if values.iter().any(String::is_empty) {
            return Err(wrong("a value is empty"));
        }
        let different: BTreeSet<&String> = values.iter().collect();
        if different.len() < values.len() {
            return Err(wrong("a value stands twice"));
        }
        Ok(Self { key, values })
    }
}

impl Cell {
    /// Whether another has the same settings, however they are written; not if either's do not go together.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (Ok(a), Ok(b)) = (&self.settings, &other.settings) else { return false };
        // Tables of attention are compared by what they say.
        let rest = |settings: &RunSettings| {
            let mut rest = settings.clone();
            let model = &mut rest.model;
            for table in [&mut model.attention, &mut model.encoder, &mut model.cross] {
                table.clear();
            }
            model.alternate.clear();
            rest
        };
        let sites = [
            (Site::Encoder, a.model.encoder_depth()),
            (Site::Decoder, a.model.decoder_depth()),
            (Site::Cross, a.model.decoder_depth()),
        ];
        let is_alike = |(site, depth): &(Site, usize)| {
            let of = |settings: &RunSettings, layer| settings.model.attention(*site, layer).ok();
            (0..*depth).all(|layer| of(a, layer) == of(b, layer))
        };
        rest(a) == rest(b) && sites.iter().all(is_alike)
    }
}

/// Every cell of a grid over settings in TOML.
///
/// Values that cannot be read are an error, with the valid ones in its words; values that can be read but do not go
/// together make a cell that says so.
pub fn cells(base: &str, changes: &[String], axes: &[Axis]) -> Result<Vec<Cell>, Error> {
    let mut combinations: Vec<Vec<&String>> = vec![Vec::new()];
    for axis in axes {
        combinations = combinations
            .into_iter()
            .flat_map(|head| {
                axis.values.iter().map(move |value| [head.as_slice(), &[value]].concat())
            })
            .collect();
    }
    let mut taken = BTreeSet::new();
    let mut cells = Vec::with_capacity(combinations.len());
    for values in combinations {
        let mut changes = changes.to_vec();
        changes
            .extend(axes.iter().zip(&values).map(|(axis, value)| format!("{}={value}", axis.key)));
        let settings = match RunSettings::read(base, &changes) {
            Ok(settings) => Ok(settings),
            Err(e) if is_unreadable(&e) => return Err(e.into()),
            Err(e) => Err(e.to_string()),
        };
        let name = name(axes, &values);
        let mut folder = slug(&name);
        while !taken.insert(folder.clone()) {
            folder.push('+');
        }
        let values = values.into_iter().cloned().collect();
        cells.push(Cell { name, folder, values, settings });
    }
    Ok(cells)
}

/// Whether settings were not understood, instead of understood and refused.
fn is_unreadable(error: &whatwhere_training::Error) -> bool {
    use whatwhere_settings::Refusal::Unreadable;
    use whatwhere_training::Error as Training;
    use whatwhere_transformer::Error as Model;
    matches!(
        error,
        Training::Refused(Unreadable(_)) | Training::Model(Model::Refused(Unreadable(_)))
    )
}

/// Splits at commas outside of brackets and quotes.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quote) = (0_usize, None);
    for letter in text.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if open == letter => quote = None,
            ('[' | '{', None) => depth += 1,
            (']' | '}', None) => depth = depth.saturating_sub(1),
            (',', None) if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("never empty").push(letter);
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// A cell's name: names alone where they say all, else with the last part of the key.
fn name(axes: &[Axis], values: &[&String]) -> String {
    if values.is_empty() {
        return "the settings".into();
    }
    let parts: Vec<String> = axes
        .iter()
        .zip(values)
        .map(|(axis, value)| {
            let short = shorten(value);
            if short.starts_with(|first: char| first.is_ascii_alphabetic())
                && !["true", "false"].contains(&short.as_str())
            {
                return short;
            }
            let key = axis.key.rsplit('.').next().unwrap_or(&axis.key);
            format!("{key} {short}")
        })
        .collect();
    parts.join(", ")
}

/// `{kind="rotary",base=500}` to `rotary base=500`, and `["alibi","rotary"]` to `alibi+rotary`.
fn shorten(value: &str) -> String {
    let parts = match inside(value, '{', '}') {
        None => return nested(value),
        Some(fields) => split(fields),
    };
    let parts: Vec<String> = parts.iter().map(|field| shorten_field(field)).collect();
    parts.join(" ")
}

/// A value inside another: `window(left=127)`.
fn nested(value: &str) -> String {
    let value = value.trim();
    if let Some(items) = inside(value, '[', ']') {
        let items: Vec<String> = split(items).iter().map(|item| nested(item)).collect();
        return items.join("+");
    }
    match inside(value, '{', '}') {
        None => value.trim_matches(['"', '\'']).to_owned(),
        Some(fields) => {
            let fields: Vec<String> =
                split(fields).iter().map(|field| shorten_field(field)).collect();
            match fields.as_slice() {
                [only] => only.clone(),
                [first, rest @ ..] => format!("{first}({})", rest.join(" ")),
                [] => String::new(),
            }
        }
    }
}

fn shorten_field(field: &str) -> String {
    match field.split_once('=') {
        Some((key, value)) if key.trim() == "kind" => nested(value),
        Some((key, value)) => format!("{}={}", key.trim(), nested(value)),
        None => field.to_owned(),
    }
}

fn inside(text: &str, open: char, close: char) -> Option<&str> {
    text.trim().strip_prefix(open)?.strip_suffix(close)
}

fn slug(name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_alphanumeric() || c == '.' { c } else { '-' });
    let text: String = letters.collect();
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    let mut text = parts.join("-");
    text.truncate(text.char_indices().nth(80).map_or(text.len(), |(at, _)| at));
    if text.is_empty() { "cell".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_split_outside_of_brackets() {
        let axis =
            Axis::parse(r#"position=none,{kind="polar",delta="uniform"},["alibi","rotary"]"#)
                .unwrap();
        assert_eq!(axis.key, "model.attention.position");
        assert_eq!(axis.values.len(), 3);
        let cells = cells("", &[], &[axis]).unwrap();
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["none", "polar delta=uniform", "alibi+rotary"]);
        assert_eq!(cells[1].folder, "polar-delta-uniform");
        let deep = r#"{heads=4,pattern={kind="or",of=[{kind="window",left=3},"global"]}}"#;
        assert_eq!(shorten(deep), "heads=4 pattern=or(of=window(left=3)+global)");
    }

    #[test]
    fn a_grid_has_every_combination() {
        let axes = ["position=none,rotary", "lr=1e-3,1e-4", "model.width=64"]
            .map(|text| Axis::parse(text).unwrap());
        let cells = cells("", &[], &axes).unwrap();
        let names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "none, lr 1e-3, width 64",
                "none, lr 1e-4, width 64",
                "rotary, lr 1e-3, width 64",
                "rotary, lr 1e-4, width 64"
            ]
        );
        assert_eq!(cells[3].settings.as_ref().unwrap().training.lr, 1e-4);
    }

    #[test]
    fn unknown_values_are_refused_and_misfits_are_cells() {
        let parse = |text| Axis::parse(text).map_err(|e| e.to_string());
        for (text, expected) in [
            ("position", "expected KEY=VALUE"),
            ("postion=rotary", "no setting is called postion; there are"),
            ("position=rotary,,alibi", "a value is empty"),
            ("position=rotary,rotary", "a value stands twice"),
            ("dropout=0,0.1", "say which: model.dropout, model.attention.dropout"),
        ] {
            assert!(parse(text).unwrap_err().contains(expected), "{text}");
        }
        let unknown = cells("", &[], &[parse("position=rotary,rotry").unwrap()]).unwrap_err();
        assert!(
            unknown.to_string().contains("unknown variant `rotry`, expected one of `none`"),
            "{unknown}"
        );
        let cells = cells("", &[], &[parse("heads=4,7").unwrap()]).unwrap();
        assert!(cells[0].settings.is_ok());
        assert!(cells[1].settings.as_ref().unwrap_err().contains("does not divide"));
    }
}
