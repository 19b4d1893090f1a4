//! What the source says of settings, for programs that show it: docs are written once, where the settings are.
//!
//! [`About::of_file`] reads an axis file, [`About::of_struct`] a struct of settings, [`About::of_enum`] the choices of an
//! enum. The reader knows lines as rustfmt leaves them, not Rust: items start at the margin, members are indented once.

use serde::Serialize;

/// A choice, or a struct of settings, in the words of its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct About {
    /// Its name in settings.
    pub name: String,
    /// What it is, line by line.
    pub summary: Vec<String>,
    /// What can be set.
    pub fields: Vec<Field>,
}

/// One setting.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its name in settings.
    pub name: String,
    /// Its type in Rust, without `Option` and `Vec`.
    #[serde(skip)]
    pub kind: String,
    /// Unit, default and effect.
    pub doc: String,
    /// What it chooses among, where its type is an enum of the same source.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<About>,
}

impl About {
    /// A file with one choice: its `//!` head, and the fields of its first struct.
    pub fn of_file(name: &str, source: &str) -> Self {
        let summary = head(source.lines());
        let first = source.lines().find_map(|line| line.strip_prefix("pub struct "));
        let first = first.and_then(|line| line.split([' ', '<', '(', ';']).next());
        let settings = first.and_then(|first| Self::of_struct(source, first)).unwrap_or_default();
        Self { name: name.into(), summary, ..settings }
    }

    /// A struct by its name in Rust: its docs and those of its fields.
    pub fn of_struct(source: &str, name: &str) -> Option<Self> {
        let Item { docs, body, .. } = Item::find(source, "pub struct", name)?;
        let fields = members(&body, 4).into_iter().filter_map(|member| field(source, member));
        Some(Self { name: name.into(), summary: docs, fields: fields.collect() })
    }

    /// As [`About::of_struct`], under the `//!` head of the file that the struct stands in; `source` may join files.
    pub fn under_head(source: &str, name: &str) -> Option<Self> {
        let mut about = Self::of_struct(source, name)?;
        let place = Item::find(source, "pub struct", name)?.line;
        let lines: Vec<&str> = source.lines().take(place).collect();
        let is_head = |line: &&str| line.starts_with("//!");
        let end = lines.iter().rposition(is_head).map_or(0, |last| last + 1);
        let start = lines[..end].iter().rposition(|line| !is_head(line)).map_or(0, |at| at + 1);
        let mut summary = head(lines[start..end].iter().copied());
        summary.append(&mut about.summary);
        Some(Self { summary, ..about })
    }

    /// The choices of an enum by its name in Rust; empty if there is no such enum.
    /// What a choice holds is a struct of the same source, or fields of its own.
    pub fn of_enum(source: &str, name: &str) -> Vec<Self> {
        let Some(Item { body, lowercase, .. }) = Item::find(source, "pub enum", name) else {
            return Vec::new();
        };
        let choice = |member: Member| {
            let variant = member.head.split([',', '(', ' ']).next().unwrap_or_default();
            let name = if lowercase { variant.to_lowercase() } else { snake_case(variant) };
            let held = member.head.split_once('(').map(|(_, held)| held.trim_end_matches("),"));
            if let Some(about) = held.and_then(|held| Self::of_struct(source, held)) {
                return Self { name, ..about };
            }
            let fields = members(&member.body, 8).into_iter();
            let fields = fields.filter_map(|member| field(source, member)).collect();
            Self { name, summary: member.docs, fields }
        };
        members(&body, 4).into_iter().map(choice).collect()
    }
}

/// An item at the margin.
struct Item<'a> {
    line: usize,
    docs: Vec<String>,
    lowercase: bool,
    body: Vec<&'a str>,
}

impl<'a> Item<'a> {
    fn find(source: &'a str, keyword: &str, name: &str) -> Option<Self> {
        let opening = format!("{keyword} {name} {{");
        let lines: Vec<&str> = source.lines().collect();
        let line = lines.iter().position(|line| line.starts_with(&opening))?;
        let above = lines[..line].iter().rev();
        let above = above.take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let mut above: Vec<&str> = above.copied().collect();
        above.reverse();
        let body = match lines[line].ends_with('}') {
            true => Vec::new(),
            false => lines[line + 1..].iter().take_while(|l| **l != "}").copied().collect(),
        };
        Some(Self {
            line,
            docs: above.iter().filter_map(|line| doc(line)).collect(),
            lowercase: above.iter().any(|line| line.contains("rename_all = \"lowercase\"")),
            body,
        })
    }
}

/// A field or a variant.
#[derive(Default)]
struct Member<'a> {
    docs: Vec<String>,
    head: &'a str,
    body: Vec<&'a str>,
}

