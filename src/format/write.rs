//! Writing JSON objects key by key, in a given order, with values that may be raw JSON.

use std::fmt::Write;
use std::io;

/// How a program spaces its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// `{"a": 1, "b": 2}`, as Python writes it.
    Spaced,
    /// `{"a":1,"b":2}`.
    Compact,
}

/// An object in the making.
#[derive(Debug)]
pub(crate) struct Object {
    text: String,
    spacing: Spacing,
}

impl Object {
    pub(crate) fn new(spacing: Spacing) -> Object {
        Object { text: "{".to_owned(), spacing }
    }

    /// Adds a text.
    pub(crate) fn text(self, key: &str, value: &str) -> Object {
        let value = quoted(value);
        self.put(key, &value)
    }

    /// Adds a text, unless there is none.
    pub(crate) fn text_if(self, key: &str, value: Option<&str>) -> Object {
        match value {
            Some(value) => self.text(key, value),
            None => self,
        }
    }

    /// Adds a number.
    pub(crate) fn number(self, key: &str, value: u64) -> Object {
        self.put(key, &value.to_string())
    }

    /// Adds JSON, spaced like the rest.
    pub(crate) fn raw(self, key: &str, json: &str) -> Object {
        let json = respaced(json, self.spacing);
        self.put(key, &json)
    }

    fn put(mut self, key: &str, value: &str) -> Object {
        let (comma, colon) = match self.spacing {
            Spacing::Spaced => (", ", ": "),
            Spacing::Compact => (",", ":"),
        };
        let comma = if self.text.len() > 1 { comma } else { "" };
        _ = write!(self.text, "{comma}{}{colon}{value}", quoted(key));
        self
    }

    pub(crate) fn finish(mut self) -> String {
        self.text.push('}');
        self.text
    }
}

/// A JSON string. Only what has to be escaped is, so text above ASCII stays as it is.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// A value as Python writes it, numbers included.
pub(crate) fn spaced(value: &serde_json::Value) -> String {
    let mut bytes = Vec::new();
    let mut to = serde_json::Serializer::with_formatter(&mut bytes, Python);
    // Writing a value to memory cannot fail.
    _ = serde::Serialize::serialize(value, &mut to);
    String::from_utf8(bytes).unwrap_or_default()
}

struct Python;

impl serde_json::ser::Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, to: &mut W, value: f64) -> io::Result<()> {
        to.write_all(float(value).as_bytes())
    }
}

