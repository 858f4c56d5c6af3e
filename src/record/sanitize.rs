//! Taking secrets out of what is traced.
//!
//! The values of keys that name a secret become `***`, ids of sessions and calls among them; keys of
//! known services and bearer tokens are masked wherever they stand, and home directories lose the
//! user's name. That is MyCodeAgent's rule with more keys and services in it; it is a precaution, not
//! a proof that no secret is left.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::bytes::within;
use crate::event::Json;
use crate::format::json_text;
use crate::format::skip::string_end;
use crate::format::syntax::Walker;
use crate::format::write::quoted;
use crate::steps;

/// Keys whose values are secret; compared without case, `-` and `_`.
const KEYS: [&str; 21] = [
    "apikey",
    "auth",
    "authorization",
    "accesskey",
    "accesstoken",
    "authtoken",
    "callid",
    "clientsecret",
    "cookie",
    "credentials",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "refreshtoken",
    "secret",
    "secretkey",
    "sessionid",
    "setcookie",
    "token",
    "toolcallid",
];

/// Keys that end in one of these name a secret too, unless the value is a number or a boolean:
/// `openai_api_key`, `X-Auth-Token`, but not `prompt_tokens: 3`.
const KEY_ENDS: [&str; 17] = [
    "accesskey",
    "accesskeyid",
    "apikey",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "passwords",
    "privatekey",
    "secret",
    "secretkey",
    "secrets",
    "token",
    "tokens",
];

/// Keys that end like that and name no secret.
const HARMLESS: [&str; 6] =
    ["bostoken", "eostoken", "maxtokens", "nextpagetoken", "pagetoken", "stoptoken"];

/// A pattern, and what stands in its place.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let patterns = [
        (r"(^|[^A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}", "${1}sk-***"),
        (r"\b(gh[pousr]_|github_pat_)[A-Za-z0-9_]{16,}", "${1}***"),
        (r"\bAKIA[0-9A-Z]{16}\b", "AKIA***"),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}", "${1} ***"),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]*[0-9][A-Za-z0-9._~+/=-]*", "${1} ***"),
        (r"(://)[^/\s]*:[^/\s]*@", "${1}***@"),
        (r"\b(xox[abeprs]-|AIza|glpat-|hf_|npm_|ASIA)[A-Za-z0-9_-]{12,}", "${1}***"),
        (r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]*)?", "eyJ***"),
        (r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|\z)", "${1}***${2}"),
        (
            r#"(?i)([a-z0-9_.-]*(?:api[_-]?key|secret|token|passw(?:or)?d|passphrase)["']?\s*[=:]\s*["']?)[^\s&"',;}]{4,}"#,
            "${1}***",
        ),
        (r#"(/home/|/Users/|\\(?i:users)\\)[^/\\\s"':;,]+"#, "${1}***"),
    ];
    let compiled = patterns.into_iter().map(|(pattern, with)| (Regex::new(pattern), with));
    // They are constant, and a test compiles them all.
    compiled.filter_map(|(pattern, with)| Some((pattern.ok()?, with))).collect()
});

/// The value without what looks like a secret.
///
/// ```
/// use eventlog::event::Json;
/// use eventlog::record::sanitize;
///
/// let value = Json::parse(r#"{"path": "/home/alice/x", "api_key": {"k": 1}}"#).unwrap();
/// assert_eq!(sanitize(&value).as_str(), r#"{"path": "/home/***/x", "api_key": "***"}"#);
/// ```
pub fn sanitize(value: &Json) -> Json {
    without_secrets(value, NESTED_MAX)
}

/// JSON in a string is looked into, and JSON in a string of that, so often. What is inside of more strings is
/// masked: each costs another look at it, and where it is written again its escapes are twice as long.
const NESTED_MAX: usize = 8;

/// `nested` is how often JSON in a string may still be looked into.
fn without_secrets(value: &Json, nested: usize) -> Json {
    let text = value.as_str();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for secret in secrets(text) {
        mask_strings(within(text, at..secret.start), nested, &mut out);
        out.push_str("\"***\"");
        at = secret.end;
    }
    mask_strings(within(text, at..), nested, &mut out);
    Json::raw(out)
}

/// Where the values of secret keys stand, outermost ones alone, in order.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    Walker::default().walk(text.as_bytes(), 0, &mut |path, value| {
        let raw = format!("\"{}\"", path.last_key());
        let key = json_text(&raw).unwrap_or_default().to_lowercase();
        let key: String = key.chars().filter(|c| c.is_alphanumeric()).collect();
        let plain = !within(text, value.clone()).starts_with(['"', '{', '[']);
        let ends = || KEY_ENDS.iter().any(|end| key.ends_with(end)) && !HARMLESS.contains(&&*key);
        if KEYS.contains(&&*key) || (!plain && ends()) {
            // Inner members come first.
            while found.last().is_some_and(|inner| inner.start >= value.start) {
                found.pop();
            }
            found.push(value);
        }
    });
    found
}

