//! The two ways in which token texts are written, and the bytes they stand for.
//!
//! Inside this module every token has a key: the bytes of the text it stands for. Matching and
//! printing work on keys, so text needs no translation while it is tokenized.

/// How a vocabulary writes its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// GPT-2's byte alphabet: each byte is a printable character, a space is `Ġ`.
    ByteAlphabet,
    /// SentencePiece's: UTF-8, a space is `▁` (U+2581).
    SpaceMarker,
}

/// `▁`, which SentencePiece writes for a space.
pub(super) const MARKER: &str = "\u{2581}";

/// The byte that a character of the byte alphabet stands for.
///
/// Printable Latin-1 characters stand for themselves, U+0100 and up for the others in order
/// (`bytes_to_unicode` in OpenAI's GPT-2 encoder).
fn alphabet_byte(c: char) -> Option<u8> {
    let code = c as u32;
    match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

/// The character of the byte alphabet for a byte.
fn alphabet_char(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x00..=0x20 => code + 0x100,
        0x7f..=0xa0 => code - 0x7f + 0x121,
        0xad => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

impl Spelling {
    /// Appends the key of a token text to `out`; or, when the text cannot stand for any text
    /// (it holds characters that the spelling never writes), appends nothing and returns false.
    pub(super) fn push_key(self, text: &str, out: &mut Vec<u8>) -> bool {
        match self {
            Spelling::ByteAlphabet => {
                let start = out.len();
                for c in text.chars() {
                    match alphabet_byte(c) {
                        Some(byte) => out.push(byte),
                        None => {
                            out.truncate(start);
                            return false;
                        }
                    }
                }
            }
            Spelling::SpaceMarker => {
                let bytes = text.as_bytes();
                if bytes.contains(&b' ') {
                    return false;
                }
                push_unmarked(text, out);
            }
        }
        true
    }

    /// The token text of a key.
    pub(super) fn text_of(self, key: &[u8]) -> Vec<u8> {
        match self {
            Spelling::ByteAlphabet => key
                .iter()
                .map(|&byte| alphabet_char(byte))
                .collect::<String>()
                .into_bytes(),
            Spelling::SpaceMarker => {
                let mut text = Vec::with_capacity(key.len() + 8);
                for &byte in key {
                    match byte {
                        b' ' => text.extend_from_slice(MARKER.as_bytes()),
                        _ => text.push(byte),
                    }
                }
                text
            }
        }
    }
}

/// Appends `text` with spaces for markers.
pub(super) fn push_unmarked(text: &str, out: &mut Vec<u8>) {
    let marker = MARKER.as_bytes();
    let mut rest = text.as_bytes();
    // Token texts are short and many: looking for the first byte beats a substring search.
    while let Some(at) = rest.iter().position(|&b| b == marker[0]) {
        let (before, found) = rest.split_at(at);
        out.extend_from_slice(before);
        if found.starts_with(marker) {
            out.push(b' ');
            rest = &found[marker.len()..];
        } else {
            out.push(found[0]);
            rest = &found[1..];
        }
    }
    out.extend_from_slice(rest);
}

/// The byte that a byte token's text spells: `<0x0A>` is 10.
pub(super) fn byte_token_value(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let all_hex = digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if all_hex {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_printable_character() {
        let chars: Vec<char> = (0..=255).map(alphabet_char).collect();
        for (byte, &c) in chars.iter().enumerate() {
            assert_eq!(alphabet_byte(c), Some(byte as u8));
            assert!(!c.is_whitespace() && !c.is_control(), "{c:?}");
        }
        assert_eq!(chars[usize::from(b' ')], 'Ġ');
        assert_eq!(chars[usize::from(b'\n')], 'Ċ');
        assert_eq!(alphabet_byte(' '), None);
        assert_eq!(alphabet_byte('\u{144}'), None);
    }

    #[test]
    fn keys_and_texts_are_each_others_inverse() {
        for (spelling, text, key) in [
            (Spelling::ByteAlphabet, "Ġhello", &b" hello"[..]),
            (Spelling::ByteAlphabet, "Ã©", "é".as_bytes()),
            (Spelling::SpaceMarker, "▁▁é", "  é".as_bytes()),
            (Spelling::SpaceMarker, "▃", "▃".as_bytes()),
        ] {
            let mut found = b"x".to_vec();
            assert!(spelling.push_key(text, &mut found));
            assert_eq!(&found[1..], key);
            assert_eq!(spelling.text_of(key), text.as_bytes());
        }
        let mut out = b"x".to_vec();
        assert!(!Spelling::ByteAlphabet.push_key("ab c", &mut out));
        assert!(!Spelling::ByteAlphabet.push_key("<｜end▁of｜>", &mut out));
        assert!(!Spelling::SpaceMarker.push_key("a b", &mut out));
        assert_eq!(out, b"x");
    }

    #[test]
    fn byte_tokens_are_spelled_in_one_way() {
        assert_eq!(byte_token_value("<0x0A>"), Some(10));
        assert_eq!(byte_token_value("<0xff>"), Some(255));
        for bad in [
            "<0xZZ>", "<0x>", "<0x1>", "<0x100>", "0x0A", "<0x+1>", "", "<0x0A> ",
        ] {
            assert_eq!(byte_token_value(bad), None, "{bad:?}");
        }
    }
}
