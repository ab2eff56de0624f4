//! The description of the API (OpenAPI 3.1), from its table.

use millrace_admin::Role;
use serde_json::{Map, Value, json};

use super::operation::{Action, Field, Kind, LARGEST, LONGEST, Operation, of_path};
use super::reply::{EVENTS, JSON, PROBLEM};

/// Describes these operations.
pub(crate) fn describe(operations: &[Operation]) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = described(operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Millrace admin API", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "MIT OR Apache-2.0" } },
        "paths": paths,
        "components": {
            "schemas": { "Problem": problem() },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn described(operation: &Operation) -> Value {
    let needs = operation.role.map_or("everyone", Role::word);
    let of_path: Vec<Field> = operation
        .segments(operation.path)
        .unwrap_or_default()
        .iter()
        .map(|(name, _)| of_path(name))
        .collect();
    let in_path = of_path.iter().map(|field| parameter(field, "path"));
    let parameters: Vec<Value> =
        in_path.chain(operation.query.iter().map(|field| parameter(field, "query"))).collect();
    let condition = operation.is_conditional.then(|| {
        json!({
            "name": "If-Match", "in": "header", "required": true, "schema": { "type": "string" },
            "description": "The ETag of what is replaced",
        })
    });
    let parameters: Vec<Value> = parameters.into_iter().chain(condition).collect();
    let mut told = json!({
        "summary": operation.summary,
        "description": format!("Role: {needs}."),
        "parameters": parameters,
        "responses": responses(operation),
    });
    if !operation.body.is_empty() {
        let is_needed = operation.body.iter().any(|field| field.is_needed);
        told["requestBody"] =
            json!({ "required": is_needed, "content": { JSON: { "schema": record(operation.body, true) } } });
    }
    if let Action::Order(order, _) | Action::Live(order, _) = operation.action {
        told["x-ctl-order"] = order.into();
    }
    told["security"] = match operation.role {
        Some(_) => json!([{ "token": [] }]),
        None => json!([]),
    };
    told
}

fn responses(operation: &Operation) -> Value {
    let good = match (operation.action, operation.answer) {
        (Action::Live(..), _) => json!({ EVENTS: { "schema": { "type": "string" } } }),
        (_, []) => json!({ JSON: { "schema": { "type": "object" } } }),
        (_, answer) => json!({ JSON: { "schema": record(answer, false) } }),
    };
    let bad = json!({ PROBLEM: { "schema": { "$ref": "#/components/schemas/Problem" } } });
    json!({
        "200": { "description": "Done", "content": good },
        "default": { "description": "Why it is not done", "content": bad },
    })
}

fn parameter(field: &Field, place: &str) -> Value {
    json!({
        "name": field.name, "in": place, "required": field.is_needed, "description": field.help,
        "schema": schema(field, true),
    })
}

/// What is sent has these keys alone; an answer may have more one day.
fn record(fields: &[Field], is_sent: bool) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|field| {
            let mut told = schema(field, is_sent);
            told["description"] = field.help.into();
            (field.name.to_owned(), told)
        })
        .collect();
    let needed: Vec<_> = fields.iter().filter(|field| field.is_needed).map(|field| field.name).collect();
    let mut told = json!({ "type": "object", "properties": properties, "required": needed });
    if is_sent {
        told["additionalProperties"] = false.into();
    }
    told
}

fn schema(field: &Field, is_sent: bool) -> Value {
    let mut told = match field.kind {
        Kind::Text | Kind::File => json!({ "type": "string" }),
        Kind::Whole => json!({ "type": "integer", "minimum": 0 }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Word(words) => json!({ "type": "string", "enum": words }),
        Kind::Object => json!({ "type": "object" }),
        Kind::Record(fields) => record(fields, is_sent),
        Kind::Records(fields) => json!({ "type": "array", "items": record(fields, is_sent) }),
    };
    if is_sent {
        match field.kind {
            Kind::Text => told["maxLength"] = LONGEST.into(),
            Kind::Whole => told["maximum"] = LARGEST.into(),
            _ => {}
        }
    }
    if field.may_be_null {
        told["type"] = json!([told["type"], "null"]);
    }
    told
}

/// An error (RFC 9457).
fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string" },
            "field": { "type": "string", "description": "Which field of the body is wrong: settings.access" },
            "line": { "type": "integer", "description": "Where the configuration file is wrong" },
        },
    })
}
