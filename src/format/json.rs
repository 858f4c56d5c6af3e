//! Looking into a JSON object without building it: its fields as raw text.
//!
//! Depth, number size and lone surrogates do not matter. Where a key stands twice the last value
//! counts.

use std::borrow::Cow;

use memchr::memchr2;
use serde::de::{Deserialize, Deserializer, Visitor};

use super::syntax::{Notes, Walk, Walker, trim};
use super::{Damage, skip};
use crate::bytes::within;

/// The raw values at `paths`, in their order, and what was noted on the way. A path is the keys
/// that lead to the value, outermost first. White space around the object is passed over.
///
/// # Errors
///
/// Why the line is no object.
pub(super) fn fields<'l, const N: usize>(
    line: &'l [u8],
    paths: [&[&str]; N],
) -> Result<([Option<&'l str>; N], Notes), Damage> {
    let text = std::str::from_utf8(trim(line)).map_err(|_| Damage::InvalidUtf8)?;
    let mut walker = Walker::default();
    let mut found = [const { None }; N];
    let walk = walker.walk(text.as_bytes(), 0, &mut |path, value| {
        for (slot, keys) in found.iter_mut().zip(&paths) {
            if path.is(keys) {
                *slot = Some(within(text, value.clone()));
            }
        }
    });
    match walk {
        Walk::Whole(end) if end == text.len() && text.starts_with('{') => Ok((found, walker.notes)),
        Walk::Whole(end) if end == text.len() => Err(Damage::NotAnObject),
        Walk::TooDeep => Err(Damage::TooDeep),
        _ => Err(Damage::BadJson),
    }
}

/// The keys and raw values of an object's members, in order; nothing where `raw` is none.
pub(super) fn members(raw: &str) -> Vec<(Cow<'_, str>, &str)> {
    let mut members = Vec::new();
    skip::members(raw, |key, value| members.push((decoded(key), value)));
    members
}

/// Whether `line` is an object with something in it, without the member `own`, and with less than
/// half of those that are `required`: too few for a record that has lost some.
pub(super) fn is_foreign(line: &[u8], own: &str, required: &[&str]) -> bool {
    let Ok(text) = std::str::from_utf8(trim(line)) else { return false };
    let members = members(text);
    let has = |key: &str| members.iter().any(|(found, _)| found == key);
    let there = required.iter().filter(|key| has(key)).count();
    !members.is_empty() && !has(own) && there * 2 < required.len()
}

/// Calls `each` with the key and the raw value of each member, in order.
pub(super) fn each_member<'l>(raw: &'l str, mut each: impl FnMut(&str, &'l str)) {
    skip::members(raw, |key, value| match key.contains('\\') {
        true => each(&decoded(key), value),
        false => each(key, value),
    });
}

/// [`each_member`], and in the same pass those of the object that is the member `inner`.
pub(super) fn each_member_and<'l>(
    raw: &'l str,
    inner: &str,
    mut each: impl FnMut(&str, &'l str),
    mut each_inner: impl FnMut(&str, &'l str),
) {
    let plain = |key: &'l str| match key.contains('\\') {
        true => decoded(key),
        false => Cow::Borrowed(key),
    };
    skip::members_and(
        raw,
        inner,
        |key, value| each(&plain(key), value),
        |key, value| each_inner(&plain(key), value),
    );
}

/// The raw value of a member of an object; where the key stands twice, the last one.
pub(super) fn member<'l>(raw: &'l str, wanted: &str) -> Option<&'l str> {
    let mut found = None;
    skip::members(raw, |key, value| {
        if key == wanted || (key.contains('\\') && decoded(key) == wanted) {
            found = Some(value);
        }
    });
    found
}

/// A key as text.
fn decoded(key: &str) -> Cow<'_, str> {
    match key.contains('\\') {
        true => Cow::Owned(string(&format!("\"{key}\"")).unwrap_or_default().into_owned()),
        false => Cow::Borrowed(key),
    }
}

/// A string's text; each lone surrogate becomes U+FFFD.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(plain) = inner.filter(|inner| memchr2(b'\\', b'"', inner.as_bytes()).is_none()) {
        return Some(Cow::Borrowed(plain));
    }
    if let Some(text) = inner.and_then(with_plain_escapes) {
        return Some(Cow::Owned(text));
    }
    if let Ok(Text(text)) = serde_json::from_str(raw) {
        return Some(text);
    }
    let Bytes(bytes) = serde_json::from_str(raw).ok()?;
    Some(Cow::Owned(without_surrogates(&bytes)))
}

