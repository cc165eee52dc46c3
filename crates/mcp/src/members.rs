//! [`Members`]: a JSON object that keeps the bytes of its values.
//!
//! The gateway changes a message in one place at most. Parsing values into types and writing them
//! again would lose what the types don't cover: large numbers, the order of members, fields of a
//! later protocol.

use std::collections::HashSet;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Names and unparsed values, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// The object in `value`, if it is one.
    pub(crate) fn from_raw(value: &RawValue) -> Option<Self> {
        Self::parse(value.get().as_bytes())
    }

    /// The last value of this name, which is the one that most parsers keep.
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        let mut found = self.0.iter().rev().filter(|(n, _)| n == name);
        found.next().map(|(_, value)| &**value)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// The value parsed as a `T`; `None` if it is missing or of another type.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    pub(crate) fn object(&self, name: &str) -> Option<Self> {
        Self::from_raw(self.get(name)?)
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.0.retain(|(n, _)| n != name);
    }

    /// Keeps only the last value of each name, so that every reader sees what the gateway saw.
    pub(crate) fn without_duplicates(self) -> Self {
        let mut seen = HashSet::new();
        let kept = self.0.into_iter().rev();
        let mut kept: Vec<_> = kept.filter(|(n, _)| seen.insert(n.clone())).collect();
        kept.reverse();
        Self(kept)
    }

    /// Replaces the value, or adds it at the end.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        let Ok(raw) = serde_json::value::to_raw_value(value) else {
            return;
        };
        match self.0.iter_mut().rev().find(|(n, _)| n == name) {
            Some(member) => member.1 = raw,
            None => self.0.push((name.to_owned(), raw)),
        }
    }

    /// Sets all members of `other`.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.set(&name, &value);
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // Names are strings and values are valid JSON, so this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_members_keep_their_bytes() {
        let text = r#"{"z":1.0,"a":123456789012345678901234567890,"b":{"y" : [1, 2]}}"#;
        let mut members = Members::parse(text.as_bytes()).unwrap();
        assert_eq!(members.to_bytes(), text.as_bytes());
        members.set("a", &"new");
        members.remove("z");
        members.set("c", &true);
        assert_eq!(
            String::from_utf8(members.to_bytes()).unwrap(),
            r#"{"a":"new","b":{"y" : [1, 2]},"c":true}"#
        );
    }
}