/// A finite number in the shortest way that reads back, with an exponent below 1e-4 and from 1e16
/// on.
fn float(value: f64) -> String {
    let shortest = format!("{value:e}");
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    match exponent.parse::<i32>().unwrap_or_default() {
        -4..16 => format!("{value:?}"),
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

/// The same JSON with other white space between its tokens, on one line.
pub(crate) fn respaced(json: &str, spacing: Spacing) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in json.chars() {
        if in_string {
            out.push(c);
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => {}
            ',' | ':' if spacing == Spacing::Spaced => {
                out.push(c);
                out.push(' ');
            }
            c => {
                in_string = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// JSON with U+FFFD in the place of escapes of NUL and of half a surrogate pair, and `null` in that
/// of a number that is not finite; `None` where there is nothing of the kind.
pub(crate) fn made_safe(json: &str) -> Option<String> {
    let suspicious = ["\\u", "NaN", "Infinity"].iter().any(|sign| json.contains(sign));
    if !suspicious {
        return None;
    }
    let (mut out, mut changed) = (String::with_capacity(json.len()), false);
    let (mut rest, mut in_string) = (json, false);
    while let Some(c) = rest.chars().next() {
        let (len, instead) = match (in_string, c) {
            (true, '\\') => escape(rest),
            (false, 'N' | 'I' | '-') => {
                let not_finite = ["NaN", "Infinity", "-Infinity"];
                let found = not_finite.into_iter().find(|name| rest.starts_with(name));
                found.map_or((c.len_utf8(), None), |name| (name.len(), Some("null")))
            }
            _ => {
                in_string ^= c == '"';
                (c.len_utf8(), None)
            }
        };
        let (part, after) = rest.split_at(len.min(rest.len()));
        changed |= instead.is_some();
        out.push_str(instead.unwrap_or(part));
        rest = after;
    }
    changed.then_some(out)
}

/// JSON with its escapes decoded, for people to read and to look for text in; it is no JSON then.
pub(crate) fn without_escapes(json: &str) -> std::borrow::Cow<'_, str> {
    if !json.contains('\\') {
        return json.into();
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        out.push_str(before);
        let (len, _) = escape(escaped);
        let (part, after) = escaped.split_at(len.max(1).min(escaped.len()));
        let text = serde_json::from_str::<String>(&format!("\"{part}\""));
        out.push_str(text.as_deref().unwrap_or("\u{FFFD}"));
        rest = after;
    }
    out.push_str(rest);
    out.into()
}

/// How long the escape at the beginning of `rest` is, and what stands in its place if strict readers
/// refuse it.
fn escape(rest: &str) -> (usize, Option<&'static str>) {
    let unit = |at: usize| {
        let digits = rest.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    match (unit(0), unit(6)) {
        (None, _) => (rest.chars().take(2).map(char::len_utf8).sum(), None),
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, None),
        (Some(0 | 0xD800..=0xDFFF), _) => (6, Some("\\ufffd")),
        (Some(_), _) => (6, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_python_spells_them() {
        for text in [
            "0.0",
            "-0.0",
            "1.0",
            "0.1",
            "0.0001",
            "1e-05",
            "1.5e-07",
            "1e+16",
            "1e+22",
            "1.7976931348623157e+308",
            "5e-324",
            "123456789012345.0",
            "9007199254740993.0",
            "0.30000000000000004",
            "-2.5e-10",
        ] {
            let value: f64 = text.parse().unwrap();
            let expected = if text == "9007199254740993.0" { "9007199254740992.0" } else { text };
            assert_eq!(float(value), expected);
        }
        let value = serde_json::json!({"a": [1, 1e16, "ä"], "b": {}, "c": []});
        assert_eq!(spaced(&value), r#"{"a": [1, 1e+16, "ä"], "b": {}, "c": []}"#);
    }

    #[test]
    fn escapes_are_decoded_wherever_they_stand() {
        let json = r#"{"a": "println!(\"x\") C:\\U caf\u00e9 \ud83d\udd10\n\ud800."}"#;
        assert_eq!(without_escapes(json), "{\"a\": \"println!(\"x\") C:\\U café 🔐\n\u{FFFD}.\"}");
        assert_eq!(without_escapes("\\"), "\u{FFFD}");
    }

    #[test]
    fn what_strict_readers_refuse_is_replaced_and_nothing_else() {
        for (text, safe) in [
            (
                r#"{"a": NaN, "b": [-Infinity, Infinity, -1]}"#,
                r#"{"a": null, "b": [null, null, -1]}"#,
            ),
            (
                r#"["\ud83d\ude00\ud83d", "\ude00x\u0000"]"#,
                r#"["\ud83d\ude00\ufffd", "\ufffdx\ufffd"]"#,
            ),
            (r#"{"\ud800": "\\ud800 NaN \"Infinity"}"#, r#"{"\ufffd": "\\ud800 NaN \"Infinity"}"#),
        ] {
            assert_eq!(made_safe(text).as_deref(), Some(safe));
        }
        for fine in [r#"{"a": "\\ud800 \u00e9 NaN", "b": -1}"#, r#"["\ud83d\ude00"]"#, "\"\\u"] {
            assert_eq!(made_safe(fine), None, "{fine}");
        }
    }

    #[test]
    fn objects_are_spaced_like_the_program_that_reads_them() {
        let object = |spacing| {
            let object = Object::new(spacing).text("a", "ä\n\"\u{1}/\u{7f}").number("b", 7);
            object
                .raw("c", "{ \"x\" : [1.0,\n2e5 ],\"y,:\":\" \\\" :,\" }")
                .text_if("d", None)
                .finish()
        };
        let spaced = "{\"a\": \"ä\\n\\\"\\u0001/\u{7f}\", \"b\": 7, \
                      \"c\": {\"x\": [1.0, 2e5], \"y,:\": \" \\\" :,\"}}";
        assert_eq!(object(Spacing::Spaced), spaced);
        let compact = "{\"a\":\"ä\\n\\\"\\u0001/\u{7f}\",\"b\":7,\"c\":{\"x\":[1.0,2e5],\"y,:\":\" \\\" :,\"}}";
        assert_eq!(object(Spacing::Compact), compact);
    }
}
