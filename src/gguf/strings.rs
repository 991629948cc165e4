//! An array of strings as one text.
//!
//! A vocabulary has a few hundred thousand short strings. One allocation for each would take
//! several times the bytes of the strings themselves, and most of the time to read them.

use std::fmt;
use std::ops::Index;

/// Strings in order: their text without gaps, and where each ends. All of them together have at
/// most [`Strings::MOST_BYTES`] bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
}

impl Strings {
    /// The most bytes that all strings together may have.
    pub const MOST_BYTES: usize = u32::MAX as usize;

    /// No strings yet.
    pub const fn new() -> Strings {
        Strings {
            text: String::new(),
            ends: Vec::new(),
        }
    }

    /// No strings yet, with room for `count` of them that have `bytes` bytes together.
    pub fn with_capacity(count: usize, bytes: usize) -> Strings {
        Strings {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The string at `index`.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start as usize..end as usize])
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|index| &self[index])
    }

    /// Adds a string at the end.
    ///
    /// # Panics
    /// When all strings together would have more than [`Strings::MOST_BYTES`] bytes.
    pub fn push(&mut self, text: &str) {
        let end = self.text.len().checked_add(text.len());
        let end = end.and_then(|end| u32::try_from(end).ok());
        let end = end.expect("strings of at most 4 GiB");
        self.text.push_str(text);
        self.ends.push(end);
    }
}

impl Index<usize> for Strings {
    type Output = str;

    /// The string at `index`, which must be below [`Strings::len`].
    fn index(&self, index: usize) -> &str {
        match self.get(index) {
            Some(text) => text,
            None => panic!("no string {index} among {}", self.len()),
        }
    }
}

impl<S: AsRef<str>> Extend<S> for Strings {
    fn extend<I: IntoIterator<Item = S>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.push(text.as_ref()));
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Strings {
        let mut strings = Strings::new();
        strings.extend(texts);
        strings
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_given_as_they_came() {
        let texts = ["", "a", "", "päck\u{10348}", "b"];
        let strings: Strings = texts.into_iter().collect();
        assert_eq!((strings.len(), strings.bytes()), (5, 11));
        assert!(strings.iter().eq(texts));
        assert_eq!(strings.iter().len(), 5);
        assert_eq!(strings.get(3), Some("päck\u{10348}"));
        assert_eq!(strings.get(5), None);
        assert_eq!(strings.get(usize::MAX), None);
        assert_eq!(&strings[1], "a");
        assert_eq!(format!("{strings:?}"), format!("{texts:?}"));
    }

    #[test]
    fn no_strings_are_not_an_empty_one() {
        let none = Strings::new();
        assert!(none.is_empty());
        assert_eq!(none.get(0), None);
        let empty = Strings::from_iter([""]);
        assert_eq!((empty.len(), empty.get(0)), (1, Some("")));
        assert_ne!(none, empty);
    }

    #[test]
    fn strings_cut_elsewhere_differ() {
        assert_ne!(
            Strings::from_iter(["ab", "c"]),
            Strings::from_iter(["a", "bc"])
        );
    }

    #[test]
    #[should_panic(expected = "no string 1 among 1")]
    fn an_index_past_the_end() {
        let _ = &Strings::from_iter(["a"])[1];
    }
}
