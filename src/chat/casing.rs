//! Letter case as Python's strings have it: title case and case folding, which Rust's `char` lacks.

/// The title case of one character: what a word that starts with it starts with.
fn titlecase(c: char) -> String {
    let code = u32::from(c);
    let single = match code {
        0x1c4..=0x1c6 => Some(0x1c5),
        0x1c7..=0x1c9 => Some(0x1c8),
        0x1ca..=0x1cc => Some(0x1cb),
        0x1f1..=0x1f3 => Some(0x1f2),
        // Greek with iota subscript keeps it
        0x1f80..=0x1faf => Some(code | 8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => Some(code + 9),
        _ => None,
    };
    if let Some(single) = single.and_then(char::from_u32) {
        return single.to_string();
    }
    // an expansion such as U+FB01 (fi) starts with a capital and goes on small
    let mut upper = c.to_uppercase();
    let first = upper.next().unwrap_or(c);
    std::iter::once(first)
        .chain(upper.flat_map(char::to_lowercase))
        .collect()
}

/// Whether the character has a case.
pub(super) fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || matches!(u32::from(c), 0x1c5 | 0x1c8 | 0x1cb | 0x1f2)
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let Some(first) = text.chars().next() else {
        return String::new();
    };
    // lowered as a whole, since a final sigma depends on what stands before it
    let lower = text.to_lowercase();
    let rest: String = lower.chars().skip(first.to_lowercase().count()).collect();
    titlecase(first) + &rest
}

/// `str.title`: a word is a run of cased characters.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if is_cased(c) {
            word.push(c);
        } else {
            out.push_str(&capitalize(&word));
            word.clear();
            out.push(c);
        }
    }
    out + &capitalize(&word)
}

/// `str.swapcase`.
pub(super) fn swap(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Vec<char> {
            if c.is_uppercase() {
                c.to_lowercase().collect()
            } else {
                c.to_uppercase().collect()
            }
        })
        .collect()
}

/// `str.casefold`: through upper case, which unfolds ligatures and the sharp s.
pub(super) fn fold(text: &str) -> String {
    text.chars()
        .flat_map(char::to_uppercase)
        .flat_map(char::to_lowercase)
        .collect()
}

/// `str.isdigit`: decimal digits and the raised, lowered and circled ones.
pub(super) fn is_digit(c: char) -> bool {
    is_decimal(c)
        || matches!(u32::from(c), 0xb2 | 0xb3 | 0xb9 | 0x2070 | 0x2074..=0x2079 | 0x2080..=0x2089
            | 0x2460..=0x2468 | 0x2474..=0x247c | 0x2488..=0x2490 | 0x24ea | 0x24f5..=0x24fd
            | 0x24ff | 0x2776..=0x277e | 0x2780..=0x2788 | 0x278a..=0x2792)
}

/// `str.isdecimal`: Unicode's decimal digits, which are numeric and stand outside the blocks of
/// fractions, Roman numerals, raised, circled and ideographic numbers.
pub(super) fn is_decimal(c: char) -> bool {
    c.is_ascii_digit()
        || c.is_numeric()
            && !matches!(u32::from(c), 0..=0xff | 0x9f4..=0x9f9 | 0xb72..=0xb77 | 0xbf0..=0xbf2
                | 0xc78..=0xc7e | 0xd58..=0xd5e | 0xd70..=0xd78 | 0xf2a..=0xf33 | 0x1369..=0x137c
                | 0x16ee..=0x16f0 | 0x17f0..=0x17f9 | 0x19da | 0x2000..=0xa61f | 0xa6e6..=0xa8cf
                | 0xf900..=0xfaff | 0x10100..=0x1049f | 0x10500..=0x10d2f | 0x10e60..=0x1105f)
}
