//! Looking into a JSON object without building it: its fields as raw text.
//!
//! Values are skipped without recursion, so depth, number size and lone surrogates do not matter. Where a key
//! stands twice the last value counts.

use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Damage;

/// The raw values of the wanted keys, in the order of `keys`.
pub(super) fn fields<'l, const N: usize>(
    text: &'l str,
    keys: [&'static str; N],
) -> Result<[Option<&'l RawValue>; N], Damage> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let fields = deserializer.deserialize_map(FieldsVisitor(keys));
    let ended = deserializer.end();
    match (fields, ended) {
        (Ok(fields), Ok(())) => Ok(fields),
        // Valid JSON of another type, or no JSON at all?
        _ => match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => Err(Damage::NotAnObject),
            Err(_) => Err(Damage::BadJson),
        },
    }
}

/// A line as text.
pub(super) fn text(line: &[u8]) -> Result<&str, Damage> {
    std::str::from_utf8(line).map_err(|_| Damage::InvalidUtf8)
}

/// A string's text; lone surrogates become U+FFFD.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    if let Ok(Text(text)) = serde_json::from_str(raw.get()) {
        return Some(text);
    }
    let bytes: Bytes<'_> = serde_json::from_str(raw.get()).ok()?;
    Some(Cow::Owned(String::from_utf8_lossy(&bytes.0).into_owned()))
}

/// A scalar as the text that the original programs make of it.
pub(super) fn scalar_text(raw: &RawValue) -> Option<Cow<'_, str>> {
    match raw.get().as_bytes().first()? {
        b'"' => string(raw),
        b't' => Some("True".into()),
        b'f' => Some("False".into()),
        b'n' => Some("None".into()),
        b'{' | b'[' => None,
        _ => Some(raw.get().into()),
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
        assert_eq!(a.unwrap().get(), "3");
    }

    #[test]
    fn depth_numbers_and_lone_surrogates_do_not_matter() {
        let deep = format!("{{\"a\":{}1{},\"b\":1E400}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(fields(&deep, ["b"]).unwrap()[0].is_some());
        let [k] = fields(r#"{"\ud800":1,"k":"x\udfffy"}"#, ["k"]).unwrap();
        assert!(string(k.unwrap()).unwrap().starts_with('x'));
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
