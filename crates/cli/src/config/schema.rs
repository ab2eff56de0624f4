//! The JSON Schema of configuration files, for editors (Taplo, Even Better TOML) and other tools.

use serde_json::{Map, Value as Json, json};

use super::profiles;
use super::setting::{Table, Unset, plain, toml};

/// The schema of a file whose top level this is.
pub(crate) fn schema<T: Table>() -> Json {
    let mut schema = of::<T>();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Configuration of millrace serve".into();
    schema
}

/// The schema of a table of keys.
pub(super) fn of<T: Table>() -> Json {
    let empty = T::default();
    let mut properties: Map<String, Json> = profiles::rows::<T>()
        .map(|row| (row.name.to_owned(), described((row.schema)(), &row.text(), None)))
        .collect();
    for row in T::ROWS {
        let default = match row.key.unset {
            Unset::Value(value) => ::toml::from_str::<Json>(&format!("value = {}", toml(value)))
                .ok()
                .and_then(|mut table| table.get_mut("value").map(Json::take)),
            Unset::Means(_) | Unset::Required => None,
        };
        let schema = (row.get)(&empty).schema(row.key.range);
        properties.insert(row.name.to_owned(), described(schema, &row.text(), default));
    }
    let required: Vec<&str> =
        T::ROWS.iter().filter(|row| row.key.unset == Unset::Required).map(|row| row.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn described(mut schema: Json, help: &str, default: Option<Json>) -> Json {
    schema["description"] = plain(help).into();
    if let Some(default) = default {
        schema["default"] = default;
    }
    schema
}
