//! Text that is shared: a clone costs no copy, and a part of a line stays a part of it.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use arcstr::Substr;
use serde::{Serialize, Serializer};

/// Shared text, used like a `&str`. Keeps the line that it is a part of in memory.
///
/// ```
/// use eventlog::event::Text;
///
/// let text = Text::from("run-1");
/// assert_eq!(text, "run-1");
/// assert_eq!(text.clone().len(), 5);
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text(Substr);

/// A text that is less than this shorter than what it is a part of keeps that.
const ALONE_BYTES: usize = 64;

impl Text {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) const EMPTY: Text = Text::literal(arcstr::literal_substr!(""));

    /// Text that is part of the program.
    pub(crate) const fn literal(text: Substr) -> Text {
        Text(text)
    }

    /// The same text, without the line that it is a part of.
    pub(crate) fn alone(&self) -> Text {
        Text(
            self.0
                .parent()
                .len()
                .checked_sub(self.len() + ALONE_BYTES)
                .map_or_else(|| self.0.clone(), |_| Substr::from(&**self)),
        )
    }

    /// `part`, shared where it is a part of this text, else copied.
    pub(crate) fn part(&self, part: &str) -> Text {
        match self.0.try_substr_from(part) {
            Some(shared) => Text(shared),
            None => Text::from(part),
        }
    }

    /// The same for what may have been decoded.
    pub(crate) fn cow(&self, part: Cow<'_, str>) -> Text {
        match part {
            Cow::Borrowed(part) => self.part(part),
            Cow::Owned(text) => Text::from(text),
        }
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Substr::from(text))
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(Substr::from(text))
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialEq<String> for Text {
    fn eq(&self, other: &String) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl bincode::Encode for Text {
    fn encode<E: bincode::enc::Encoder>(
        &self,
        to: &mut E,
    ) -> Result<(), bincode::error::EncodeError> {
        str::encode(self, to)
    }
}

impl<C> bincode::Decode<C> for Text {
    fn decode<D: bincode::de::Decoder<Context = C>>(
        from: &mut D,
    ) -> Result<Text, bincode::error::DecodeError> {
        String::decode(from).map(Text::from)
    }
}

bincode::impl_borrow_decode!(Text);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_text_is_shared_and_anything_else_is_copied() {
        let line = Text::from("a line of text");
        let part = line.part(&line[2..6]);
        assert_eq!((&*part, part.as_ptr()), ("line", line[2..].as_ptr()));
        let other = "line".to_owned();
        assert_eq!(line.part(&other), "line");
        assert_eq!(part.part(&line[..1]), "a");
    }
}
