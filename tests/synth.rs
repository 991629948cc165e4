//! The real `emel-bench synth`: hostile command lines, signals, and what llama.cpp says of the
//! files when it is there.

mod common;

use common::{emel_run, names};
use emel::bench::synth::mix::MIXES;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::{TempDir, tempdir};

/// An empty folder that goes at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempdir().expect("a temporary folder"))
    }
    fn file(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

fn synth(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_emel-bench"));
    command.arg("synth").args(arguments).stdin(Stdio::null());
    command
}

fn output(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fails(command: Command, code: i32, words: &[&str]) {
    let output = output(command);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    for word in words {
        assert!(errors.contains(word), "no '{word}' in: {errors}");
    }
    assert!(!errors.contains("panicked"), "{errors}");
}

#[test]
fn it_writes_a_model_and_says_its_digest() {
    let folder = Folder::new();
    let file = folder.file("new/folder/a.gguf");
    let arguments = [
        "--shape", "test", "--quant", "q8_0", "--seed", "1", "-o", &file,
    ];
    let output = output(synth(&arguments));
    let digest = "fc5f807fbd840cdb3c3f4ea08b644856c2fb4d90ad2949713b0142e5c99be8ec";
    assert_eq!(
        text(&output.stdout),
        format!("{digest}  {file}\n"),
        "{}",
        text(&output.stderr)
    );
    let mut run = emel_run();
    run.args([
        "-m", &file, "-n", "4", "--temp", "0", "-no-cnv", "-p", "the",
    ]);
    let output = run.stdin(Stdio::null()).output().expect("emel-run starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).trim_start().starts_with("the"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn unknown_names_are_answered_with_the_known() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    fails(
        synth(&["--shape", "qwen9", "--quant", "q8_0", "-o", &file]),
        2,
        &["qwen9", "qwen3-0.6b", "llama-1b", "gemma3-1b"],
    );
    fails(
        synth(&["--shape", "test", "--quant", "q9_k", "-o", &file]),
        2,
        &["q9_k", "q8_0", "q4_k_m", "iq4_xs"],
    );
    for seed in ["-1", "many", "18446744073709551616"] {
        let seed = format!("--seed={seed}");
        fails(
            synth(&["--shape", "test", "--quant", "q8_0", &seed, "-o", &file]),
            2,
            &["--seed"],
        );
    }
    fails(
        synth(&[
            "--shape",
            "test",
            "--quant",
            "q8_0",
            "--threads",
            "0",
            "-o",
            &file,
        ]),
        2,
        &["--threads"],
    );
    assert!(names(&folder.0).is_empty());
}

#[test]
fn a_missing_vocabulary_names_the_cure() {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    for (shape, fetched) in [
        ("qwen3-4b", "scripts/fetch_models.sh vocab"),
        ("llama-1b", "scripts/fetch_models.sh vocab"),
        ("gemma3-1b", "scripts/fetch_models.sh gemma3-270m"),
    ] {
        let mut command = synth(&["--shape", shape, "--quant", "q8_0", "-o", &file]);
        command.env("EMEL_MODELS_DIR", folder.file("nowhere"));
        fails(command, 1, &["is missing", fetched, "--vocab"]);
    }
    let text = folder.file("text.gguf");
    fs::write(&text, "no model at all").expect("a file");
    let arguments = ["--shape", "test", "--quant", "q8_0", "-o", &file];
    for (vocabulary, word) in [
        (text.as_str(), "text.gguf"),
        ("/no/such/file", "/no/such/file"),
    ] {
        let mut command = synth(&arguments);
        command.args(["--vocab", vocabulary]);
        fails(command, 1, &["vocabulary: ", word]);
    }
    assert_eq!(names(&folder.0), ["text.gguf"]);
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let folder = Folder::new();
    let here = folder.0.path().display().to_string();
    let shape = ["--shape", "test", "--quant", "q8_0", "-o"];
    let to = |place: &str| synth(&[&shape[..], &[place]].concat());
    fails(to(&here), 1, &[&here, "name a file inside it"]);
    fs::write(folder.file("file"), "x").expect("a file");
    let below = folder.file("file/a.gguf");
    fails(
        to(&below),
        1,
        &["cannot create the folder", &folder.file("file")],
    );
    if cfg!(target_os = "linux") {
        fails(to("/dev/full"), 1, &["/dev/full", "free some space"]);
        fails(to("/proc/a.gguf"), 1, &["/proc/a.gguf"]);
    }
}

/// Waits for a file of the run to appear, then sends the signal.
fn interrupted(signal: &str, code: i32) {
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    fs::write(&file, "before").expect("a file");
    let mut command = synth(&["--shape", "smollm2-135m", "--quant", "q4_k_m", "-o", &file]);
    // One thread and a vocabulary of a few tokens: long enough to be met at work.
    let vocabulary = emel::model::testing::TestModel::new("llama", emel::gguf::TensorType::Q8_0);
    let vocabulary = vocabulary.write_temporary().expect("a temporary model");
    command
        .arg("--vocab")
        .arg(vocabulary.path())
        .args(["--threads", "1"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("emel-bench starts");
    let begun = Instant::now();
    while names(&folder.0).len() < 2 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "nothing was begun"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(sent.expect("kill runs").success());
    let output = child.wait_with_output().expect("emel-bench ends");
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    assert_eq!(names(&folder.0), ["a.gguf"]);
    assert_eq!(fs::read(&file).expect("the file"), b"before");
}

#[cfg(unix)]
#[test]
fn signals_leave_what_was_there() {
    interrupted("-INT", 130);
    interrupted("-TERM", 143);
}

/// A program of llama.cpp that loads a model, and what makes it compute a little.
fn reference() -> Option<(PathBuf, &'static [&'static str])> {
    let completion = std::env::var_os("EMEL_REFERENCE_LLAMA_COMPLETION").map(PathBuf::from);
    if let Some(program) = completion {
        return Some((program, &["-p", "the", "-n", "4", "--temp", "0", "-no-cnv"]));
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = set("EMEL_CACHE_DIR").map(PathBuf::from);
    let cache = cache.or_else(|| set("XDG_CACHE_HOME").map(|c| Path::new(&c).join("emel")));
    let cache = cache.or_else(|| set("HOME").map(|h| Path::new(&h).join(".cache/emel")))?;
    let bench = cache.join("reference/llama.cpp/native/llama-bench");
    bench
        .is_file()
        .then_some((bench, &["-p", "16", "-n", "4", "-r", "1"]))
}

#[test]
fn llama_cpp_accepts_every_mixture() {
    let Some((program, arguments)) = reference() else {
        eprintln!(
            "SKIPPED: no llama.cpp here (EMEL_REFERENCE_LLAMA_COMPLETION, or a built reference)"
        );
        return;
    };
    let folder = Folder::new();
    let file = folder.file("a.gguf");
    for mix in &MIXES {
        let made = output(synth(&[
            "--shape", "test", "--quant", mix.name, "-o", &file,
        ]));
        assert!(
            made.status.success(),
            "{}: {}",
            mix.name,
            text(&made.stderr)
        );
        let mut command = Command::new(&program);
        command
            .arg("-m")
            .arg(&file)
            .args(arguments)
            .stdin(Stdio::null());
        let output = output(command);
        assert!(
            output.status.success(),
            "{}: {}",
            mix.name,
            text(&output.stderr)
        );
    }
}
