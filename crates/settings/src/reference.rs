//! Settings described, from their schema: what the command lists and the docs' page of settings says.

use std::{collections::BTreeSet, fmt::Write};

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::schema::properties;

/// One thing to set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// Its name in settings, with the tables that hold it: `training.lr`.
    pub key: String,
    /// Unit, default and effect.
    pub doc: String,
    /// What it is if it is not set; nothing where that follows from other settings.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub default: Value,
    /// What it chooses among.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Choice>,
}

/// One of the choices of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Its name in settings.
    pub name: String,
    /// What it is, line by line.
    pub summary: Vec<String>,
    /// What can be set.
    pub fields: Vec<Setting>,
}

impl Setting {
    /// The table that holds it.
    pub fn table(&self) -> &str {
        self.key.rsplit_once('.').map_or("", |(table, _)| table)
    }
}

/// Everything that can be set in `T`, table by table. A table that stands in several places is described in the first.
pub fn settings<T: JsonSchema>() -> Vec<Setting> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let schema = schema.to_value();
    let Some(root) = schema.as_object() else { return Vec::new() };
    let definitions = root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut walk = Walk { definitions: &definitions, described: BTreeSet::new() };
    let mut all = Vec::new();
    walk.table("", root, &mut all);
    all
}

/// The choices of `T`, a list of them.
pub fn choices<T: JsonSchema>() -> Vec<Choice> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let schema = schema.to_value();
    let definitions = schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    Walk { definitions: &definitions, described: BTreeSet::new() }.choices(&schema, &[])
}

struct Walk<'a> {
    definitions: &'a Map<String, Value>,
    described: BTreeSet<&'a str>,
}

impl<'a> Walk<'a> {
    /// The settings of a table, then those of the tables in it.
    fn table(&mut self, prefix: &str, table: &'a Map<String, Value>, all: &mut Vec<Setting>) {
        let mut inner = Vec::new();
        for (name, schema) in properties(table) {
            let (found, definition) = self.resolve(schema);
            let is_table = found.get("properties").is_some();
            match (is_table, definition.filter(|name| self.described.contains(name))) {
                (true, None) => {
                    self.described.extend(definition);
                    inner.push((format!("{prefix}{name}."), found));
                }
                _ => all.push(self.setting(format!("{prefix}{name}"), schema, &[])),
            }
        }
        for (prefix, table) in inner {
            if let Some(table) = table.as_object() {
                self.table(&prefix, table, all);
            }
        }
    }

    fn setting(&self, key: String, schema: &'a Value, within: &[&str]) -> Setting {
        Setting {
            key,
            doc: lines(schema).join(" "),
            default: schema.get("default").cloned().unwrap_or_default(),
            choices: self.choices(schema, within),
        }
    }

    /// What a schema chooses among, behind references, lists and what may be left out; nothing where it stands within a
    /// choice of its own.
    fn choices(&self, schema: &'a Value, within: &[&str]) -> Vec<Choice> {
        let (found, definition) = self.resolve(schema);
        if definition.is_some_and(|name| within.contains(&name)) {
            return Vec::new();
        }
        let within = &[within, definition.as_slice()].concat();
        let Some(ways) = found.get("anyOf").or(found.get("oneOf")).and_then(Value::as_array) else {
            return found.get("items").map_or_else(Vec::new, |items| self.choices(items, within));
        };
        let listed: Vec<Choice> = ways.iter().filter_map(|way| self.choice(way, within)).collect();
        match listed.is_empty() {
            true => {
                ways.iter().map(|way| self.choices(way, within)).find(|found| !found.is_empty())
            }
            false => Some(listed),
        }
        .unwrap_or_default()
    }

    /// A word, or a table with its `kind`.
    fn choice(&self, way: &'a Value, within: &[&str]) -> Option<Choice> {
        let kind = way.pointer("/properties/kind/const");
        let name = kind.or(way.get("const"))?.as_str()?;
        let fields = way.as_object().map(properties).unwrap_or_default();
        let fields = fields.into_iter().filter(|(name, _)| *name != "kind");
        let fields =
            fields.map(|(name, schema)| self.setting(name.into(), schema, within)).collect();
        Some(Choice { name: name.into(), summary: lines(way), fields })
    }

    fn resolve(&self, schema: &'a Value) -> (&'a Value, Option<&'a str>) {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let Some(name) = reference.and_then(|path| path.strip_prefix("#/$defs/")) else {
            return (schema, None);
        };
        (self.definitions.get(name).unwrap_or(schema), Some(name))
    }
}

/// The docs of an item, line by line; links without their brackets.
fn lines(schema: &Value) -> Vec<String> {
    let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
    let plain = |line: &str| line.trim().replace("[`", "`").replace("`]", "`");
    text.lines().map(plain).filter(|line| !line.is_empty()).collect()
}

/// A page of Markdown: a section for each table, and under it the choices of its settings.
pub fn page(title: &str, intro: &str, settings: &[Setting]) -> String {
    let mut page = format!("# {title}\n\n{intro}");
    let mut table = None;
    for setting in settings {
        if table != Some(setting.table()) {
            table = Some(setting.table());
            let heading = match setting.table() {
                "" => "At the top of the file".to_owned(),
                name => format!("[{name}]"),
            };
            let _ = write!(page, "\n## {heading}\n\n");
        }
        write_setting(&mut page, setting, 0);
    }
    page
}

fn write_setting(page: &mut String, setting: &Setting, depth: usize) {
    let name = setting.key.rsplit('.').next().unwrap_or_default();
    let name = if depth == 0 { format!("**`{name}`**") } else { format!("`{name}`") };
    let _ = writeln!(page, "{:1$}- {name}: {2}", "", depth * 2, setting.doc);
    for choice in &setting.choices {
        let indent = depth * 2 + 2;
        let summary = choice.summary.join(" ");
        let _ = writeln!(page, "{:indent$}- `\"{}\"`: {summary}", "", choice.name);
        choice.fields.iter().for_each(|field| write_setting(page, field, depth + 2));
    }
}