/// The text between the quotes of a string, where no escape in it is a number.
fn with_plain_escapes(inner: &str) -> Option<String> {
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr2(b'\\', b'"', rest.as_bytes()) {
        let (plain, escape) = rest.split_at(at);
        text.push_str(plain);
        let mut escape = escape.strip_prefix('\\')?.chars();
        text.push(match escape.next()? {
            plain @ ('"' | '\\' | '/') => plain,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            _ => return None,
        });
        rest = escape.as_str();
    }
    text.push_str(rest);
    Some(text)
}

/// Text from bytes in which surrogates are encoded one by one, each replaced by U+FFFD.
fn without_surrogates(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => {
                let (valid, after) = rest.split_at(error.valid_up_to());
                text.push_str(&String::from_utf8_lossy(valid));
                text.push('\u{FFFD}');
                // A surrogate takes three bytes; anything else cannot come from JSON.
                let is_surrogate = matches!(after, [0xED, 0xA0..=0xBF, _, ..]);
                rest = within(after, if is_surrogate { 3 } else { 1 }..);
            }
        }
    }
}

/// A scalar as the text that the original programs make of it.
pub(super) fn scalar_text(raw: &str) -> Option<Cow<'_, str>> {
    match raw.as_bytes().first()? {
        b'"' => string(raw),
        b't' => Some("True".into()),
        b'f' => Some("False".into()),
        b'n' => Some("None".into()),
        b'{' | b'[' => None,
        _ => Some(raw.into()),
    }
}

struct Text<'l>(Cow<'l, str>);

impl<'l> Deserialize<'l> for Text<'l> {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Text<'l>, D::Error> {
        struct TextVisitor;
        impl<'l> Visitor<'l> for TextVisitor {
            type Value = Text<'l>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Text<'l>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'l>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A string as bytes: serde_json passes lone surrogates through here.
struct Bytes(Vec<u8>);

impl<'l> Deserialize<'l> for Bytes {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct BytesVisitor;
        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes(bytes.to_owned()))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let ([a], notes) = fields(br#"{"a":1,"b":2,"a":3}"#, [&["a"]]).unwrap();
        assert_eq!((a, notes.duplicate_key), (Some("3"), true));
    }

    #[test]
    fn numbers_and_lone_surrogates_do_not_matter() {
        let line = br#"{"\ud800":1,"b":1E400,"k":"x\udfff\ud83dy"}"#;
        let ([b, k], _) = fields(line, [&["b"], &["k"]]).unwrap();
        assert_eq!(b, Some("1E400"));
        assert_eq!(string(k.unwrap()).unwrap(), "x\u{FFFD}\u{FFFD}y");
    }

    #[test]
    fn numbers_that_only_python_writes_are_numbers() {
        let line = br#"{"a":NaN,"b":[-Infinity,Infinity],"NaN":"Infinity \"NaN"}"#;
        let (found, _) = fields(line, [&["a"], &["b"], &["NaN"]]).unwrap();
        assert_eq!(
            found,
            [Some("NaN"), Some("[-Infinity,Infinity]"), Some("\"Infinity \\\"NaN\"")]
        );
        for bad in [r#"{"a":NaNNaN}"#, r#"{"a":-NaN}"#, r#"{"a":"NaN}"#] {
            assert_eq!(fields(bad.as_bytes(), [&["a"]]).unwrap_err(), Damage::BadJson, "{bad}");
        }
    }

    #[test]
    fn what_is_no_object_is_told_from_what_is_no_json() {
        for other in ["1", "[]", "null", "\"x\"", " [1] "] {
            let found = fields(other.as_bytes(), [&["a"]]).unwrap_err();
            assert_eq!(found, Damage::NotAnObject, "{other}");
        }
        for bad in ["", "{", "{\"a\":1", "{\"a\":1}}", "{}{}", "{\"a\" 1}", "nul"] {
            assert_eq!(fields(bad.as_bytes(), [&["a"]]).unwrap_err(), Damage::BadJson, "{bad}");
        }
    }
}