/// The members at an indent. Deeper lines belong to the member above them; attributes are left out.
fn members<'a>(lines: &[&'a str], indent: usize) -> Vec<Member<'a>> {
    let mut members: Vec<Member> = Vec::new();
    let mut docs = Vec::new();
    for line in lines {
        let text = line.trim_start();
        if line.len() - text.len() > indent {
            if let Some(member) = members.last_mut() {
                member.body.push(line);
            }
        } else if text.starts_with("///") {
            docs.extend(doc(text));
        } else if text.starts_with(|first: char| first.is_alphabetic()) {
            members.push(Member { docs: std::mem::take(&mut docs), head: text, body: Vec::new() });
        }
    }
    members
}

/// A setting, unless it is private or no field at all.
fn field(source: &str, member: Member) -> Option<Field> {
    let (name, kind) = member.head.trim_end_matches(',').split_once(": ")?;
    let mut kind = kind;
    while let Some(inner) = kind.strip_prefix("Option<").or(kind.strip_prefix("Vec<")) {
        kind = inner.trim_end_matches('>');
    }
    Some(Field {
        name: name.trim_start_matches("pub ").into(),
        kind: kind.into(),
        doc: member.docs.join(" "),
        choices: About::of_enum(source, kind),
    })
}

fn head<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    lines.take_while(|line| line.starts_with("//!")).filter_map(doc).collect()
}

/// The words of a line of docs, links without their brackets; nothing for other lines and empty ones.
fn doc(line: &str) -> Option<String> {
    let words = line.strip_prefix("///").or(line.strip_prefix("//!"))?.trim();
    (!words.is_empty()).then(|| words.replace("[`", "`").replace("`]", "`"))
}

/// As serde's `rename_all = "snake_case"`.
fn snake_case(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mixing, Pattern, Position, Scaling, Score};

    const SOURCE: &str = "\
//! Head of the first.

/// Not meant.
pub struct Other {}
//! Place: where.
//!
//! See [`Scaling`].

use serde::Serialize;

/// A place.
#[derive(Clone)]
#[serde(deny_unknown_fields, default)]
pub struct Place {
    /// How far; default 3,
    /// in tokens.
    #[serde(skip_serializing_if = \"Option::is_none\")]
    pub far: Option<usize>,
    /// Which side; default `left`.
    pub side: Side,
}

/// Sides.
#[serde(rename_all = \"snake_case\")]
pub enum Side {
    /// Before.
    #[default]
    Left,
    /// After.
    FarRight {
        /// By how much; default 1.
        #[serde(default = \"one\")]
        much: f64,
    },
    /// `place`; see [`Place`].
    Place(Other),
}
";

    #[test]
    fn structs_fields_and_choices_are_read_with_their_docs() {
        let about = About::under_head(SOURCE, "Place").unwrap();
        assert_eq!(about.summary, ["Place: where.", "See `Scaling`.", "A place."]);
        let [far, side] = about.fields.as_slice() else { panic!("{:?}", about.fields) };
        assert_eq!((far.name.as_str(), far.kind.as_str()), ("far", "usize"));
        assert_eq!(far.doc, "How far; default 3, in tokens.");
        let names: Vec<&str> = side.choices.iter().map(|about| about.name.as_str()).collect();
        assert_eq!(names, ["left", "far_right", "place"]);
        assert_eq!(side.choices[1].fields[0].doc, "By how much; default 1.");
        assert_eq!(side.choices[2].summary, ["Not meant."]);
        assert_eq!(About::of_file("x", SOURCE).summary, ["Head of the first."]);
        assert_eq!(About::of_struct(SOURCE, "Pla"), None);
    }

    /// Every scalar of the default settings stands in the doc of its field.
    fn assert_told(about: &About, defaults: toml::Table) {
        let name = &about.name;
        assert!(!about.summary.is_empty(), "{name} has no docs");
        for (key, value) in defaults.iter().filter(|(key, _)| *key != "kind") {
            let Some(field) = about.fields.iter().find(|field| field.name == *key) else {
                panic!("{name}.{key} was not found in the source");
            };
            let told = match value {
                toml::Value::Float(value) => value.to_string(),
                toml::Value::String(value) => value.clone(),
                toml::Value::Integer(_) | toml::Value::Boolean(_) => value.to_string(),
                _ => continue,
            };
            assert!(field.doc.contains(&told), "{name}.{key} is {told}, not: {}", field.doc);
        }
        for field in &about.fields {
            let doc = field.doc.to_lowercase();
            assert!(doc.contains("default"), "{name}.{} tells no default: {doc}", field.name);
            assert!(field.choices.iter().all(|choice| !choice.summary.is_empty()), "{name}");
        }
    }

    #[test]
    fn every_choice_tells_what_it_is_and_its_true_defaults() {
        macro_rules! check {
            ($($axis:ident)*) => {$(
                for (about, choice) in $axis::about().iter().zip($axis::all()) {
                    assert_eq!(about.name, choice.name());
                    assert_told(about, toml::Table::try_from(choice).unwrap());
                }
            )*};
        }
        check!(Score Pattern Position Mixing);
        for about in Scaling::about() {
            assert_told(&about, toml::Table::new());
        }
        let settings = crate::AttentionSettings::default();
        assert_told(&crate::AttentionSettings::about(), toml::Table::try_from(settings).unwrap());
    }
}
