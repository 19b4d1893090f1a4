//! The schema of settings: JSON Schema by schemars, with choices by name or table and fields in their order.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{Visitor, value::Error},
    forward_to_deserialize_any,
};
use serde_json::{Map, Value, json};

/// Where a schema keeps the order of its properties, which JSON does not.
pub(crate) const ORDER: &str = "x-order";

/// The schema of a file of settings, for editors: draft 7, which they all know.
pub fn of_file<T: JsonSchema>() -> Value {
    SchemaSettings::draft07().into_generator().into_root_schema_for::<T>().to_value()
}

/// Notes the order of the fields of `T`, for schemars' `transform`.
pub fn in_order<'de, T: Deserialize<'de>>(schema: &mut Schema) {
    let mut fields: &'static [&'static str] = &[];
    // It fails as soon as it has told its fields.
    let _ = T::deserialize(Fields(&mut fields));
    schema.insert(ORDER.into(), json!(fields));
}

/// The schema of one choice: that of its struct, and its name as `kind`.
pub fn of_choice<'de, T: JsonSchema + Deserialize<'de>>(
    name: &str,
    generator: &mut SchemaGenerator,
) -> Schema {
    let mut schema = T::json_schema(generator);
    in_order::<T>(&mut schema);
    schema.insert("title".into(), json!(name));
    schema.insert("required".into(), json!(["kind"]));
    let properties = schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.insert("kind".into(), json!({ "type": "string", "const": name }));
    }
    schema
}

/// The schema of a list of choices, each by its name or its table.
pub fn one_of<const N: usize>(choices: [Schema; N]) -> Schema {
    let names: Vec<Value> =
        choices.iter().filter_map(|choice| choice.get("title")).cloned().collect();
    let mut all = vec![json!({ "type": "string", "enum": names })];
    all.extend(choices.into_iter().map(Schema::to_value));
    json_schema!({ "anyOf": all })
}

/// The properties of a schema, in their order.
pub(crate) fn properties(schema: &Map<String, Value>) -> Vec<(&str, &Value)> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    match schema.get(ORDER).and_then(Value::as_array) {
        Some(order) => {
            let names = order.iter().filter_map(Value::as_str);
            names.filter_map(|name| Some((name, properties.get(name)?))).collect()
        }
        None => properties.iter().map(|(name, schema)| (name.as_str(), schema)).collect(),
    }
}

/// Reads nothing, but hears which fields a struct has.
struct Fields<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("no struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
