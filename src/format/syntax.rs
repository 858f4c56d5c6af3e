//! JSON as bytes, walked without recursion.
//!
//! The walk says where a value ends, or where the bytes stop being JSON, and on its way names each
//! member of each object. Depth is bounded, memory is that of the depth, time is linear, whatever
//! the bytes are. The grammar is RFC 8259's with `NaN`, `Infinity` and `-Infinity`, which are no
//! JSON but occur in files that Python writes. Whether the bytes are UTF-8 is not looked at.

use std::collections::HashSet;
use std::ops::Range;

use memchr::memchr;

use crate::bytes::within;
use crate::steps;

/// How deep values may be nested. Python's own reader gives up at 1000.
pub(crate) const DEPTH_MAX: usize = 1024;

/// What a walk came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    /// The value ends here.
    Whole(usize),
    /// The bytes end inside the value. The object that ends where the bytes end, if one does.
    Open(Option<Inner>),
    /// At `at` there is something that cannot stand there. `text` is where the string before it
    /// begins: in broken bytes it may be no string at all.
    Broken { at: usize, text: usize },
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

/// An object inside the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inner {
    pub(crate) range: Range<usize>,
    /// The key of the outermost object that it is the value of, when it stands directly there.
    pub(crate) key: Option<Range<usize>>,
}

/// What was seen on the way that strict consumers refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// A key stands twice in one object.
    pub duplicate_key: bool,
    /// A string has an escape of half a surrogate pair.
    pub lone_surrogate: bool,
    /// A string has an escaped NUL.
    pub nul_in_string: bool,
    /// There is a `NaN` or an infinity.
    pub non_finite: bool,
}

/// An open object or array.
#[derive(Clone, Debug)]
struct Level {
    start: usize,
    is_object: bool,
    /// The key of the member that is open, without its quotes.
    key: Range<usize>,
    /// Where its keys begin in [`Walker::keys`].
    keys: usize,
}

/// Walks values; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Walker {
    levels: Vec<Level>,
    keys: Vec<Range<usize>>,
    pub(crate) notes: Notes,
}

/// The keys that lead to a member, outermost first, the member's own last.
pub(crate) struct Path<'w, 'l> {
    bytes: &'l [u8],
    levels: &'w [Level],
}

impl<'l> Path<'_, 'l> {
    /// Whether this is a member of the object that these keys lead to.
    pub(crate) fn is_member_of(&self, keys: &[&str]) -> bool {
        let Some((last, outer)) = self.levels.split_last() else { return false };
        last.is_object && Path { bytes: self.bytes, levels: outer }.is(keys)
    }

    /// Where the member's key stands, when it is a member of the value itself.
    #[cfg(test)]
    pub(crate) fn only_key(&self) -> Option<Range<usize>> {
        match self.levels {
            [level] if level.is_object => Some(level.key.clone()),
            _ => None,
        }
    }

    /// The member's own key, as it stands there.
    pub(crate) fn last_key(&self) -> String {
        let key = self.levels.last().map(|level| within(self.bytes, level.key.clone()));
        String::from_utf8_lossy(key.unwrap_or_default()).into_owned()
    }

    /// Whether these keys lead here, none of them through an array.
    pub(crate) fn is(&self, keys: &[&str]) -> bool {
        self.levels.len() == keys.len()
            && self.levels.iter().zip(keys).rev().all(|(level, key)| {
                level.is_object && within(self.bytes, level.key.clone()) == key.as_bytes()
            })
    }
}

#[derive(Clone, Copy)]
enum Expect {
    Value,
    /// Or the end of the array.
    FirstValue,
    Key,
    /// Or the end of the object.
    FirstKey,
    Colon,
    CommaOrEnd,
}

/// How a string ends.
enum StringEnd {
    /// Behind its closing quote.
    At(usize),
    Open,
    Broken(usize),
}

/// Objects with more keys than this have their keys compared by hash.
const FEW_KEYS: usize = 64;
/// Beyond this many keys of one object, duplicates are no longer looked for.
const MANY_KEYS: usize = 64 << 10;

