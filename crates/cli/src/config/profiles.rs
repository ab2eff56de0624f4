//! What `[[user]]` and `[[group]]` tables say in the keys that they have in common with users of databases.
//!
//! These tables are read twice: once for the keys that only a file has, which remember their places, and once
//! for the rest.

use std::fmt;

use millrace_server::auth::Profile;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess, Visitor};

/// The keys that only a file has.
const OWN: [&str; 6] = ["name", "password", "groups", "shared-download", "shared-upload", "shared-sessions"];

/// All that the file says of users and groups, in the order of their tables.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Profiles {
    pub(crate) user: Vec<Beside>,
    pub(crate) group: Vec<Beside>,
}

/// A profile, beside other keys.
#[derive(Debug, Default)]
pub(crate) struct Beside(pub(crate) Profile);

impl<'de> Deserialize<'de> for Beside {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(BesideVisitor)
    }
}

struct BesideVisitor;

impl<'de> Visitor<'de> for BesideVisitor {
    type Value = Beside;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Beside, A::Error> {
        Profile::deserialize(MapAccessDeserializer::new(WithoutOwn(map))).map(Beside)
    }
}

/// A table without the keys of the file.
struct WithoutOwn<A>(A);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutOwn<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.0.next_key::<String>()? {
            if !OWN.contains(&key.as_str()) {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.0.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.0.next_value_seed(seed)
    }
}
