//! What an operation of the API is: a row, from which routing, roles, the check of arguments and OpenAPI come.

use std::pin::Pin;

use hyper::Method;
use millrace_admin::Role;
use serde_json::{Map, Value};

use super::call::Call;
use super::reply::{Problem, Reply};

/// The longest text of an argument that is no file, in characters, as a JSON Schema counts.
pub(crate) const LONGEST: usize = 1024;

/// The largest whole number that all clients can read.
pub(crate) const LARGEST: u64 = (1 << 53) - 1;

/// An answer in the making.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Reply, Problem>> + Send>>;

/// What performs an operation.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// An order of `millrace ctl`, which has the arguments and these, too.
    Order(&'static str, &'static [&'static str]),
    /// The same, whose answer is a stream: a function makes it.
    Live(&'static str, fn(Call) -> Answering),
    /// It describes the API.
    Describe,
    /// A function of its own.
    Own(fn(Call) -> Answering),
}

/// An operation.
pub(crate) struct Operation {
    pub(crate) method: Method,
    /// `/api/v1/bans/{network}`
    pub(crate) path: &'static str,
    /// The least role; `None` where everyone may.
    pub(crate) role: Option<Role>,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Field],
    pub(crate) body: &'static [Field],
    pub(crate) answer: &'static [Field],
    /// Whether it asks for the entity tag of what it replaces, as `If-Match`.
    pub(crate) is_conditional: bool,
    pub(crate) action: Action,
}

/// A value that is asked for or answered.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) is_needed: bool,
    pub(crate) may_be_null: bool,
    pub(crate) help: &'static str,
}

