//! JSON that keeps the order of members and duplicate keys.
//!
//! `serde_json::Value` keeps neither, and a server must not silently replace another.

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;

pub(super) type Member = (String, Node);

#[derive(Debug)]
pub(super) enum Node {
    Null,
    Bool(bool),
    /// Precise enough: the only numbers we use are times.
    Number(f64),
    String(String),
    Array(Vec<Node>),
    Object(Vec<Member>),
}

impl Node {
    /// Its name in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// The members of an object; none for anything else.
    pub(super) fn members(&self) -> &[Member] {
        match self {
            Self::Object(members) => members,
            _ => &[],
        }
    }
}

/// The value of a key; the first one if it is given twice.
pub(super) fn get<'a>(members: &'a [Member], key: &str) -> Option<&'a Node> {
    members.iter().find(|(name, _)| name == key).map(|(_, value)| value)
}

/// The keys that are given more than once, and how often.
pub(super) fn repeated(members: &[Member]) -> Vec<(&str, usize)> {
    let mut counts: HashMap<&str, usize> = HashMap::with_capacity(members.len());
    for (key, _) in members {
        *counts.entry(key).or_default() += 1;
    }
    // `remove` reports a key once, at its first place.
    members.iter().filter_map(|(key, _)| counts.remove_entry(key.as_str())).filter(|&(_, count)| count > 1).collect()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Number(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Node::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = entries.next_entry()? {
            members.push(member);
        }
        Ok(Node::Object(members))
    }
}
