//! Values that configurations and databases write as texts: reading and writing them with serde.

use std::fmt;

use serde::de::{self, Deserializer, MapAccess, Visitor};

use crate::{Network, Per, Protocol, Quantity, Ratio, Scheduled};

/// Reads types from a text, or from a number where a limit is one, by their `FromStr`; writes them as a text by their
/// `Display`.
#[macro_export]
macro_rules! as_text {
    ($($kind:ty),* $(,)?) => {$(
        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::text(deserializer).and_then(|text| text.parse().map_err(::serde::de::Error::custom))
            }
        }

        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

as_text!(Network, Protocol, Scheduled<Quantity>, Scheduled<Per>, Scheduled<Ratio>);

/// Reads a text: a string, a number, or a date of TOML.
pub fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(TextVisitor)
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text in quotes")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    /// A date of TOML, which comes as this.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        match map.next_entry::<String, String>() {
            Ok(Some((key, date))) if key == "$__toml_private_datetime" => Ok(date),
            _ => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
        }
    }
}