impl Walker {
    /// Walks the value that begins at `start`, white space before it included, and calls `member`
    /// with the path and the value of each member of each object, inner ones first.
    pub(crate) fn walk<'l>(
        &mut self,
        bytes: &'l [u8],
        start: usize,
        member: &mut dyn FnMut(Path<'_, 'l>, Range<usize>),
    ) -> Walk {
        self.levels.clear();
        self.keys.clear();
        self.notes = Notes::default();
        let mut many: HashSet<(usize, &'l [u8])> = HashSet::new();
        let mut inner: Option<Inner> = None;
        let mut text = start..start;
        let mut expect = Expect::Value;
        let mut at = start;
        loop {
            at = skip_space(bytes, at);
            let Some(&byte) = bytes.get(at) else {
                let at_end = |inner: &Inner| skip_space(bytes, inner.range.end) == bytes.len();
                return Walk::Open(inner.filter(at_end));
            };
            let broken = |text: Range<usize>| Walk::Broken {
                at,
                text: if skip_space(bytes, text.end) == at { text.start } else { at },
            };
            // The value that has ended, if one has.
            let mut value = match (expect, byte) {
                (Expect::Value | Expect::FirstValue, b'{' | b'[') => {
                    if self.levels.len() == DEPTH_MAX {
                        return Walk::TooDeep;
                    }
                    let is_object = byte == b'{';
                    let keys = self.keys.len();
                    self.levels.push(Level { start: at, is_object, key: at..at, keys });
                    expect = if is_object { Expect::FirstKey } else { Expect::FirstValue };
                    at += 1;
                    continue;
                }
                (Expect::Value | Expect::FirstValue, b'"') => {
                    match string_end(bytes, at, &mut self.notes) {
                        StringEnd::At(end) => {
                            text = at..end;
                            at..end
                        }
                        StringEnd::Open => return Walk::Open(None),
                        StringEnd::Broken(at) => return Walk::Broken { at, text: at },
                    }
                }
                (Expect::Key | Expect::FirstKey, b'"') => {
                    let end = match string_end(bytes, at, &mut self.notes) {
                        StringEnd::At(end) => end,
                        StringEnd::Open => return Walk::Open(None),
                        StringEnd::Broken(at) => return Walk::Broken { at, text: at },
                    };
                    text = at..end;
                    self.add_key(bytes, at + 1..end - 1, &mut many);
                    expect = Expect::Colon;
                    at = end;
                    continue;
                }
                (Expect::Colon, b':') => {
                    expect = Expect::Value;
                    at += 1;
                    continue;
                }
                (Expect::CommaOrEnd, b',') => {
                    let in_object = self.levels.last().is_some_and(|level| level.is_object);
                    expect = if in_object { Expect::Key } else { Expect::Value };
                    at += 1;
                    continue;
                }
                (Expect::CommaOrEnd | Expect::FirstKey, b'}')
                | (Expect::CommaOrEnd | Expect::FirstValue, b']') => {
                    let closes_object = byte == b'}';
                    match self.levels.pop_if(|level| level.is_object == closes_object) {
                        Some(level) => {
                            let keys = self.keys.drain(level.keys..);
                            if keys.len() > FEW_KEYS {
                                for key in keys {
                                    steps::count();
                                    many.remove(&(level.start, within(bytes, key)));
                                }
                            }
                            let range = level.start..at + 1;
                            if closes_object {
                                let key = match self.levels.as_slice() {
                                    [outer] if outer.is_object => Some(outer.key.clone()),
                                    _ => None,
                                };
                                inner = Some(Inner { range: range.clone(), key });
                            }
                            range
                        }
                        None => return broken(text),
                    }
                }
                (Expect::Value | Expect::FirstValue, _) => match scalar_end(bytes, at) {
                    Some(end) => {
                        // `NaN` and `Infinity` alone end so.
                        let letter = bytes.get(end - 1);
                        self.notes.non_finite |= matches!(letter, Some(b'N' | b'y'));
                        at..end
                    }
                    // What is there may be the beginning of a literal or a number.
                    None if cut_scalar(within(bytes, at..)) => {
                        return Walk::Open(None);
                    }
                    None => return broken(text),
                },
                _ => return broken(text),
            };
            at = value.end;
            expect = Expect::CommaOrEnd;
            match self.levels.last() {
                None => return Walk::Whole(at),
                Some(level) if level.is_object => {
                    let value = std::mem::take(&mut value);
                    member(Path { bytes, levels: &self.levels }, value);
                }
                Some(_) => {}
            }
        }
    }

    fn add_key<'l>(
        &mut self,
        bytes: &'l [u8],
        key: Range<usize>,
        many: &mut HashSet<(usize, &'l [u8])>,
    ) {
        let Some(level) = self.levels.last_mut() else { return };
        level.key = key.clone();
        let (start, before) = (level.start, within(&*self.keys, level.keys..));
        let name = |range: &Range<usize>| within(bytes, range.clone());
        let found = name(&key);
        let twice = match before.len() {
            // Nobody writes such an object by hand, and its keys are not worth the memory.
            MANY_KEYS.. => return,
            0..FEW_KEYS => before.iter().any(|range| name(range) == found),
            n => {
                if n == FEW_KEYS {
                    many.extend(before.iter().map(|range| (start, name(range))));
                }
                !many.insert((start, found))
            }
        };
        self.notes.duplicate_key |= twice;
        self.keys.push(key);
    }
}