/// What a value is.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text,
    /// A text of any length.
    File,
    Whole,
    Number,
    Flag,
    Texts,
    /// One of these.
    Word(&'static [&'static str]),
    /// An object of keys that other documents list.
    Object,
    /// An object.
    Record(&'static [Field]),
    /// An array of objects.
    Records(&'static [Field]),
}

/// A value that may be left out.
pub(crate) const fn field(name: &'static str, kind: Kind, help: &'static str) -> Field {
    Field { name, kind, is_needed: false, may_be_null: false, help }
}

/// A value that has to be there.
pub(crate) const fn needed(name: &'static str, kind: Kind, help: &'static str) -> Field {
    Field { name, kind, is_needed: true, may_be_null: false, help }
}

/// A value that is there, and may be `null`.
pub(crate) const fn maybe(name: &'static str, kind: Kind, help: &'static str) -> Field {
    Field { name, kind, is_needed: true, may_be_null: true, help }
}

impl Operation {
    /// With a condition: it needs `If-Match`.
    pub(crate) const fn conditional(mut self) -> Self {
        self.is_conditional = true;
        self
    }

    /// With parameters of the query.
    pub(crate) const fn asking(mut self, query: &'static [Field]) -> Self {
        self.query = query;
        self
    }

    /// Returns the segments of a path, if it is that of the operation: names of arguments and their values.
    pub(crate) fn segments<'a>(&self, path: &'a str) -> Option<Vec<(&'static str, &'a str)>> {
        let (mut own, mut said) = (self.path.split('/'), path.split('/'));
        let mut arguments = Vec::new();
        loop {
            match (own.next(), said.next()) {
                (None, None) => return Some(arguments),
                (Some(own), Some(said)) => {
                    match own.strip_prefix('{').and_then(|own| own.strip_suffix('}')) {
                        Some(name) if !said.is_empty() => arguments.push((name, said)),
                        None if own == said => {}
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
    }

    /// Reads the arguments of a path and a query.
    pub(crate) fn arguments(&self, path: &str, query: &str) -> Result<Map<String, Value>, Problem> {
        let mut arguments = Map::new();
        for (name, said) in self.segments(path).unwrap_or_default() {
            let text = percent_decoded(said, false)?;
            arguments.insert(name.to_owned(), of_path(name).read(text)?);
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, said) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, text) = (percent_decoded(name, true)?, percent_decoded(said, true)?);
            let field = self.query.iter().find(|field| field.name == name);
            let field = field.ok_or_else(|| Problem::invalid(format!("there is no parameter {name:?}")))?;
            match (field.read(text)?, arguments.get_mut(&name)) {
                (Value::Array(more), Some(Value::Array(all))) => all.extend(more),
                (_, Some(_)) => return Err(Problem::invalid(format!("{name} is given twice"))),
                (value, None) => drop(arguments.insert(name, value)),
            }
        }
        self.query.iter().try_for_each(|field| field.check_presence(&arguments))?;
        Ok(arguments)
    }

    /// Checks a body, and adds it to the arguments.
    pub(crate) fn read_body(&self, body: &[u8], arguments: &mut Map<String, Value>) -> Result<(), Problem> {
        let body: Map<String, Value> = match body {
            [] if self.body.iter().all(|field| !field.is_needed) => Map::new(),
            body => serde_json::from_slice(body)
                .map_err(|error| Problem::invalid(format!("the body is no JSON object: {error}")))?,
        };
        self.body.iter().try_for_each(|field| field.check_presence(&body))?;
        for (name, value) in body {
            let field = self.body.iter().find(|field| field.name == name);
            let field = field.ok_or_else(|| Problem::invalid(format!("there is no field {name:?}")))?;
            arguments.insert(name, field.checked(value)?);
        }
        Ok(())
    }
}

/// The value of a part of a path.
pub(crate) fn of_path(name: &'static str) -> Field {
    let kind = if matches!(name, "session" | "version") { Kind::Whole } else { Kind::Text };
    needed(name, kind, "")
}

impl Field {
    /// Reads a value of a path or a query.
    fn read(&self, text: String) -> Result<Value, Problem> {
        let value = match self.kind {
            Kind::Whole => text.parse::<u64>().ok().map(Value::from),
            Kind::Flag => text.parse::<bool>().ok().map(Value::from),
            Kind::Texts => Some(Value::from(vec![text])),
            _ => Some(text.into()),
        };
        self.checked(value.ok_or_else(|| self.wrong())?)
    }

    fn check_presence(&self, values: &Map<String, Value>) -> Result<(), Problem> {
        match self.is_needed && !values.contains_key(self.name) {
            true => Err(Problem::invalid(format!("{} is missing", self.name))),
            false => Ok(()),
        }
    }

    fn checked(&self, value: Value) -> Result<Value, Problem> {
        let is_text = |value: &Value| value.as_str().is_some_and(|text| text.chars().count() <= LONGEST);
        let whole = |number: f64| (number.fract() == 0.0 && number >= 0.0).then_some(number as u64);
        let is_right = match self.kind {
            Kind::Text => is_text(&value),
            Kind::File => value.is_string(),
            Kind::Whole => {
                let number = value.as_u64().or_else(|| value.as_f64().and_then(whole));
                let number = number.filter(|number| *number <= LARGEST).ok_or_else(|| self.wrong())?;
                return Ok(number.into());
            }
            Kind::Number => value.is_number(),
            Kind::Flag => value.is_boolean(),
            Kind::Texts => value.as_array().is_some_and(|all| all.iter().all(is_text)),
            Kind::Word(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Kind::Object | Kind::Record(_) => value.is_object(),
            Kind::Records(_) => value.is_array(),
        };
        if is_right { Ok(value) } else { Err(self.wrong()) }
    }

    fn wrong(&self) -> Problem {
        let what = match self.kind {
            Kind::Text => format!("a text of {LONGEST} characters at most"),
            Kind::File => "a text".to_owned(),
            Kind::Whole => format!("a whole number from 0 to {LARGEST}"),
            Kind::Number => "a number".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Texts => "an array of texts".to_owned(),
            Kind::Word(words) => format!("one of {}", words.join(", ")),
            Kind::Object | Kind::Record(_) => "an object".to_owned(),
            Kind::Records(_) => "an array of objects".to_owned(),
        };
        Problem::invalid(format!("{} has to be {what}", self.name))
    }
}

/// Decodes a part of a path or, where `+` is a space, of a query.
pub(crate) fn percent_decoded(text: &str, has_plus: bool) -> Result<String, Problem> {
    let wrong = || Problem::invalid(format!("{text:?} is no UTF-8 in percent encoding"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next()), digit(rest.next()));
                high.zip(low).map(|(high, low)| (high * 16 + low) as u8).ok_or_else(wrong)?
            }
            b'+' if has_plus => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Operation = Operation {
        method: Method::POST,
        path: "/a/{name}",
        role: None,
        summary: "",
        query: &[field("ids", Kind::Texts, ""), field("most", Kind::Whole, ""), field("all", Kind::Flag, "")],
        body: &[needed("network", Kind::Text, ""), field("seconds", Kind::Whole, "")],
        answer: &[],
        is_conditional: false,
        action: Action::Order("x", &[]),
    };

    #[test]
    fn arguments_come_from_the_path_and_the_query() {
        let arguments = ROW.arguments("/a/10.0.0.0%2F8", "ids=a+b&ids=%2B&most=3&all=true").unwrap();
        let expected =
            serde_json::json!({ "name": "10.0.0.0/8", "ids": ["a b", "+"], "most": 3, "all": true });
        assert_eq!(Value::from(arguments), expected);
        for wrong in ["most=x", "most=-1", "most=1&most=2", "all=1", "other=1", "ids=%f", "ids=%ff"] {
            assert!(ROW.arguments("/a/b", wrong).is_err(), "{wrong}");
        }
        assert!(
            ROW.segments("/a/").is_none() && ROW.segments("/a/b/c").is_none() && ROW.segments("/a").is_none()
        );
    }

    #[test]
    fn bodies_have_the_fields_of_the_row_and_no_others() {
        let read = |body: &str| {
            let mut arguments = Map::new();
            ROW.read_body(body.as_bytes(), &mut arguments).map(|()| Value::from(arguments).to_string())
        };
        assert_eq!(read(r#"{"network":"a","seconds":2.0}"#).unwrap(), r#"{"network":"a","seconds":2}"#);
        let long = format!(r#"{{"network":"{}"}}"#, "a".repeat(LONGEST + 1));
        for wrong in [
            "",
            "{}",
            "[]",
            "x",
            r#"{"network":1}"#,
            r#"{"network":null}"#,
            r#"{"network":"a","x":1}"#,
            &long,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read(r#"{"network":"a","seconds":-1}"#).is_err());
        assert!(read(r#"{"network":"a","seconds":1e300}"#).is_err());
    }
}
