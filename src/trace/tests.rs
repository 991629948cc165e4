//! What is written is read back, bit for bit; what is broken is named.

use std::path::PathBuf;
use tempfile::{TempDir, tempdir};

use super::*;

fn header() -> TraceHeader {
    TraceHeader {
        engine: "emel".into(),
        engine_version: "0.1.0".into(),
        model_sha256: "ab".repeat(32),
        workload_id: "-".into(),
        lane: "-".into(),
        threads: "2".into(),
        isa: "avx512".into(),
        route: "auto".into(),
        numerics: "emel-1".into(),
        more: vec![("note".into(), "a=b".into())],
    }
}

/// A folder of its own, and a trace in it that is not there yet.
fn place() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("x.tokens.txt");
    (folder, path)
}

const GOOD: &str = "\
# emel-token-trace/v1
# engine=emel
# engine_version=0.1.0
# model_sha256=00
# workload_id=w
# lane=l
# threads=1
# isa=scalar
# route=auto
# numerics=n
# prompt 1 2
0 5 1.5 6:1.25 7:1.25
1 6 -2
# stop=eog
";

#[test]
fn the_file_is_as_documented() {
    let (_folder, path) = place();
    let mut trace = TraceWriter::create(&path, &header(), &[1, 504, 3575]).unwrap();
    trace
        .token(2056, 18.40625, &[(253, 17.5), (260, 16.25)])
        .unwrap();
    trace.token(28, 21.0, &[]).unwrap();
    assert!(!path.exists());
    trace.finish("length").unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let expected = format!(
        "# emel-token-trace/v1\n# engine=emel\n# engine_version=0.1.0\n# model_sha256={}\n\
         # workload_id=-\n# lane=-\n# threads=2\n# isa=avx512\n# route=auto\n\
         # numerics=emel-1\n# note=a=b\n# prompt 1 504 3575\n0 2056 18.40625 253:17.5 \
         260:16.25\n1 28 21\n# stop=length\n",
        "ab".repeat(32)
    );
    assert_eq!(text, expected);
}

#[test]
fn logits_keep_their_bits() {
    let (_folder, path) = place();
    let odd = [
        0.1,
        -0.0,
        1e-45,
        f32::MAX,
        f32::MIN_POSITIVE,
        16_777_217.0,
        f32::NEG_INFINITY,
    ];
    let mut trace = TraceWriter::create(&path, &header(), &[]).unwrap();
    for logit in odd {
        trace.token(1, logit, &[(2, logit)]).unwrap();
    }
    trace.finish("two\nlines").unwrap();
    let back = Trace::read(&path).unwrap();
    assert_eq!(back.header, header());
    assert_eq!((back.prompt.len(), back.stop.as_str()), (0, "two lines"));
    for (token, logit) in back.tokens.iter().zip(odd) {
        assert_eq!(token.logit.to_bits(), logit.to_bits());
        assert_eq!(token.next[0].1.to_bits(), logit.to_bits());
    }
    assert_eq!(back.tokens.len(), odd.len());
}

