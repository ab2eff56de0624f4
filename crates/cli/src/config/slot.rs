//! What a key holds: one value, several, a table of values, or `[[tables]]`.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::DeValue;

use super::error::ValueError;
use super::file::{self, Mistake, Mistakes};
use super::said::{Place, Said};
use super::setting::{Range, Table};
use super::value::{Switch, Value};

/// A key with one value.
pub(crate) type One<T> = Option<Said<T>>;

/// A key with a value, or an array of them.
pub(crate) type Many<T> = Vec<Said<T>>;

/// A key with a table of values.
pub(crate) type Map<T> = BTreeMap<String, Said<T>>;

/// What a key holds.
pub(crate) trait Slot {
    /// Takes the value of the file.
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes);

    /// Takes one text of a flag or an environment variable.
    fn read_text(&mut self, text: &str, place: &Place, range: Range) -> Result<(), ValueError>;

    /// Returns the texts in an environment variable.
    fn split<'a>(&self, text: &'a str) -> Vec<&'a str> {
        vec![text]
    }

    /// Returns where the value was written, or the first of them. `None`: there is no value.
    fn place(&self) -> Option<&Place>;

    /// Returns the values without their places.
    fn shown(&self) -> String;

    /// Returns the JSON Schema of the value.
    fn schema(&self, range: Range) -> Json;

    /// Returns whether it holds `[[tables]]`.
    fn has_tables(&self) -> bool {
        false
    }

    /// Returns whether a flag may be given more than once.
    fn is_list(&self) -> bool {
        false
    }

    /// Returns this, or `below` where this has no value.
    fn over(self, below: Self) -> Self
    where
        Self: Sized,
    {
        if self.place().is_some() { self } else { below }
    }
}

/// Takes over a value into a field of the server's configuration.
pub(crate) trait Assign<To> {
    fn assign(&self, to: &mut To);
}

impl<T: Value + Into<To>, To> Assign<To> for One<T> {
    fn assign(&self, to: &mut To) {
        if let Some(said) = self {
            *to = said.value.clone().into();
        }
    }
}

impl<T: Value> Assign<Vec<T>> for Many<T> {
    fn assign(&self, to: &mut Vec<T>) {
        if !self.is_empty() {
            *to = self.iter().map(|said| said.value.clone()).collect();
        }
    }
}

/// A key that has to be there: a table without it is refused.
impl<T: Value + Default> Slot for Said<T> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) {
        let mut one: One<T> = None;
        one.read(value, range, wrong);
        *self = one.unwrap_or_default();
    }

    fn read_text(&mut self, text: &str, place: &Place, range: Range) -> Result<(), ValueError> {
        *self = Said { value: checked(T::from_text(text), range)?, place: place.clone() };
        Ok(())
    }

    fn place(&self) -> Option<&Place> {
        Some(&self.place)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.value)
    }

    fn schema(&self, range: Range) -> Json {
        T::schema(range)
    }
}

impl<T: Value> Slot for One<T> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) {
        *self = one(value, range, wrong);
    }

    fn read_text(&mut self, text: &str, place: &Place, range: Range) -> Result<(), ValueError> {
        *self = Some(Said { value: checked(T::from_text(text), range)?, place: place.clone() });
        Ok(())
    }

    fn place(&self) -> Option<&Place> {
        self.as_ref().map(|said| &said.place)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.as_ref().map(|said| &said.value))
    }

    fn schema(&self, range: Range) -> Json {
        T::schema(range)
    }
}

impl<T: Value> Slot for Many<T> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) {
        match value.get_ref() {
            // An empty array could mean "none" or "not written".
            DeValue::Array(all) if all.is_empty() => {
                wrong.push(Mistake::at(value.span(), &ValueError::EmptyList));
            }
            DeValue::Array(all) => self.extend(all.iter().filter_map(|value| one(value, range, wrong))),
            _ => self.extend(one(value, range, wrong)),
        }
    }

    fn read_text(&mut self, text: &str, place: &Place, range: Range) -> Result<(), ValueError> {
        self.push(Said { value: checked(T::from_text(text), range)?, place: place.clone() });
        Ok(())
    }

    fn split<'a>(&self, text: &'a str) -> Vec<&'a str> {
        text.split([',', '\n']).map(str::trim).filter(|text| !text.is_empty()).collect()
    }

    fn place(&self) -> Option<&Place> {
        self.first().map(|said| &said.place)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.iter().map(|said| &said.value).collect::<Vec<_>>())
    }

    fn schema(&self, range: Range) -> Json {
        let one = T::schema(range);
        json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }

    fn is_list(&self) -> bool {
        true
    }
}