fn skip_space(bytes: &[u8], at: usize) -> usize {
    let rest = within(bytes, at..);
    let space = rest.iter().position(|b| {
        steps::count();
        !matches!(b, b' ' | b'\t' | b'\n' | b'\r')
    });
    at + space.unwrap_or(rest.len())
}

/// Where the string that begins at `start` ends, quotes included.
fn string_end(bytes: &[u8], start: usize, notes: &mut Notes) -> StringEnd {
    let mut at = start + 1;
    // The first half of a surrogate pair has been read, and ends at `at`.
    let mut half = false;
    loop {
        let escape = skip_plain(bytes, at);
        match bytes.get(escape) {
            None => return StringEnd::Open,
            Some(b'"') => {
                notes.lone_surrogate |= half;
                return StringEnd::At(escape + 1);
            }
            Some(b'\\') => {}
            Some(_) => return StringEnd::Broken(escape),
        }
        let follows = escape == at;
        let unit = match bytes.get(escape + 1) {
            None => return StringEnd::Open,
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                at = escape + 2;
                None
            }
            Some(b'u') => {
                let digits = within(bytes, escape + 2..bytes.len().min(escape + 6));
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return StringEnd::Broken(escape);
                }
                if digits.len() < 4 {
                    return StringEnd::Open;
                }
                at = escape + 6;
                let value = |digit: &u8| (*digit as char).to_digit(16).unwrap_or_default();
                Some(digits.iter().fold(0, |unit, digit| unit << 4 | value(digit)))
            }
            Some(_) => return StringEnd::Broken(escape),
        };
        let is_low = unit.is_some_and(|unit| (0xDC00..0xE000).contains(&unit));
        let is_pair = half && follows && is_low;
        notes.lone_surrogate |= (half || is_low) && !is_pair;
        notes.nul_in_string |= unit == Some(0);
        half = unit.is_some_and(|unit| (0xD800..0xDC00).contains(&unit));
    }
}

