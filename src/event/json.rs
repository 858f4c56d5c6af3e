//! A JSON value as the text that it stands in.
//!
//! Numbers, key order, escapes and repeated keys stay as they were written. `NaN` and the
//! infinities, which Python writes, are kept too; only [`Serialize`] turns them into text, since no
//! reader of JSON would take them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::Text;
use crate::format::write::{Spacing, respaced};
use crate::format::{
    Notes, json_each_member, json_each_member_and, json_elements, json_member, json_members,
    json_scalar_text, json_text,
};
use crate::steps;

/// A JSON value as text.
///
/// ```
/// use eventlog::event::Json;
///
/// let value = Json::parse(r#"{"a": 1.0, "b": {"c": "x"}}"#).unwrap();
/// assert_eq!(value.get("a").unwrap().as_str(), "1.0");
/// assert_eq!(value.get("b").unwrap().get("c").unwrap().text().unwrap(), "x");
/// ```
///
/// What is looked up in a value is a part of it and costs no copy.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json(Text);

impl Json {
    pub(super) const OBJECT: Json = Json(Text::literal(arcstr::literal_substr!("{}")));

    /// The value in `text`, `None` where that is not one value.
    pub fn parse(text: &str) -> Option<Json> {
        let text = text.trim_ascii();
        let mut walker = crate::format::syntax::Walker::default();
        let walk = walker.walk(text.as_bytes(), 0, &mut |_, _| {});
        let whole = matches!(walk, crate::format::syntax::Walk::Whole(end) if end == text.len());
        whole.then(|| Json(text.into()))
    }

    /// A value that is known to be one.
    pub(crate) fn raw(text: impl Into<Text>) -> Json {
        Json(text.into())
    }

    /// A string.
    pub fn string(text: &str) -> Json {
        Json(crate::format::write::quoted(text).into())
    }

