//! Escapes in texts from the command line, as llama.cpp's `-e` processes them:
//! `\n \r \t \' \" \\` and `\xHH`. Anything else after a backslash stays as it is.

/// Processes the escapes of `text`.
///
/// # Errors
/// When `\xHH` bytes do not add up to UTF-8: the byte offset in the result from which it is
/// broken.
pub fn process_escapes(text: &str) -> Result<String, usize> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let (replacement, used) = match (byte, bytes.get(at + 1)) {
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(&quoted @ (b'\'' | b'"' | b'\\'))) => (quoted, 2),
            (b'\\', Some(b'x')) => match hex_pair(bytes.get(at + 2..at + 4)) {
                Some(value) => (value, 4),
                None => (byte, 1),
            },
            _ => (byte, 1),
        };
        out.push(replacement);
        at += used;
    }
    String::from_utf8(out).map_err(|error| error.utf8_error().valid_up_to())
}

fn hex_pair(digits: Option<&[u8]>) -> Option<u8> {
    let digits = digits.filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::process_escapes;

    #[test]
    fn known_escapes_are_replaced() {
        assert_eq!(
            process_escapes(r#"a\nb\rc\td\'e\"f\\g"#).unwrap(),
            "a\nb\rc\td'e\"f\\g"
        );
        assert_eq!(process_escapes(r"\x41\x7a\xe2\x82\xac").unwrap(), "Az€");
        assert_eq!(process_escapes(r"\\n").unwrap(), r"\n");
    }

    #[test]
    fn everything_else_stays() {
        for text in [
            "", "plain é", "\\", "end\\", r"\q", r"\x4", r"\xg1", r"\x", r"\x+1",
        ] {
            assert_eq!(process_escapes(text).unwrap(), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused_with_their_offset() {
        assert_eq!(process_escapes(r"ab\xff"), Err(2));
        assert_eq!(process_escapes(r"\xe2\x82"), Err(0));
    }
}