impl<T: Value> Slot for Map<T> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) {
        let DeValue::Table(table) = value.get_ref() else {
            let found = file::kind(value.get_ref()).to_owned();
            let error = ValueError::Kind { expected: "a table of values", found };
            return wrong.push(Mistake::at(value.span(), &error));
        };
        for (key, value) in table {
            self.extend(one(value, range, wrong).map(|said| (key.get_ref().to_string(), said)));
        }
    }

    fn read_text(&mut self, _: &str, _: &Place, _: Range) -> Result<(), ValueError> {
        Err(ValueError::FileOnly("a table of values".to_owned()))
    }

    fn place(&self) -> Option<&Place> {
        self.values().next().map(|said| &said.place)
    }

    fn shown(&self) -> String {
        format!("{:?}", self.iter().map(|(key, said)| (key, &said.value)).collect::<Vec<_>>())
    }

    fn schema(&self, range: Range) -> Json {
        json!({ "type": "object", "additionalProperties": T::schema(range) })
    }
}

impl<T: Table> Slot for Vec<T> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, _: Range, wrong: &mut Mistakes) {
        if let (DeValue::Table(table), true) = (value.get_ref(), T::is_single()) {
            return self.push(file::table(table, value.span(), wrong));
        }
        let form = match T::is_single() {
            true => {
                format!("{} is one table, which begins with {}, in single brackets", T::SCOPE, T::heading())
            }
            false => {
                format!(
                    "each {0} is a table of its own, which begins with [[{0}]], in two brackets",
                    T::SCOPE
                )
            }
        };
        let (DeValue::Array(all), false) = (value.get_ref(), T::is_single()) else {
            return wrong.push(Mistake::at(value.span(), &form));
        };
        for one in all {
            match one.get_ref() {
                DeValue::Table(table) => self.push(file::table(table, one.span(), wrong)),
                _ => wrong.push(Mistake::at(one.span(), &form)),
            }
        }
    }

    fn read_text(&mut self, _: &str, _: &Place, _: Range) -> Result<(), ValueError> {
        Err(ValueError::FileOnly(format!("{} tables", T::heading())))
    }

    fn place(&self) -> Option<&Place> {
        self.iter().find_map(|table| T::ROWS.iter().find_map(|row| (row.get)(table).place()))
    }

    fn shown(&self) -> String {
        let table = |table: &T| {
            let own: Vec<String> = T::ROWS.iter().map(|row| (row.get)(table).shown()).collect();
            format!("{own:?} {:?}", table.clone().profile())
        };
        self.iter().map(table).collect()
    }

    fn schema(&self, _: Range) -> Json {
        let table = super::schema::of::<T>();
        if T::is_single() { table } else { json!({ "type": "array", "items": table }) }
    }

    fn has_tables(&self) -> bool {
        true
    }
}

/// Returns the value of a switch.
pub(super) fn is_on(said: One<Switch>, default: bool) -> bool {
    said.map_or(default, |said| said.value.0)
}

fn one<T: Value>(value: &Spanned<DeValue<'_>>, range: Range, wrong: &mut Mistakes) -> One<T> {
    match checked(scalar(value.get_ref()), range) {
        Ok(read) => Some(Said { value: read, place: Place::File(value.span()) }),
        Err(error) => {
            wrong.push(Mistake::at(value.span(), &error));
            None
        }
    }
}

fn scalar<T: Value>(value: &DeValue<'_>) -> Result<T, ValueError> {
    let another = |found: String| ValueError::Kind { expected: T::EXPECTED, found };
    match value {
        DeValue::String(text) => T::from_text(text),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => {
                T::from_integer(number).unwrap_or_else(|| Err(another(format!("the number {number}"))))
            }
            Err(_) => Err(ValueError::Large(digits.to_string())),
        },
        DeValue::Boolean(value) => T::from_bool(*value).ok_or_else(|| another(format!("`{value}`"))),
        other => Err(another(file::kind(other).to_owned())),
    }
}

fn checked<T: Value>(value: Result<T, ValueError>, range: Range) -> Result<T, ValueError> {
    let value = value?;
    match value.magnitude() {
        Some(number) if !(range.least..=range.most).contains(&number) => {
            Err(ValueError::Range(T::outside(range)))
        }
        _ => Ok(value),
    }
}