#[test]
fn dropped_it_leaves_nothing() {
    let (_folder, path) = place();
    drop(TraceWriter::create(&path, &header(), &[1]).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_good_text_is_read() {
    let trace = Trace::parse(GOOD).unwrap();
    assert_eq!(
        (trace.prompt.as_slice(), trace.stop.as_str()),
        (&[1, 2][..], "eog")
    );
    assert_eq!(trace.tokens[0].next, [(6, 1.25), (7, 1.25)]);
    assert_eq!((trace.tokens[1].id, trace.tokens[1].logit), (6, -2.0));
    let more = GOOD.replace("# lane=l", "# lane=l\n# colour=blue");
    assert_eq!(
        Trace::parse(&more).unwrap().header.more,
        [("colour".into(), "blue".into())]
    );
}

#[test]
fn every_fault_is_named_with_its_line() {
    let fault = |from: &str, to: &str| {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD);
        let (line, problem) = Trace::parse(&text).unwrap_err();
        format!("{line}: {problem}")
    };
    assert_eq!(
        fault("v1", "v2"),
        "1: is a trace of version 'emel-token-trace/v2', this program reads \
         'emel-token-trace/v1'; make it again"
    );
    assert_eq!(
        fault("# emel-token-trace/v1", "{}"),
        "1: not a token trace: the first line is not '# emel-token-trace/v1'"
    );
    assert_eq!(
        fault("# lane=l", "# lane"),
        "6: header line is not '# key=value'"
    );
    assert_eq!(fault("# lane=l\n", ""), "10: the header has no 'lane'");
    assert_eq!(
        fault("# prompt 1 2\n", ""),
        "11: no '# prompt' line before the tokens"
    );
    assert_eq!(
        fault("prompt 1 2", "prompt 1 x"),
        "11: 'x' is not a token id"
    );
    assert_eq!(
        fault("0 5 1.5", "1 5 1.5"),
        "12: token index 1 where 0 is due: lines are missing or out of order; make the trace again"
    );
    assert!(fault("0 5 1.5 6:1.25 7:1.25\n", "").starts_with("12: token index 1 where 0 is due"));
    assert_eq!(
        fault("# lane=l\n", "# lane=l\n# isa=avx2\n"),
        "9: the header has 'isa' twice; keep the right one"
    );
    assert_eq!(
        fault("1 6 -2", "# lane=l"),
        "13: '#' line between the tokens: only '# stop=' comes after '# prompt'"
    );
    assert_eq!(
        fault("0 5", "0 \u{1b}[2J"),
        "12: '\\u{1b}[2J' is not a token id"
    );
    assert_eq!(fault("0 5 1.5", "0 -5 1.5"), "12: '-5' is not a token id");
    assert_eq!(fault("0 5 1.5", "0 5"), "12: '6:1.25' is not a logit");
    assert_eq!(fault("1 6 -2", "1 6"), "13: '' is not a logit");
    assert_eq!(fault("6:1.25 7:1.25", "6:1.25 7"), "12: '' is not a logit");
    assert_eq!(
        fault("6:1.25 7", "6:1.0 7"),
        "12: next best tokens are not in descending order"
    );
    assert_eq!(
        fault("# stop=eog\n", ""),
        "13: ends without '# stop=': the trace was cut short; copy or make it again"
    );
    assert_eq!(fault("eog\n", "eog\n2 1 1\n"), "15: text after '# stop='");
    let (line, problem) = Trace::parse("").unwrap_err();
    assert_eq!(line, 1);
    assert!(matches!(problem, TraceProblem::Empty));
    let (line, _) = Trace::parse("# emel-token-trace/v1\n").unwrap_err();
    assert_eq!(line, 1);
}

/// A cut may leave what reads as a shorter number: only the newline says that a line is whole.
#[test]
fn every_prefix_of_a_trace_is_an_error_not_a_panic() {
    for cut in 1..GOOD.len() {
        let (line, problem) = Trace::parse(&GOOD[..cut]).unwrap_err();
        match GOOD[..cut].ends_with('\n') {
            true => assert!(matches!(problem, TraceProblem::NoStop), "cut at {cut}"),
            false => assert!(matches!(problem, TraceProblem::Cut), "cut at {cut}"),
        }
        assert_eq!(line, GOOD[..cut].lines().count(), "cut at {cut}");
    }
    assert!(Trace::parse(GOOD).is_ok());
}

#[test]
fn lines_of_windows_are_named() {
    let (line, problem) = Trace::parse(&GOOD.replace('\n', "\r\n")).unwrap_err();
    assert_eq!(line, 1);
    let text = problem.to_string();
    assert!(
        text.contains("CR LF") && text.contains("sed -i 's/\\r$//'"),
        "{text}"
    );
    let (line, problem) = Trace::parse(&GOOD.replace("1 6 -2\n", "1 6 -2\r\n")).unwrap_err();
    assert_eq!(line, 13);
    assert!(matches!(problem, TraceProblem::CarriageReturn));
}

#[test]
fn logits_that_are_no_numbers_are_named() {
    for word in ["NaN", "nan", "-nan"] {
        let chosen = GOOD.replace("5 1.5", &format!("5 {word}"));
        let (line, problem) = Trace::parse(&chosen).unwrap_err();
        assert_eq!(line, 12);
        assert!(matches!(problem, TraceProblem::Nan(5)), "{problem}");
        let next = GOOD.replace("7:1.25", &format!("7:{word}"));
        let (line, problem) = Trace::parse(&next).unwrap_err();
        assert_eq!(line, 12);
        assert!(
            problem.to_string().contains("the logit of token 7 is NaN"),
            "{problem}"
        );
    }
    // A token that was ruled out has a logit all the same.
    let text = GOOD.replace("7:1.25", "7:-inf");
    assert_eq!(
        Trace::parse(&text).unwrap().tokens[0].next[1].1,
        f32::NEG_INFINITY
    );
}

#[test]
fn files_that_are_no_text_or_no_traces_are_named() {
    let (_folder, path) = place();
    let check = |bytes: &[u8], expected: &str| {
        std::fs::write(&path, bytes).unwrap();
        let error = Trace::read(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let broken = GOOD.replace("# lane=l", "# lane=?").into_bytes();
    let broken: Vec<u8> = broken
        .iter()
        .map(|&byte| if byte == b'?' { 0xff } else { byte })
        .collect();
    check(&broken, ".tokens.txt:6: is not UTF-8 text");
    // Longer than what is looked at first, and not text: a model.
    check(&[0x80; 4096], ".tokens.txt:1: not a token trace");
    check(b"", ".tokens.txt:1: is empty");
    let folder = Trace::read(&std::env::temp_dir()).unwrap_err().to_string();
    assert!(folder.contains(": cannot be read: "), "{folder}");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let (_folder, path) = place();
    let error = Trace::read(&path).unwrap_err().to_string();
    assert!(error.contains("x.tokens.txt: cannot be read"), "{error}");
}