/// JSON with every string in it masked.
fn mask_strings(json: &str, nested: usize, out: &mut String) {
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let (before, string) = rest.split_at(start);
        let end = string_end(string.as_bytes(), 0);
        let (string, after) = string.split_at(end);
        steps::count();
        out.push_str(before);
        let text = json_text(string).unwrap_or_default();
        // JSON in a string is looked into as well.
        let starts = text.trim_start().starts_with(['{', '[']);
        let inner = starts.then(|| Json::parse(&text)).flatten();
        let mut masked = inner.and_then(|inner| match nested.checked_sub(1) {
            Some(nested) => {
                let clean = without_secrets(&inner, nested);
                (clean != inner).then(|| clean.as_str().to_owned())
            }
            None => Some("***".to_owned()),
        });
        for (pattern, with) in PATTERNS.iter() {
            let current: &str = masked.as_deref().unwrap_or(&text);
            if let std::borrow::Cow::Owned(changed) = pattern.replace_all(current, *with) {
                masked = Some(changed);
            }
        }
        match masked {
            Some(masked) => out.push_str(&quoted(&masked)),
            None => out.push_str(string),
        }
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sanitized(text: &str) -> String {
        sanitize(&Json::parse(text).unwrap()).as_str().to_owned()
    }

    #[test]
    fn all_patterns_are_in_use() {
        assert_eq!(PATTERNS.len(), 11);
    }

    #[test]
    fn secrets_go_by_key_and_by_look() {
        for (text, expected) in [
            (r#"{"Token": [1, {"password": 2}], "a": 1}"#, r#"{"Token": "***", "a": 1}"#),
            (
                r#"{"X": {"API-Key": null}, "b": {"auth": {}}}"#,
                r#"{"X": {"API-Key": "***"}, "b": {"auth": "***"}}"#,
            ),
            (
                r#"{"prompt_tokens": 3, "max_tokens": 4}"#,
                r#"{"prompt_tokens": 3, "max_tokens": 4}"#,
            ),
            (r#"{"to\u006ben": "x"}"#, r#"{"to\u006ben": "***"}"#),
            (
                r#"["Bearer abcdefg1", "sk-aaaaaaaaaaaaaaaaaaaa!", "task-management-systems"]"#,
                r#"["Bearer ***", "sk-***!", "task-management-systems"]"#,
            ),
            (
                r#"{"text": "see \/home\/al\"ice/x and /Users/bob"}"#,
                r#"{"text": "see /home/***\"ice/x and /Users/***"}"#,
            ),
            (
                r#"{"a": "C:\\Users\\bob\\x", "b": "ghp_0123456789abcdefghij"}"#,
                r#"{"a": "C:\\Users\\***\\x", "b": "ghp_***"}"#,
            ),
            (
                r#"{"openai_api_key": "k", "x-auth-token": "t", "DB Password ": "p", "token_count": "3"}"#,
                r#"{"openai_api_key": "***", "x-auth-token": "***", "DB Password ": "***", "token_count": "3"}"#,
            ),
            (
                r#"{"s": "{\"password\": \"x\", \"n\": 1}", "u": "https://me:pw@host/x"}"#,
                r#"{"s": "{\"password\": \"***\", \"n\": 1}", "u": "https://***@host/x"}"#,
            ),
            (
                r#"["OPENAI_API_KEY=abcdef x", "redis://:pw@h", "basic understanding", "--password=hunter22"]"#,
                r#"["OPENAI_API_KEY=*** x", "redis://***@h", "basic understanding", "--password=***"]"#,
            ),
            (
                r#"{"max_tokens": "100", "a": "xoxb-0123456789abcdef", "b": "eyJhbGciOiJI.eyJzdWIiOiI.x"}"#,
                r#"{"max_tokens": "100", "a": "xoxb-***", "b": "eyJ***"}"#,
            ),
            (
                r#"["_sk-aaaaaaaaaaaaaaaaaaaa", "c:\\users\\bob\\x"]"#,
                r#"["_sk-***", "c:\\users\\***\\x"]"#,
            ),
            (r#"{"kept": "\ud83d \u00e9 /etc"}"#, r#"{"kept": "\ud83d \u00e9 /etc"}"#),
        ] {
            assert_eq!(sanitized(text), expected);
        }
    }

    #[test]
    fn json_in_strings_is_looked_into_so_often_and_no_more() {
        let nested = |n: usize| {
            let quote = |level: usize| match level {
                0 => "\"".to_owned(),
                level => format!("\\u{}0022", "005cu".repeat(level - 1)),
            };
            let open: String = (0..n).map(|level| format!("[{}", quote(level))).collect();
            let close: String = (0..n).rev().map(|level| format!("{}]", quote(level))).collect();
            Json::parse(&format!("{open}sk-aaaaaaaaaaaaaaaaaaaa{close}")).unwrap()
        };
        let steps = |n: usize| {
            let json = nested(n);
            let (clean, steps) = crate::steps::of(|| sanitize(&json));
            let clean = clean.as_str();
            assert!(clean.contains("***") && !clean.contains("aaaa"));
            assert!(clean.len() < 4 * json.as_str().len());
            steps
        };
        let (few, many) = (steps(NESTED_MAX), steps(NESTED_MAX + 2));
        assert!(few < many && many == steps(150), "{few} {many}");
    }

    #[test]
    fn deep_nesting_is_no_trouble() {
        let text = format!("{}{}", "{\"a\":".repeat(500) + "{\"token\":1}", "}".repeat(500));
        assert!(sanitized(&text).contains("***"));
    }
}
