//! Writing JSON objects key by key, in a given order, with values that may be raw JSON.

use std::fmt::Write;

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

#[cfg(test)]
mod tests {
    use super::*;

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
