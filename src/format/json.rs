//! Looking into a JSON object without building it: its fields as raw text.
//!
//! Values are skipped without recursion, so depth, number size and lone surrogates do not matter.
//! Where a key stands twice the last value counts. `NaN`, `Infinity` and `-Infinity`, which are no
//! JSON but occur in files that Python writes, are taken as numbers.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Damage;

/// The raw values of the wanted keys, in the order of `keys`.
pub(super) fn fields<'l, const N: usize>(
    text: &'l str,
    keys: [&'static str; N],
) -> Result<[Option<&'l str>; N], Damage> {
    let found = match ranges(text, keys) {
        // Not JSON by the letter: once more with the numbers replaced that only Python writes.
        Err(Damage::BadJson) => match without_non_finite(text) {
            Some(strict) => ranges(&strict, keys)?,
            None => return Err(Damage::BadJson),
        },
        other => other?,
    };
    Ok(found.map(|range| range.and_then(|range| text.get(range))))
}

type Ranges<const N: usize> = [Option<Range<usize>>; N];

fn ranges<const N: usize>(text: &str, keys: [&'static str; N]) -> Result<Ranges<N>, Damage> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let fields = deserializer.deserialize_map(FieldsVisitor(keys));
    match (fields, deserializer.end()) {
        (Ok(fields), Ok(())) => Ok(fields.map(|raw| raw.map(|raw| range_in(text, raw.get())))),
        // Valid JSON of another type, or no JSON at all?
        _ => match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => Err(Damage::NotAnObject),
            Err(_) => Err(Damage::BadJson),
        },
    }
}

/// Where `part`, which is a slice of `text`, stands in it.
fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - text.as_ptr().addr();
    start..start + part.len()
}

/// The text with each `NaN` and `Infinity` outside of strings replaced by a number of the same
/// length; `None` when there is none.
fn without_non_finite(text: &str) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    let mut replaced = false;
    let mut at = 0;
    let mut before = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.first().copied().unwrap_or_default();
        at += match rest {
            [b'"', ..] => string_len(rest),
            [n @ b'N', a @ b'a', b @ b'N', ..] if before != b'-' => {
                (*n, *a, *b) = (b'1', b'e', b'0');
                replaced = true;
                3
            }
            _ if rest.starts_with(b"Infinity") => {
                rest.iter_mut().take(8).for_each(|b| *b = b'1');
                replaced = true;
                8
            }
            _ => 1,
        };
        before = first;
    }
    if replaced { String::from_utf8(bytes).ok() } else { None }
}

/// The length of the string that `bytes` begin with, quotes included.
fn string_len(bytes: &[u8]) -> usize {
    let mut escaped = false;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

/// A line as text.
pub(super) fn text(line: &[u8]) -> Result<&str, Damage> {
    std::str::from_utf8(line).map_err(|_| Damage::InvalidUtf8)
}

/// A string's text; lone surrogates become U+FFFD.
pub(super) fn string(raw: &str) -> Option<Cow<'_, str>> {
    if let Ok(Text(text)) = serde_json::from_str(raw) {
        return Some(text);
    }
    let bytes: Bytes<'_> = serde_json::from_str(raw).ok()?;
    Some(Cow::Owned(String::from_utf8_lossy(&bytes.0).into_owned()))
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
struct Bytes<'l>(Cow<'l, [u8]>);

impl<'l> Deserialize<'l> for Bytes<'l> {
    fn deserialize<D: Deserializer<'l>>(deserializer: D) -> Result<Bytes<'l>, D::Error> {
        struct BytesVisitor;
        impl<'l> Visitor<'l> for BytesVisitor {
            type Value = Bytes<'l>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_bytes<E>(self, bytes: &'l [u8]) -> Result<Bytes<'l>, E> {
                Ok(Bytes(Cow::Borrowed(bytes)))
            }
            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes<'l>, E> {
                Ok(Bytes(Cow::Owned(bytes.to_owned())))
            }
            fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Bytes<'l>, E> {
                Ok(Bytes(Cow::Borrowed(text.as_bytes())))
            }
            fn visit_str<E>(self, text: &str) -> Result<Bytes<'l>, E> {
                Ok(Bytes(Cow::Owned(text.as_bytes().to_owned())))
            }
        }
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct FieldsVisitor<const N: usize>([&'static str; N]);

impl<'l, const N: usize> Visitor<'l> for FieldsVisitor<N> {
    type Value = [Option<&'l RawValue>; N];

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(key) = map.next_key::<Bytes<'l>>()? {
            let value: &'l RawValue = map.next_value()?;
            let wanted = self.0.iter().position(|wanted| wanted.as_bytes() == &*key.0);
            if let Some(slot) = wanted.and_then(|index| found.get_mut(index)) {
                *slot = Some(value);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let [a] = fields(r#"{"a":1,"b":2,"a":3}"#, ["a"]).unwrap();
        assert_eq!(a, Some("3"));
    }

    #[test]
    fn depth_numbers_and_lone_surrogates_do_not_matter() {
        let deep = format!("{{\"a\":{}1{},\"b\":1E400}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(fields(&deep, ["b"]).unwrap()[0].is_some());
        let [k] = fields(r#"{"\ud800":1,"k":"x\udfffy"}"#, ["k"]).unwrap();
        assert!(string(k.unwrap()).unwrap().starts_with('x'));
    }

    #[test]
    fn numbers_that_only_python_writes_are_numbers() {
        let line = r#"{"a":NaN,"b":[-Infinity,Infinity],"NaN":"Infinity \"NaN"}"#;
        let found = fields(line, ["a", "b", "NaN"]).unwrap();
        assert_eq!(
            found,
            [Some("NaN"), Some("[-Infinity,Infinity]"), Some("\"Infinity \\\"NaN\"")]
        );
        for bad in [r#"{"a":NaNNaN}"#, r#"{"a":-NaN}"#, r#"{"a":"NaN}"#] {
            assert_eq!(fields(bad, ["a"]).unwrap_err(), Damage::BadJson, "{bad}");
        }
    }

    #[test]
    fn what_is_no_object_is_told_from_what_is_no_json() {
        for other in ["1", "[]", "null", "\"x\"", " [1] "] {
            assert_eq!(fields(other, ["a"]).unwrap_err(), Damage::NotAnObject, "{other}");
        }
        for bad in ["", "{", "{\"a\":1", "{\"a\":1}}", "{}{}", "{\"a\" 1}", "nul"] {
            assert_eq!(fields(bad, ["a"]).unwrap_err(), Damage::BadJson, "{bad}");
        }
    }
}
