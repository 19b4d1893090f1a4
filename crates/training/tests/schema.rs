//! What the schema says of settings: everything has its docs and its true default, and the page of the docs is the one
//! that follows from it.

#![expect(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use whatwhere_settings::{
    reference::{Setting, page, settings},
    schema,
};
use whatwhere_training::RunSettings;

/// A setting says that it has a default, and which where it is a number, a word or a truth.
fn assert_told(key: &str, setting: &Setting) {
    let doc = setting.doc.to_lowercase().replace(',', "");
    assert!(doc.contains("default"), "{key} tells no default: {doc}");
    let told = match &setting.default {
        Value::Number(number) => {
            let value = number.as_f64().unwrap();
            vec![value.to_string(), format!("{value:e}"), "none".into()]
        }
        Value::String(word) => vec![word.clone()],
        Value::Bool(truth) => vec![truth.to_string()],
        _ => Vec::new(),
    };
    let told_one = told.iter().any(|told| doc.contains(told));
    assert!(told.is_empty() || told_one, "{key} is {told:?}, not: {doc}");
    for choice in &setting.choices {
        assert!(!choice.summary.is_empty(), "{key} = {} says nothing", choice.name);
        for field in &choice.fields {
            assert_told(&format!("{key}.{}.{}", choice.name, field.key), field);
        }
    }
}

#[test]
fn every_setting_tells_what_it_is_and_its_true_default() {
    let all = settings::<RunSettings>();
    assert!(all.len() > 50, "{}", all.len());
    all.iter().for_each(|setting| assert_told(&setting.key, setting));
    let keys: BTreeSet<&str> = all.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(keys.len(), all.len(), "each is described once");
}

#[test]
fn settings_stand_in_the_order_of_their_structs() {
    let all = settings::<RunSettings>();
    let keys: Vec<&str> = all.iter().map(|setting| setting.key.as_str()).collect();
    assert_eq!(keys[..4], ["seed", "training.steps", "training.batch", "training.length"]);
    let place = |key: &str| keys.iter().position(|found| *found == key).unwrap();
    assert!(place("model.family") < place("model.attention.heads"));
    assert!(!keys.contains(&"model.attention.width"), "attention is as wide as its model");
}

/// Every default file, written out, is one the schema would let an editor accept: no key is unknown to it.
#[test]
fn the_schema_knows_every_key_of_written_settings() {
    let schema = schema::of_file::<RunSettings>();
    let written = toml::Value::try_from(RunSettings::default()).unwrap();
    let written: Value = serde_json::to_value(written).unwrap();
    for table in ["training", "data", "model"] {
        let reference = schema.pointer(&format!("/properties/{table}")).unwrap();
        let reference = reference.pointer("/allOf/0/$ref").or(reference.get("$ref")).unwrap();
        let pointer = reference.as_str().unwrap().trim_start_matches('#');
        let known = schema.pointer(&format!("{pointer}/properties")).unwrap();
        for key in written[table].as_object().unwrap().keys() {
            assert!(known.get(key).is_some(), "{table}.{key} is not in the schema");
        }
    }
}

#[test]
fn the_page_of_settings_is_the_one_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    let intro = "Every setting of a run, with its default and what it chooses among.\n\
                 A choice is written by its name, `position = \"rotary\"`, or as a table, \
                 `position = { kind = \"rotary\", base = 500000.0 }`.\n\
                 `whatwhere config --choices NAME` shows a part of this page, `whatwhere config --schema` the JSON Schema for \
                 editors.\n\n\
                 <!-- Written from the sources: WHATWHERE_WRITE=1 cargo test --release --test schema --test house -->\n";
    let made = page("Settings", intro, &settings::<RunSettings>());
    // Word by word: the house breaks lines of Markdown after each sentence.
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    let written = fs::read_to_string(&path).unwrap_or_default();
    if std::env::var_os("WHATWHERE_WRITE").is_some() && words(&written) != words(&made) {
        fs::write(&path, &made).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    let hint = "write it again: WHATWHERE_WRITE=1 cargo test --release --test schema --test house";
    assert_eq!(words(&written), words(&made), "{hint}");
}
