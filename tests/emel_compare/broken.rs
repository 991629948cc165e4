//! Traces that are none: each is named with file and line, and ends with 1.

use super::*;

/// Breaks a good trace and expects these words about it.
fn broken(place: &Place, change: impl Fn(&str) -> String, words: &[&str]) {
    let good = place.trace("good", &Stream::of("emel", &[A, B, T]));
    let text = fs::read_to_string(&good).expect("a trace");
    let changed = change(&text);
    assert_ne!(changed, text);
    place.write("bad", &changed);
    for arguments in [["traces", "good", "bad"], ["traces", "bad", "good"]] {
        place.fails(&arguments, 1, words);
    }
}

#[test]
fn cut_traces() {
    let place = Place::new();
    // In the middle of a number that reads as another, of the last line, and between lines.
    let cut = |at: &str| {
        let at = at.to_owned();
        move |text: &str| text[..text.find(&at).expect("a place") + at.len()].to_owned()
    };
    broken(
        &place,
        cut("\n1 261 16.2"),
        &["error: bad:18: ", "no end", "cut short"],
    );
    broken(&place, cut("# stop=li"), &["bad:20: ", "cut short"]);
    broken(
        &place,
        cut("\n2 279 16.25 260:15.75 261:15.5\n"),
        &["bad:19: ends without '# stop='"],
    );
    broken(
        &place,
        cut("# lane=single\n"),
        &["bad:6: ends without '# stop='"],
    );
    broken(&place, |_| String::new(), &["bad:1: is empty"]);
}

#[test]
fn traces_of_another_kind() {
    let place = Place::new();
    let version = |text: &str| text.replace("trace/v1", "trace/v7");
    broken(
        &place,
        version,
        &[
            "bad:1: ",
            "'emel-token-trace/v7'",
            "reads 'emel-token-trace/v1'",
        ],
    );
    broken(
        &place,
        |_| "{\"ids\":[1,2]}\n".to_owned(),
        &["bad:1: not a token trace"],
    );
    let windows = |text: &str| text.replace('\n', "\r\n");
    broken(
        &place,
        windows,
        &["bad:1: the line ends with CR LF", "sed -i"],
    );
    // A model is refused by its beginning, however long it is.
    place.fails(
        &["traces", "good", "vocab.gguf"],
        1,
        &["vocab.gguf:1: not a token trace"],
    );
    place.fails(
        &["traces", "good", "absent"],
        1,
        &["absent: cannot be read"],
    );
    place.fails(&["traces", "good", "."], 1, &[".: cannot be read"]);
}

#[test]
fn traces_with_wrong_lines() {
    let place = Place::new();
    let gap = |text: &str| text.replace("\n1 261", "\n2 261");
    broken(
        &place,
        gap,
        &[
            "bad:18: token index 2 where 1 is due",
            "missing or out of order",
        ],
    );
    let lost = |text: &str| text.replace("\n1 261 16.25 260:15.75 279:14\n", "\n");
    broken(&place, lost, &["bad:18: token index 2 where 1 is due"]);
    let nan = |text: &str| text.replace("1 261 16.25", "1 261 NaN");
    broken(&place, nan, &["bad:18: the logit of token 261 is NaN"]);
    let twice = |text: &str| text.replace("# threads=1\n", "# threads=1\n# threads=2\n");
    broken(&place, twice, &["bad:8: the header has 'threads' twice"]);
    let missing = |text: &str| text.replace("# isa=scalar\n", "");
    broken(&place, missing, &["bad:15: the header has no 'isa'"]);
    let escape = |text: &str| text.replace("1 261", "1 \u{1b}[31m");
    broken(&place, escape, &["bad:18: '\\u{1b}[31m' is not a token id"]);
}
