//! Each splitter against the regular expressions it stands for.

use super::super::classes::Classes;
use super::find;
use fancy_regex::Regex;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Spelled out: without case, `s` would also be `ſ`.
const CONTRACTIONS: &str = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";

fn llama3_like(digits: &str) -> String {
    format!(
        r"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

fn tekken_like(suffix: &str, digits: &str) -> String {
    // Letters outside ASCII count as upper and as lower case.
    let prefix = r"[^\r\n\p{L}\p{N}]?";
    let (upper, lower) = (r"[\p{L}--[a-z]]", r"[\p{L}--[A-Z]]");
    format!(
        r"{prefix}{upper}*{lower}+{suffix}|{prefix}{upper}+{lower}*{suffix}|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
}

/// Ranges as a pattern writes them.
fn listed(ranges: &[(u32, u32)]) -> String {
    ranges
        .iter()
        .map(|(first, last)| format!(r"\u{{{first:x}}}-\u{{{last:x}}}"))
        .collect()
}

/// The patterns of a pre-tokenizer, applied in order.
fn patterns(name: &str) -> Vec<String> {
    let owned = |patterns: &[&str]| patterns.iter().map(|&p| p.to_owned()).collect();
    let any_case = format!("{CONTRACTIONS}?");
    match name {
        "gpt-2" => owned(&[GPT2]),
        "smollm" => owned(&[r"\p{N}", GPT2]),
        "default" => owned(&[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"]),
        "falcon" => owned(&[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"]),
        "llama-bpe" => vec![llama3_like("{1,3}")],
        "qwen2" => vec![llama3_like("")],
        "qwen35" => vec![
            [
                CONTRACTIONS,
                r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                r"|\s*[\r\n]+|\s+(?!\S)|\s+",
            ]
            .concat(),
        ],
        "tekken" => vec![tekken_like("", "")],
        "gpt-4o" => vec![tekken_like(&any_case, "{1,3}")],
        // White space is replaced before the next patterns see it, so U+3000 is no sign.
        "deepseek-llm" => vec![
            r"[\r\n]".to_owned(),
            format!(r"\s?[{}]+", listed(super::DEEPSEEK_LETTERS.ranges)),
            r"\s?[!-/:-~！-／：-～‘-‟\u{3001}-。]+".to_owned(),
            r"\s+$".to_owned(),
            r"[[一-龥ࠀ-一가-\u{d7ff}]--\s]+".to_owned(),
            r"\p{N}+".to_owned(),
        ],
        "deepseek-coder" => owned(&[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            r"[[一-龥ࠀ-一가-\u{d7ff}]--\s]+",
            r"\p{N}",
        ]),
        "deepseek-v3" => owned(&[
            r"\p{N}{1,3}",
            "[一-龥぀-ゟ゠-ヿ]+",
            r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ]),
        "gemma4" => owned(&[r"[^\n]+|\n+"]),
        other => panic!("no patterns for {other}"),
    }
}

/// Cuts `piece` into matches and gaps.
fn split_by<'a>(pattern: &Regex, piece: &'a str, out: &mut Vec<&'a str>) {
    let mut rest = 0;
    for found in pattern.find_iter(piece) {
        let found = found.unwrap();
        if found.start() > rest {
            out.push(&piece[rest..found.start()]);
        }
        out.push(found.as_str());
        rest = found.end();
    }
    if rest < piece.len() {
        out.push(&piece[rest..]);
    }
}

fn reference<'a>(patterns: &[Regex], text: &'a str) -> Vec<&'a str> {
    let mut pieces = vec![text];
    for pattern in patterns {
        let mut next = Vec::new();
        for piece in pieces {
            split_by(pattern, piece, &mut next);
        }
        pieces = next;
    }
    pieces
}

/// A small generator: the same texts on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as usize) % n
    }
}

/// Characters at the edges of the patterns' alternatives.
const TELLING: &[char] = &[
    'a', 'b', 'Z', 'B', 's', 'S', 't', 'r', 'e', 'E', 'l', 'L', 'v', 'm', 'd', '\'', '\'', '\'',
    ' ', ' ', ' ', '\n', '\n', '\r', '\t', '\u{b}', '\u{85}', '\u{a0}', '\u{3000}', '\u{2028}',
    '0', '1', '9', '²', '٣', 'Ⅷ', 'é', 'É', 'ß', 'ǅ', '中', '文', 'あ', 'ア', '한', 'ʼ', 'ª', 'ʰ',
    '\u{301}', '\u{300}', '\u{93e}', '\u{200d}', '\u{200b}', '\0', '\u{1}', '\u{7f}', '!', '.',
    ',', '/', '/', '-', '_', '`', '$', '+', '<', '>', '^', '|', '~', '@', '¿', '«', '。', '、',
    '！', '～', '‘', '€', '©', '🙂', '\u{fe0f}', '\u{e000}', 'ſ', 'K', '\u{378}', '𐐀', '𝔘',
];

fn random_text(random: &mut Random) -> String {
    let len = random.below(40);
    // Few different characters make long runs.
    let pool: Vec<char> = match random.below(3) {
        0 => (0..4)
            .map(|_| TELLING[random.below(TELLING.len())])
            .collect(),
        _ => TELLING.to_vec(),
    };
    let mut text = String::new();
    for _ in 0..len {
        let any = char::from_u32(random.below(0x3_0000) as u32).filter(|_| random.below(9) == 0);
        text.push(any.unwrap_or(pool[random.below(pool.len())]));
    }
    text
}

#[test]
fn splitters_equal_their_patterns() {
    let classes = Classes::new();
    // The regex crate may know characters assigned after the frozen tables' version.
    let later = Regex::new(r"[\P{Cn}--\p{Age=15.1}--\p{Co}--\p{Cc}]").unwrap();
    for name in [
        "gpt-2",
        "smollm",
        "default",
        "falcon",
        "llama-bpe",
        "qwen2",
        "qwen35",
        "tekken",
        "gpt-4o",
        "deepseek-llm",
        "deepseek-coder",
        "deepseek-v3",
        "gemma4",
    ] {
        let pre = find(name).unwrap();
        let patterns: Vec<Regex> = patterns(name)
            .iter()
            .map(|p| Regex::new(p).unwrap())
            .collect();
        let mut random = Random(42);
        let mut compared = 0;
        for _ in 0..2500 {
            let text = random_text(&mut random);
            if later.is_match(&text).unwrap() {
                continue;
            }
            let mut found = Vec::new();
            pre.split(&classes, &text, |piece| found.push(piece));
            assert_eq!(found, reference(&patterns, &text), "{name} on {text:?}");
            compared += 1;
        }
        assert!(compared > 2000, "{compared} texts compared");
    }
}

#[test]
fn every_name_is_known_once() {
    let mut names: Vec<&str> = super::KNOWN
        .iter()
        .flat_map(|known| known.names)
        .copied()
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in [
        "llama3",
        "llama-bpe",
        "qwen2",
        "qwen35",
        "smollm",
        "gpt-2",
        "deepseek-llm",
        "deepseek-coder",
        "falcon",
        "starcoder",
        "refact",
        "command-r",
        "mpt",
        "tekken",
        "lfm2",
        "gemma4",
        "default",
    ] {
        assert!(names.contains(&name), "{name}");
    }
    assert!(find("no-such").is_none());
}

#[test]
fn one_character_a_million_times_is_split_in_linear_time() {
    let classes = Classes::new();
    for known in super::KNOWN {
        for c in [
            "a", " ", "\n", "7", "!", "中", "\u{301}", "\0", "A", "é", "'",
        ] {
            let text = c.repeat((1 << 20) / c.len());
            let mut bytes = 0;
            known.split(&classes, &text, |piece| bytes += piece.len());
            assert_eq!(bytes, text.len(), "{:?} on {c:?}", known.names);
        }
    }
}
