//! Settings are described from their schema, and choices are read by name, table and list.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use whatwhere_settings::{
    OneOrList, choice, one_or_list,
    reference::{choices, settings},
    schema::in_order,
};

/// Near: what is close.
/// Said in two lines, see [`Both`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Near {
    /// How far; default 0.
    wide: usize,
    /// Where; default `left`.
    at: Side,
}

/// Sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Side {
    /// Before.
    #[default]
    Left,
    /// After.
    FarRight,
}

/// Both: parts that are patterns themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Both {
    /// The parts; default none.
    #[serde(deserialize_with = "one_or_list")]
    #[schemars(with = "OneOrList<Shape>")]
    of: Vec<Shape>,
}

choice! {
    /// What is seen.
    Shape { Near => "near", Both => "both", }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = in_order::<Self>)]
struct File {
    /// Said first; default 7.
    zeal: usize,
    /// What is seen; default `near`.
    shape: Shape,
    /// A table; default its own.
    first: Inner,
    /// The same table again; default empty.
    again: Inner,
    /// Perhaps one; default none.
    maybe: Option<Shape>,
}

impl Default for File {
    fn default() -> Self {
        let (first, again) = (Inner::default(), Inner::default());
        Self { zeal: 7, shape: Near::default().into(), first, again, maybe: None }
    }
}

/// Inside.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Inner {
    /// Depth; default 0.
    deep: usize,
}

#[test]
fn settings_stand_in_order_with_docs_defaults_and_choices() {
    let all = settings::<File>();
    let keys: Vec<&str> = all.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(keys, ["zeal", "shape", "again", "maybe", "first.deep"]);
    assert_eq!((all[0].doc.as_str(), all[0].default.as_u64()), ("Said first; default 7.", Some(7)));
    for setting in [&all[1], &all[3]] {
        let names: Vec<&str> = setting.choices.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, Shape::NAMES);
    }
    let near = &all[1].choices[0];
    assert_eq!(near.summary, ["Near: what is close.", "Said in two lines, see `Both`."]);
    let fields: Vec<&str> = near.fields.iter().map(|field| field.key.as_str()).collect();
    assert_eq!(fields, ["wide", "at"]);
    let sides: Vec<&str> = near.fields[1].choices.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(sides, ["left", "far_right"]);
    assert_eq!(near.fields[1].choices[1].summary, ["After."]);
}

#[test]
fn a_choice_made_of_its_own_kind_is_described_once() {
    let both = &choices::<Shape>()[1];
    assert_eq!((both.name.as_str(), both.fields[0].key.as_str()), ("both", "of"));
    assert!(both.fields[0].choices.is_empty());
}

#[test]
fn names_tables_and_lists_are_read_and_written() {
    let text =
        "shape = { kind = 'both', of = ['near', { kind = 'both', of = 'near' }] }\nmaybe = 'near'";
    let file: File = toml::from_str(text).expect("both forms");
    let near = || Shape::from(Near::default());
    let inner = Both { of: vec![near()] }.into();
    assert_eq!(file.shape, Both { of: vec![near(), inner] }.into());
    assert_eq!(file.maybe, Some(near()));
    let written = toml::to_string(&file).expect("TOML");
    assert_eq!(toml::from_str::<File>(&written).expect("as written"), file);
    let wrong = toml::from_str::<File>("shape = 'naer'").expect_err("no such name").to_string();
    assert!(wrong.contains("unknown variant `naer`, expected `near` or `both`"), "{wrong}");
    let wrong =
        toml::from_str::<File>("shape = { kind = 'near', wdie = 3 }").expect_err("no field");
    assert!(wrong.to_string().contains("unknown field `wdie`"), "{wrong}");
}
