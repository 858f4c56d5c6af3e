//! Looking into JSON that is known to be whole: members and elements, without checking it once more.
//! Of text that is not whole it finds some members or none.

use memchr::memchr2;

use crate::bytes::within;

/// Calls `each` with the key, as it stands between its quotes, and the value of each member of an
/// object, in order.
pub(super) fn members<'l>(raw: &'l str, mut each: impl FnMut(&'l str, &'l str)) {
    object(raw, 0, &mut |key, start| {
        let end = value_end(raw.as_bytes(), start);
        each(key, within(raw, start..end));
        end
    });
}

/// [`members`], and in the same pass those of the object that is the member `inner`.
pub(super) fn members_and<'l>(
    raw: &'l str,
    inner: &str,
    mut each: impl FnMut(&'l str, &'l str),
    mut each_inner: impl FnMut(&'l str, &'l str),
) {
    let bytes = raw.as_bytes();
    let mut inside = |key: &'l str, start: usize| {
        let end = value_end(bytes, start);
        each_inner(key, within(raw, start..end));
        end
    };
    object(raw, 0, &mut |key, start| {
        let end = match key == inner && bytes.get(start) == Some(&b'{') {
            true => object(raw, start, &mut inside),
            false => value_end(bytes, start),
        };
        each(key, within(raw, start..end));
        end
    });
}

/// Walks over the object that begins behind white space at `at`: `value` is called with each key and
/// where its value begins, and says where that ends. Returns where the object ends, or where it is
/// not whole.
fn object<'l>(raw: &'l str, at: usize, value: &mut impl FnMut(&'l str, usize) -> usize) -> usize {
    let bytes = raw.as_bytes();
    let mut at = space_end(bytes, at);
    if bytes.get(at) != Some(&b'{') {
        return at;
    }
    at = space_end(bytes, at + 1);
    while bytes.get(at) == Some(&b'"') {
        let key_end = string_end(bytes, at);
        let colon = space_end(bytes, key_end);
        // A key that the text ends inside of is none.
        let Some(key) = raw.get(at + 1..key_end - 1) else { return at };
        if bytes.get(colon) != Some(&b':') {
            return colon;
        }
        let end = value(key, space_end(bytes, colon + 1));
        at = space_end(bytes, end);
        if bytes.get(at) != Some(&b',') {
            break;
        }
        at = space_end(bytes, at + 1);
    }
    at + usize::from(bytes.get(at) == Some(&b'}'))
}

/// The elements of an array, in order.
pub(super) fn elements(raw: &str) -> Vec<&str> {
    let bytes = raw.as_bytes();
    let mut elements = Vec::new();
    let mut at = space_end(bytes, 0);
    if bytes.get(at) != Some(&b'[') {
        return elements;
    }
    at = space_end(bytes, at + 1);
    while bytes.get(at).is_some_and(|byte| *byte != b']') {
        let end = value_end(bytes, at);
        elements.push(within(raw, at..end));
        at = space_end(bytes, end);
        if bytes.get(at) != Some(&b',') {
            break;
        }
        at = space_end(bytes, at + 1);
    }
    elements
}

fn space_end(bytes: &[u8], at: usize) -> usize {
    if bytes.get(at).is_some_and(|byte| *byte > b' ') {
        return at;
    }
    let space = within(bytes, at..)
        .iter()
        .take_while(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'))
        .count();
    at + space
}

/// Behind the string that begins at `at`.
pub(crate) fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(next) = quote_or_escape(bytes, at) {
        if bytes.get(next) == Some(&b'"') {
            return next + 1;
        }
        at = next + 2;
    }
    bytes.len()
}

/// How many words of eight bytes are looked at here, before it pays to have more at once looked at.
const NEAR_WORDS: usize = 8;

/// The next `"` or `\` at or behind `at`. Most are near.
fn quote_or_escape(bytes: &[u8], at: usize) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // Behind an escape that the bytes end inside of there is nothing.
    let rest = bytes.get(at..)?;
    let (near, _) = rest.as_chunks::<8>();
    for (n, word) in near.iter().take(NEAR_WORDS).enumerate() {
        let word = u64::from_le_bytes(*word);
        // A byte that is zero sets its highest bit; the lowest that is set is always right.
        let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
        let hits = zeros(word ^ (ONES * b'"' as u64)) | zeros(word ^ (ONES * b'\\' as u64));
        if hits != 0 {
            return Some(at + n * 8 + hits.trailing_zeros() as usize / 8);
        }
    }
    let looked_at = near.len().min(NEAR_WORDS) * 8;
    let found = memchr2(b'"', b'\\', within(rest, looked_at..))?;
    Some(at + looked_at + found)
}

/// Behind the value that begins at `at`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    let mut depth = 0usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
                continue;
            }
            b'}' | b']' if depth > 0 => {
                depth -= 1;
                at += 1;
            }
            b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::syntax::Walker;
    use proptest::prelude::*;

    fn found(raw: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        members(raw, |key, value| found.push((key.to_owned(), value.to_owned())));
        found
    }

    /// The same, with every byte looked at.
    fn walked(raw: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        Walker::default().walk(raw.as_bytes(), 0, &mut |path, value| {
            if let Some(key) = path.only_key() {
                found.push((raw[key].to_owned(), raw[value].to_owned()));
            }
        });
        found
    }

    fn json() -> impl Strategy<Value = String> {
        let string = r#"([a{}\[\],: ]|\\\\|\\"|é|\\u00e9){0,6}"#.prop_map(|s| format!("\"{s}\""));
        let leaf = prop_oneof![string, r"-?[1-9][0-9]{0,3}(\.5)?(e\+2)?", "(true|null|NaN)"];
        leaf.prop_recursive(4, 24, 5, |inner| {
            let space = "[ \n\t]{0,2}";
            let member = ("[a-c]{1,2}", space, inner.clone(), space);
            let member = member.prop_map(|(k, a, v, b)| format!("{a}\"{k}\"{b}:{a}{v}{b}"));
            prop_oneof![
                prop::collection::vec(member, 0..5).prop_map(|m| format!("{{{}}}", m.join(","))),
                prop::collection::vec(inner, 0..5).prop_map(|e| format!("[{}]", e.join(" , "))),
            ]
        })
    }

    #[test]
    fn elements_are_found_behind_white_space_and_brackets_in_text() {
        assert_eq!(elements(r#" [ {"a":[1,2]} , "x,]" ,3 ] "#), [r#"{"a":[1,2]}"#, "\"x,]\"", "3"]);
        assert!(elements("[]").is_empty() && elements("{}").is_empty());
    }

    proptest! {
        #[test]
        fn members_are_those_that_the_walker_finds(raw in json()) {
            prop_assert_eq!(found(&raw), walked(&raw));
        }

        #[test]
        fn elements_put_together_again_are_the_array(elements_in in prop::collection::vec(json(), 0..5)) {
            let raw = format!("[ {} ]", elements_in.join(" ,\n"));
            prop_assert_eq!(elements(&raw), elements_in);
        }

        #[test]
        fn text_that_is_not_whole_is_no_trouble(raw in ".{0,40}", json in json(), cut in 0usize..40) {
            found(&raw);
            elements(&raw);
            let cut = json.floor_char_boundary(cut);
            found(&json[..cut]);
            elements(&json[..cut]);
        }
    }
}
