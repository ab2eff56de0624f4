//! JSON for people and for files that are kept: its outer levels indented, and what lies deeper in one line each.

use std::fmt::Write;

use serde_json::Value;

/// A document whose first `levels` levels are indented.
pub(crate) fn render(value: &Value, levels: usize) -> String {
    let mut out = String::new();
    write(value, levels, 0, &mut out);
    out + "\n"
}

/// Indents the outer levels of a document; what lies deeper, or is short, stands in one line.
fn write(value: &Value, levels: usize, depth: usize, out: &mut String) {
    const SHORT: usize = 100;
    let line = value.to_string();
    if depth >= levels || line.len() <= SHORT || !(value.is_object() || value.is_array()) {
        return out.push_str(&line);
    }
    let indent = |depth| format!("\n{}", "  ".repeat(depth));
    let (open, close) = if value.is_object() { ('{', '}') } else { ('[', ']') };
    out.push(open);
    let fields = value.as_object().into_iter().flatten().map(|(name, item)| (Some(name), item));
    let items = value.as_array().into_iter().flatten().map(|item| (None, item));
    for (at, (name, item)) in fields.chain(items).enumerate() {
        out.push_str(if at == 0 { "" } else { "," });
        out.push_str(&indent(depth + 1));
        if let Some(name) = name {
            let _ = write!(out, "{}: ", Value::from(name.as_str()));
        }
        // A curve of hundreds of points is for programs.
        let is_curve = name.is_some_and(|name| name == "histogram");
        write(item, levels, if is_curve { levels } else { depth + 1 }, out);
    }
    out.push_str(&indent(depth));
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_in_lines_is_the_same_document() {
        let long = "x".repeat(99);
        let document =
            serde_json::json!({ "a": [1, 2.5, null], "b": { "c": [long, { "d\"": long }] }, "e": [] });
        let text = render(&document, 6);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        assert!(text.lines().count() > 5 && text.contains("\n  \"a\": [1,2.5,null]"), "{text}");
    }
}