    /// The empty object.
    pub fn object() -> Json {
        Json::OBJECT
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
    pub fn members(&self) -> Vec<(Text, Json)> {
        self.put_together().pairs
    }

    fn put_together(&self) -> Members {
        let mut members = Members::default();
        for (key, raw) in json_members(&self.0) {
            members.put(self.0.cow(key), self.part(raw));
        }
        members
    }

    /// The values of several members of an object, as they stand there.
    pub(crate) fn find<const N: usize>(&self, keys: [&str; N]) -> [Option<&str>; N] {
        let mut found = [const { None }; N];
        json_each_member(&self.0, |key, raw| put(&mut found, &keys, key, raw));
        found
    }

    /// The value of a member of an object.
    pub fn get(&self, key: &str) -> Option<Json> {
        json_member(&self.0, key).map(|raw| self.part(raw))
    }

    /// A value that stands in this one.
    pub(super) fn part(&self, raw: &str) -> Json {
        Json(self.0.part(raw))
    }

    /// The text of a member; empty where there is none.
    pub(crate) fn id_of(&self, key: &str) -> Text {
        json_member(&self.0, key).map(|raw| self.0.cow(id(raw))).unwrap_or_default()
    }

    /// [`Json::find`], and in the same pass `inner_keys` of the object that is the member `inner`.
    /// Where that stands twice, they are of the last.
    pub(super) fn find_and<const N: usize, const M: usize>(
        &self,
        keys: [&str; N],
        inner: &str,
        inner_keys: [&str; M],
    ) -> ([Option<&str>; N], [Option<&str>; M]) {
        let (mut found, mut found_inner) = ([const { None }; N], [const { None }; M]);
        let mut times = 0;
        json_each_member_and(
            &self.0,
            inner,
            |key, raw| {
                times += usize::from(key == inner);
                put(&mut found, &keys, key, raw);
            },
            |key, raw| put(&mut found_inner, &inner_keys, key, raw),
        );
        if times > 1 {
            found_inner = [const { None }; M];
            let last = json_member(&self.0, inner).unwrap_or_default();
            json_each_member(last, |key, raw| put(&mut found_inner, &inner_keys, key, raw));
        }
        (found, found_inner)
    }

    /// See [`Json::id`], of a value that stands in this one.
    pub(super) fn id_in(&self, raw: &str) -> Text {
        self.0.cow(id(raw))
    }

    /// [`Json::id_of`] for several members at once.
    pub(crate) fn ids_of<const N: usize>(&self, keys: [&str; N]) -> [Text; N] {
        self.find(keys).map(|raw| raw.map(|raw| self.id_in(raw)).unwrap_or_default())
    }

    /// The elements of an array.
    pub fn elements(&self) -> Vec<Json> {
        json_elements(&self.0).into_iter().map(|raw| self.part(raw)).collect()
    }

    /// The text of a string; each lone surrogate becomes U+FFFD.
    pub fn text(&self) -> Option<Text> {
        if self.0.starts_with('"') { json_text(&self.0).map(|text| self.0.cow(text)) } else { None }
    }

    /// What a message's content says: a string's text; of a list of text blocks their texts, one
    /// below the other; of anything else but `null` its JSON.
    pub(crate) fn shown(&self) -> Text {
        if self.is_null() {
            return Text::EMPTY;
        }
        if let Some(text) = self.text() {
            return text;
        }
        let block = |block: Json| match &*block.id_of("type") {
            "text" => block.get("text").and_then(|text| text.text()),
            _ => None,
        };
        let blocks = self.elements().into_iter().map(block).collect::<Option<Vec<Text>>>();
        match blocks.filter(|blocks| !blocks.is_empty()) {
            Some(blocks) => blocks.join("\n").into(),
            None => respaced(&self.0, Spacing::Spaced).into(),
        }
    }

    /// The value with U+FFFD in the place of NUL and of half a surrogate pair, and `null` in that of
    /// a number that is not finite; `None` where there is nothing of the kind.
    pub(crate) fn made_safe(&self) -> Option<Json> {
        crate::format::write::made_safe(&self.0).map(Json::raw)
    }

    /// The text of a string or a number, nothing for anything that counts as empty.
    pub(crate) fn id(&self) -> Text {
        self.0.cow(id(&self.0))
    }

    /// A scalar in this value as the text that MyCodeAgent makes of it.
    pub(super) fn scalar_text(&self, raw: &str) -> Text {
        json_scalar_text(raw).map(|text| self.0.cow(text)).unwrap_or_default()
    }

    /// An object with a member set: in its place if it is there, else at the end.
    pub fn with(&self, key: &str, value: &Json) -> Json {
        if let (None, Some(rest)) = (json_member(&self.0, key), self.0.strip_suffix('}')) {
            let comma = if rest.trim_ascii_end().ends_with('{') { "" } else { ", " };
            let key = crate::format::write::quoted(key);
            return Json(format!("{}{comma}{key}: {value}}}", rest.trim_ascii_end()).into());
        }
        let mut members = self.put_together();
        members.put(key.into(), value.clone());
        Json::from_members(&members.pairs)
    }

    pub(crate) fn from_members(members: &[(Text, Json)]) -> Json {
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

/// Pairs in the order of their first value; a later value takes the place of an earlier one.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) pairs: Vec<(Text, Json)>,
    places: HashMap<Text, usize, foldhash::fast::RandomState>,
}

impl Members {
    pub(crate) fn put(&mut self, key: Text, value: Json) {
        steps::count();
        let place = self.places.get(&key).and_then(|place| self.pairs.get_mut(*place));
        if let Some((_, known)) = place {
            *known = value;
            return;
        }
        self.places.insert(key.clone(), self.pairs.len());
        self.pairs.push((key, value));
    }
}

fn put<'l>(found: &mut [Option<&'l str>], keys: &[&str], key: &str, raw: &'l str) {
    let at = keys.iter().position(|wanted| *wanted == key);
    if let Some(slot) = at.and_then(|at| found.get_mut(at)) {
        *slot = Some(raw);
    }
}

/// See [`Json::id`].
pub(super) fn id(raw: &str) -> Cow<'_, str> {
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
