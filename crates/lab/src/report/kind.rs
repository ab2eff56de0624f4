//! Which command wrote a file, where another one is asked to read it.

use serde_json::Value;

/// The kind of a file, and the command that reads it, as the end of a sentence; `None` if no command wrote it.
pub(crate) fn told(text: &str) -> Option<&'static str> {
    let value: Value = serde_json::from_str(text).ok()?;
    match () {
        () if value["kind"] == "race" => {
            Some("is the report of a race, which \"millrace race --read\" shows")
        }
        () if value["cells"].is_array() => {
            Some("is the report of a load, which \"millrace bench --read\" shows")
        }
        () if value["trials"].is_array() => Some(
            "is the answer of \"millrace bench --search\", which nothing shows again: give the search --html or --csv",
        ),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_program_wrote_is_told() {
        let kinds = [
            (r#"{"kind": "race", "scenarios": []}"#, Some("race --read")),
            (r#"{"target": "ftp://x/", "cells": []}"#, Some("bench --read")),
            (r#"{"target": "ftp://x/", "trials": []}"#, Some("--search")),
            (r#"{"kind": "car"}"#, None),
            ("[1]", None),
            ("no JSON", None),
        ];
        for (text, words) in kinds {
            let said = told(text);
            assert_eq!(said.is_some(), words.is_some(), "{text}");
            assert!(said.unwrap_or_default().contains(words.unwrap_or_default()), "{said:?}");
        }
    }
}
