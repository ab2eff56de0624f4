//! A value and where it was said.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use toml::Spanned;

use super::value::Value;

/// A value and where it was said.
#[derive(Debug, Clone)]
pub(crate) struct Said<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    CommandLine,
    /// The bytes of the configuration file.
    File(Range<usize>),
}

impl<T> Said<T> {
    pub(crate) fn on_command_line(value: T) -> Self {
        Self { value, place: Place::CommandLine }
    }
}

impl<T: Value> FromStr for Said<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        T::from_text(text).map(Self::on_command_line)
    }
}

impl<'de, T: Value> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Scalar<T>>::deserialize(deserializer)?;
        let place = Place::File(spanned.span());
        Ok(Self { value: spanned.into_inner().0, place })
    }
}

/// Reads one value or an array of them.
pub(crate) fn one_or_more<'de, T: Value, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Said<T>>, D::Error> {
    let spanned = Spanned::<OneOrMore<T>>::deserialize(deserializer)?;
    let place = Place::File(spanned.span());
    let values = spanned.into_inner().0;
    Ok(values.into_iter().map(|value| Said { value, place: place.clone() }).collect())
}

struct Scalar<T>(T);

impl<'de, T: Value> Deserialize<'de> for Scalar<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData)).map(Self)
    }
}

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: Value> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::from_integer(number)
            .unwrap_or_else(|| Err(format!("expected {}, but this is the number {number}", T::EXPECTED)))
            .map_err(E::custom)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::from_bool(value)
            .ok_or_else(|| E::custom(format!("expected {}, but this is `{value}`", T::EXPECTED)))
    }
}

struct OneOrMore<T>(Vec<T>);

impl<'de, T: Value> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor(PhantomData)).map(Self)
    }
}

struct OneOrMoreVisitor<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for OneOrMoreVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, or an array of such", T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::from_text(text).map(|value| vec![value]).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Vec<T>, E> {
        ScalarVisitor(PhantomData).visit_i64(number).map(|value| vec![value])
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(Scalar(value)) = sequence.next_element()? {
            values.push(value);
        }
        // An empty list could mean "none" or "nothing said": it is not for us to choose.
        match values.is_empty() {
            true => Err(A::Error::custom("this list is empty; write \"off\" for none, or leave the key out")),
            false => Ok(values),
        }
    }
}
