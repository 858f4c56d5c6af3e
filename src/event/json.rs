//! A JSON value as the text that it stands in.
//!
//! Numbers, key order, escapes and repeated keys stay as they were written. `NaN` and the
//! infinities, which Python writes, are kept too; only [`Serialize`] turns them into text, since no
//! reader of JSON would take them.

use std::borrow::Cow;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::format::{Notes, json_elements, json_member, json_members, json_text};

/// A JSON value as text.
///
/// ```
/// use eventlog::event::Json;
///
/// let value = Json::parse(r#"{"a": 1.0, "b": {"c": "x"}}"#).unwrap();
/// assert_eq!(value.get("a").unwrap().as_str(), "1.0");
/// assert_eq!(value.get("b").unwrap().get("c").unwrap().text().unwrap(), "x");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Box<str>);

impl Json {
    /// The value in `text`, `None` where that is not one value.
    pub fn parse(text: &str) -> Option<Json> {
        let text = text.trim_ascii();
        let mut walker = crate::format::syntax::Walker::default();
        let walk = walker.walk(text.as_bytes(), 0, &mut |_, _| {});
        let whole = matches!(walk, crate::format::syntax::Walk::Whole(end) if end == text.len());
        whole.then(|| Json(text.into()))
    }

    /// A value that is known to be one.
    pub(crate) fn raw(text: impl Into<Box<str>>) -> Json {
        Json(text.into())
    }

    /// A string.
    pub fn string(text: &str) -> Json {
        Json(crate::format::write::quoted(text).into())
    }

    /// The empty object.
    pub fn object() -> Json {
        Json("{}".into())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A list.
    pub fn array(elements: &[Json]) -> Json {
        let elements: Vec<&str> = elements.iter().map(Json::as_str).collect();
        Json(format!("[{}]", elements.join(", ")).into())
    }

    /// Whether it is `null`.
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }

    /// Whether it is an object.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }

    /// The members of an object, in order; where a key stands twice, the last value in the place of
    /// the first. Nothing of anything else.
    pub fn members(&self) -> Vec<(String, Json)> {
        let mut members: Vec<(String, Json)> = Vec::new();
        for (key, raw) in json_members(&self.0) {
            let value = Json::raw(raw);
            match members.iter_mut().find(|(known, _)| *known == *key) {
                Some((_, known)) => *known = value,
                None => members.push((key.into_owned(), value)),
            }
        }
        members
    }

    /// The value of a member of an object.
    pub fn get(&self, key: &str) -> Option<Json> {
        json_member(&self.0, key).map(Json::raw)
    }

    /// The text of a member; empty where there is none.
    pub(crate) fn id_of(&self, key: &str) -> Cow<'_, str> {
        json_member(&self.0, key).map(id).unwrap_or_default()
    }

    /// The elements of an array.
    pub fn elements(&self) -> Vec<Json> {
        json_elements(&self.0).into_iter().map(Json::raw).collect()
    }

    /// The text of a string; each lone surrogate becomes U+FFFD.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        if self.0.starts_with('"') { json_text(&self.0) } else { None }
    }

    /// The text of a string or a number, nothing for anything that counts as empty.
    pub(crate) fn id(&self) -> String {
        id(&self.0).into_owned()
    }

    /// An object with a member set: in its place if it is there, else at the end.
    pub fn with(&self, key: &str, value: &Json) -> Json {
        if let (None, Some(rest)) = (json_member(&self.0, key), self.0.strip_suffix('}')) {
            let comma = if rest.trim_ascii_end().ends_with('{') { "" } else { ", " };
            let key = crate::format::write::quoted(key);
            return Json(format!("{}{comma}{key}: {value}}}", rest.trim_ascii_end()).into());
        }
        let mut members = self.members();
        match members.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value.clone(),
            None => members.push((key.to_owned(), value.clone())),
        }
        Json::from_members(&members)
    }

    pub(crate) fn from_members(members: &[(String, Json)]) -> Json {
        let mut object = crate::format::write::Object::new(crate::format::write::Spacing::Spaced);
        for (key, value) in members {
            object = object.raw(key, value.as_str());
        }
        Json::raw(object.finish())
    }

    /// What strict consumers would refuse in it.
    pub fn notes(&self) -> Notes {
        let mut walker = crate::format::syntax::Walker::default();
        walker.walk(self.0.as_bytes(), 0, &mut |_, _| {});
        walker.notes
    }
}

/// See [`Json::id`].
pub(crate) fn id(raw: &str) -> Cow<'_, str> {
    match raw {
        "null" | "false" | "0" | "0.0" | "\"\"" => Cow::Borrowed(""),
        raw if raw.starts_with('"') => json_text(raw).unwrap_or_default(),
        "true" => Cow::Borrowed("True"),
        raw => Cow::Borrowed(raw),
    }
}

/// Numbers are spelled as the formats spell them: `1.0`, `1e-05`.
impl From<&serde_json::Value> for Json {
    fn from(value: &serde_json::Value) -> Json {
        Json(crate::format::write::spaced(value).into())
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Json {
        Json::from(&value)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match RawValue::from_string(self.0.to_string()) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) => self.0.serialize(serializer),
        }
    }
}