/// The first byte at or behind `at` that is a quote, a backslash or a control character. Eight
/// bytes at a time: most of a transcript is text in strings.
fn skip_plain(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    while let Some(chunk) = within(bytes, at..).first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let special = has_zero(word ^ (ONES * u64::from(b'"')))
            | has_zero(word ^ (ONES * u64::from(b'\\')))
            | (word.wrapping_sub(ONES * 0x20) & !word & HIGHS);
        if special != 0 {
            // Borrows go upwards only: the lowest hit is a true one.
            return at + (special.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    let rest = within(bytes, at..);
    let special = rest.iter().position(|b| matches!(b, b'"' | b'\\' | 0..0x20));
    at + special.unwrap_or(rest.len())
}

const LITERALS: [&[u8]; 6] = [b"true", b"false", b"null", b"NaN", b"Infinity", b"-Infinity"];

/// Where the number or literal that begins at `start` ends; `None` when there is none, or when the
/// bytes end in the middle of it.
fn scalar_end(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = within(bytes, start..);
    if let Some(literal) = LITERALS.iter().find(|literal| rest.starts_with(literal)) {
        return Some(start + literal.len());
    }
    let digits = |at: usize| {
        let rest = within(rest, at..);
        let count = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        (count > 0).then_some(at + count)
    };
    let first = usize::from(rest.first() == Some(&b'-'));
    let mut end = match rest.get(first)? {
        b'0' => first + 1,
        _ => digits(first)?,
    };
    if rest.get(end) == Some(&b'.') {
        end = digits(end + 1)?;
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        end = digits(end + 1 + sign)?;
    }
    Some(start + end)
}

/// Whether these last bytes may be the beginning of a number or literal.
fn cut_scalar(rest: &[u8]) -> bool {
    // The longest number that is cut off inside of its syntax ends in one of these.
    let number = rest.iter().all(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'));
    let cut = matches!(rest.last(), Some(b'-' | b'+' | b'.' | b'e' | b'E'));
    (number && cut) || LITERALS.iter().any(|literal| literal.starts_with(rest))
}

/// The bytes without white space around them, as Python understands it: that of ASCII with U+001C
/// to U+001F, and the spaces of Unicode.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    loop {
        rest = match rest {
            [0x09..=0x0D | 0x1C..=0x20, after @ ..] => after,
            [0xC2, 0x85 | 0xA0, after @ ..]
            | [0xE1, 0x9A, 0x80, after @ ..]
            | [0xE2, 0x80, 0x80..=0x8A | 0xA8 | 0xA9 | 0xAF, after @ ..]
            | [0xE2, 0x81, 0x9F, after @ ..]
            | [0xE3, 0x80, 0x80, after @ ..] => after,
            _ => break,
        };
    }
    loop {
        rest = match rest {
            [before @ .., 0x09..=0x0D | 0x1C..=0x20] => before,
            [before @ .., 0xC2, 0x85 | 0xA0]
            | [before @ .., 0xE1, 0x9A, 0x80]
            | [before @ .., 0xE2, 0x80, 0x80..=0x8A | 0xA8 | 0xA9 | 0xAF]
            | [before @ .., 0xE2, 0x81, 0x9F]
            | [before @ .., 0xE3, 0x80, 0x80] => before,
            _ => break,
        };
    }
    rest
}

/// Where `part`, which is a slice of `whole`, begins in it.
pub(crate) fn offset_in(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr().saturating_sub(whole.as_ptr().addr())
}

/// The next `{` at or behind `from`.
pub(crate) fn next_object(bytes: &[u8], from: usize) -> Option<usize> {
    memchr(b'{', within(bytes, from..)).map(|at| from + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn walk(text: &str) -> Walk {
        Walker::default().walk(text.as_bytes(), 0, &mut |_, _| {})
    }

    fn notes(text: &str) -> Notes {
        let mut walker = Walker::default();
        assert!(matches!(walker.walk(text.as_bytes(), 0, &mut |_, _| {}), Walk::Whole(_)));
        walker.notes
    }

    #[test]
    fn each_member_is_named_with_the_keys_that_lead_to_it() {
        let text = r#"{"a":{"b":[{"a":1}],"c":2},"d":"x"}"#;
        let mut found = Vec::new();
        let walk = Walker::default().walk(text.as_bytes(), 0, &mut |path, value| {
            for keys in [&["a"][..], &["a", "c"], &["d"], &["a", "b", "a"]] {
                if path.is(keys) {
                    found.push((keys.join("."), &text[value.clone()]));
                }
            }
        });
        assert_eq!(walk, Walk::Whole(text.len()));
        let expected = [("a.c", "2"), ("a", r#"{"b":[{"a":1}],"c":2}"#), ("d", r#""x""#)];
        assert_eq!(found, expected.map(|(path, value)| (path.to_owned(), value)));
    }

    #[test]
    fn every_beginning_of_a_value_is_open_and_never_broken() {
        let text = r#"{"a":[1,-2.5e+10,true,null,"é\"\u00e9x"],"b":{"c":NaN,"d":-Infinity}}"#;
        assert_eq!(walk(text), Walk::Whole(text.len()));
        for cut in 0..text.len() {
            let walk = Walker::default().walk(&text.as_bytes()[..cut], 0, &mut |_, _| {});
            assert!(matches!(walk, Walk::Open(_)), "cut at {cut}: {walk:?}");
        }
    }

    #[test]
    fn depth_is_bounded_and_does_not_use_the_stack() {
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(walk(&nested(DEPTH_MAX)), Walk::Whole(2 * DEPTH_MAX + 1));
        assert_eq!(walk(&nested(DEPTH_MAX + 1)), Walk::TooDeep);
        assert_eq!(walk(&nested(1_000_000)), Walk::TooDeep);
    }

    #[test]
    fn what_strict_consumers_refuse_is_noted() {
        assert!(notes(r#"{"a":{"b":1,"c":2,"b":3}}"#).duplicate_key);
        assert!(!notes(r#"{"a":{"b":1},"c":{"b":3}}"#).duplicate_key);
        let many: Vec<String> = (0..200).map(|n| format!("\"k{n}\":1")).collect();
        assert!(!notes(&format!("{{{}}}", many.join(","))).duplicate_key);
        assert!(notes(&format!("{{{},\"k3\":0}}", many.join(","))).duplicate_key);
        for lone in [r"\ud83d", r"\ud83dx\ude00", r"\ude00", r"\ud83d\n", r"\ud83d\ud83d\ude00"] {
            assert!(notes(&format!("[\"{lone}\"]")).lone_surrogate, "{lone}");
        }
        assert!(!notes(r#""\ud83d\ude00\u00e9""#).lone_surrogate);
        assert!(notes(r#""a\u0000b""#).nul_in_string);
    }

    #[test]
    fn white_space_is_pythons() {
        let around = "\u{1c}\u{1f} \u{a0}\u{2003}\u{2028}\u{3000}";
        assert_eq!(trim(format!("{around}x y{around}").as_bytes()), b"x y");
        assert_eq!(trim("\u{feff}x".as_bytes()), "\u{feff}x".as_bytes());
    }

    #[test]
    fn a_walk_takes_as_many_steps_as_there_are_bytes() {
        let keys = |n: usize| {
            let keys: Vec<String> = (0..n).map(|n| format!("\"k{n}\":0")).collect();
            keys.join(",")
        };
        let few = format!("{{{}}}", keys(FEW_KEYS + 2));
        let objects = |n: usize| vec![&*few; n].join(",");
        let makes: [&dyn Fn(usize) -> String; 6] = [
            // White space, and then no string that it stands before.
            &|n| format!("{}[{}1]", " ".repeat(n), "1,".repeat(n)),
            &|n| format!("[\"\"{}{}]", " ".repeat(n), ",1".repeat(n)),
            &|n| format!("[{}1]", "1 , ".repeat(n)),
            // Objects of many keys in an object of many keys, and beside it.
            &|n| format!("{{{},\"a\":[{}]}}", keys(n), objects(n)),
            &|n| format!("[{{{}}},{}]", keys(n), objects(n)),
            &|n| format!("{{{}}}", keys(n)),
        ];
        for (at, make) in makes.into_iter().enumerate() {
            let steps = |n: usize| {
                let text = make(n);
                let (end, steps) = crate::steps::of(|| walk(&text));
                assert_eq!(end, Walk::Whole(text.len()));
                steps
            };
            let (once, twice) = (steps(400), steps(800));
            assert!(twice * 10 <= once * 22, "{at}: {once} steps for n, {twice} for 2n");
            assert!(once > 0, "{at}: no steps are counted");
        }
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just("{"),
            Just("}"),
            Just("["),
            Just("]"),
            Just(","),
            Just(":"),
            Just("\"a\""),
            Just("\"b\\n\""),
            Just("1"),
            Just("-0.5e3"),
            Just("true"),
            Just("null"),
            Just(" "),
            Just("\"\\u12"),
            Just("\\"),
            Just("\""),
            Just("01"),
            Just("."),
            Just("x"),
            Just("\u{1}"),
        ];
        proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// serde_json is the reference for what is JSON.
        #[test]
        fn whole_is_what_another_reader_takes(text in pieces()) {
            let whole = match walk(&text) {
                Walk::Whole(end) => text[end..].trim_matches([' ', '\t', '\r', '\n']).is_empty(),
                _ => false,
            };
            let other = serde_json::from_str::<serde::de::IgnoredAny>(&text);
            prop_assert_eq!(whole, other.is_ok(), "{:?} {:?}", text, walk(&text));
            // What it says is cut off may go on; what it says is wrong never does.
            if let (Walk::Broken { .. }, Err(error)) = (walk(&text), other) {
                prop_assert!(!error.is_eof() || text.contains('\\'), "{:?} {}", text, error);
            }
        }
    }
}
