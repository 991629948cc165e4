//! The real `emel-run` against what people and machines do to it: bad files, odd flags, closed
//! pipes, full disks, signals.

mod common;

use common::{SMOLLM2, emel_run, model, temporary};
use emel::gguf::TensorType;
use emel::model::testing::{TemporaryModel, TestModel};
use emel::trace::Trace;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn small() -> TemporaryModel {
    TestModel::new("llama", TensorType::Q4_0)
        .write_temporary()
        .expect("a temporary model")
}

/// A run without terminal, with `input` on standard input.
fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = emel_run()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("emel-run starts");
    // A program that ends before it has read everything closes the pipe: no failure of the test.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("emel-run ends")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A run that must fail with `code`, all of `words` in its message, and nothing on stdout.
fn fails(arguments: &[&str], input: &[u8], code: i32, words: &[&str]) {
    let output = run(arguments, input);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
    assert!(
        output.stdout.is_empty(),
        "{arguments:?}: {}",
        text(&output.stdout)
    );
    for word in words {
        assert!(
            errors.contains(word),
            "{arguments:?}: no '{word}' in: {errors}"
        );
    }
    assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
}

#[test]
fn files_that_are_no_models_are_refused_by_name() {
    let folder = std::env::temp_dir();
    fails(
        &["-m", folder.to_str().expect("UTF-8"), "-p", "x"],
        b"",
        1,
        &["directory"],
    );
    fails(
        &["-m", "no-such.gguf", "-p", "x"],
        b"",
        1,
        &["no-such.gguf"],
    );

    let plain = temporary("plain.gguf");
    fs::write(
        &plain,
        "just some text, long enough to hold a header\n".repeat(9),
    )
    .expect("a file");
    fails(
        &["-m", plain.to_str().expect("UTF-8"), "-p", "x"],
        b"",
        1,
        &["plain.gguf", "not a GGUF file"],
    );

    let whole = fs::read(model(SMOLLM2)).expect("the model");
    fs::write(&plain, &whole[..whole.len() / 2]).expect("a file");
    fails(
        &["-m", plain.to_str().expect("UTF-8"), "-p", "x"],
        b"",
        1,
        &["plain.gguf"],
    );
}

#[test]
fn a_missing_default_model_says_how_to_get_one() {
    let output = emel_run()
        .args(["-p", "x"])
        .env("EMEL_MODELS_DIR", temporary("nothing-here"))
        .env_remove("EMEL_MODEL")
        .env_remove("LLAMA_ARG_MODEL")
        .stdin(Stdio::null())
        .output()
        .expect("emel-run starts");
    assert_eq!(output.status.code(), Some(1));
    let errors = text(&output.stderr);
    assert_eq!(errors.trim().lines().count(), 1, "{errors}");
    assert!(errors.contains("fetch_models.sh"), "{errors}");
}

#[test]
fn contexts_and_threads_are_checked() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    let long = "word ".repeat(200);
    fails(
        &["-m", path, "-c", "64", "-p", &long],
        b"",
        1,
        &["tokens", "64", "-c"],
    );
    let full = "the context of 16 tokens is full: -c N";
    for (n, told) in [("100", true), ("-1", true), ("-2", false), ("2", false)] {
        let arguments = ["-m", path, "-c", "16", "--ignore-eos", "-p", "x", "-n", n];
        let output = run(&arguments, b"");
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(text(&output.stderr).contains(full), told, "-n {n}");
    }
    fails(&["-m", path, "-t", "0", "-p", "x"], b"", 2, &["-t"]);
    fails(&["-m", path, "-t", "many", "-p", "x"], b"", 2, &["-t"]);
    fails(&["-m", path, "--no-such-flag"], b"", 2, &["--no-such-flag"]);
    let output = run(&["-m", path, "-c", "5000", "-n", "2", "-p", "x"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("5000"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn an_instruction_set_this_machine_lacks_is_refused_by_name() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    for level in emel_kernels::Level::ALL {
        let output = run(
            &["-m", path, "--isa", level.name(), "-n", "1", "-p", "x"],
            b"",
        );
        let code = if level.is_available() { 0 } else { 1 };
        assert_eq!(
            output.status.code(),
            Some(code),
            "{level}: {}",
            text(&output.stderr)
        );
        assert!(level.is_available() || text(&output.stderr).contains(level.name()));
    }
}

#[test]
fn prompts_that_are_not_utf8_are_refused() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    fails(&["-m", path, "-n", "1"], b"abc\xff\xfe", 1, &["UTF-8", "3"]);
}

#[test]
fn text_alone_goes_to_standard_output() {
    let path = model(SMOLLM2);
    let path = path.to_str().expect("UTF-8");
    let arguments = [
        "-m",
        path,
        "-n",
        "8",
        "--temp",
        "0",
        "-no-cnv",
        "-p",
        "The capital of France is",
    ];
    let output = run(&arguments, b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("The capital of France is Paris."));
    assert!(text(&output.stderr).contains("prompt eval time"));
    let bare = run(
        &[&arguments[..], &["--no-display-prompt", "--no-perf"]].concat(),
        b"",
    );
    assert!(
        text(&bare.stdout).starts_with(" Paris."),
        "{}",
        text(&bare.stdout)
    );
    assert_eq!(text(&bare.stderr), "");
}

#[test]
fn chat_answers_once_when_nobody_is_there() {
    let path = model(SMOLLM2);
    let path = path.to_str().expect("UTF-8");
    let arguments = ["-m", path, "-cnv", "-n", "24", "--temp", "0", "--no-perf"];
    let output = run(&arguments, b"Why is the sky blue?\n");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("The sky appears blue"),
        "{}",
        text(&output.stdout)
    );
    assert!(
        !text(&output.stdout).contains("<|im_"),
        "{}",
        text(&output.stdout)
    );
}

#[test]
fn a_stop_string_ends_the_reply_and_is_not_shown() {
    let path = model(SMOLLM2);
    let path = path.to_str().expect("UTF-8");
    let output = run(
        &[
            "-m",
            path,
            "-n",
            "32",
            "--temp",
            "0",
            "-no-cnv",
            "--no-display-prompt",
            "-r",
            "ris",
            "-p",
            "The capital of France is",
        ],
        b"",
    );
    assert_eq!(text(&output.stdout), " Pa\n");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let path = model(SMOLLM2);
    let mut child = emel_run()
        .arg("-m")
        .arg(&path)
        .args([
            "-n",
            "400",
            "--temp",
            "0",
            "-no-cnv",
            "-p",
            "Once upon a time",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("emel-run starts");
    let mut first = [0; 4];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("some text");
    let output = child.wait_with_output().expect("emel-run ends");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        !text(&output.stderr).contains("error"),
        "{}",
        text(&output.stderr)
    );
}

/// A trace of a run reads back and tells of every token.
#[test]
fn traces_tell_every_token() {
    let path = model(SMOLLM2);
    let trace = temporary("run.tokens.txt");
    let output = emel_run()
        .arg("-m")
        .arg(&path)
        .args([
            "-n",
            "5",
            "--temp",
            "0",
            "-no-cnv",
            "-p",
            "The capital of France is",
        ])
        .args(["--top-logprobs", "3", "--trace"])
        .arg(&trace)
        .stdin(Stdio::null())
        .output()
        .expect("emel-run starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found = fs::read_to_string(&trace).expect("a trace");
    Trace::parse(&found).expect("a trace that its own reader takes");
    let tokens: Vec<&str> = found
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(tokens.len(), 5);
    assert!(
        tokens.iter().all(|line| line.split(' ').count() == 6),
        "{found}"
    );
    assert!(found.contains("# numerics=emel-2") && found.trim_end().ends_with("# stop=limit"));
}

#[test]
fn a_full_disk_leaves_no_trace_and_says_so() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    fails_on_trace(path, "/dev/full");
    fails(
        &[
            "-m",
            path,
            "-n",
            "1",
            "-p",
            "x",
            "--trace",
            "/no/such/folder/t",
        ],
        b"",
        1,
        &["/no/such/folder"],
    );
}

#[test]
fn a_standard_error_that_is_full_costs_no_work() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    let code = |arguments: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full");
        let mut command = emel_run();
        command.args(arguments).stdin(Stdio::null());
        let status = command
            .stdout(Stdio::null())
            .stderr(full.expect("a full device"))
            .status();
        status.expect("emel-run starts").code()
    };
    let trace = temporary("full-stderr.tokens.txt");
    let to = trace.to_str().expect("UTF-8");
    let arguments = [
        "-m", path, "-c", "5000", "-n", "2", "-p", "x", "--trace", to, "--perf",
    ];
    assert_eq!(code(&arguments), Some(0));
    assert!(fs::metadata(&trace).expect("a trace").len() > 0);
    fs::remove_file(&trace).expect("the trace");
    assert_eq!(code(&["-m", "/no/such/model", "-p", "x"]), Some(1));
    assert_eq!(code(&["--no-such-flag"]), Some(2));
}

fn fails_on_trace(model: &str, target: &str) {
    let output = run(&["-m", model, "-n", "4", "-p", "x", "--trace", target], b"");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains(target),
        "{}",
        text(&output.stderr)
    );
}

/// Sends `signal` once the run has written something.
fn interrupt(signals: &[&str], trace: &Path) -> Output {
    let path = model(SMOLLM2);
    let mut child = emel_run()
        .arg("-m")
        .arg(&path)
        .args([
            "-n",
            "4000",
            "--temp",
            "0",
            "-no-cnv",
            "--ignore-eos",
            "-p",
            "Once upon a time",
        ])
        .arg("--trace")
        .arg(trace)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("emel-run starts");
    let mut first = [0; 24];
    child
        .stdout
        .as_mut()
        .expect("a pipe")
        .read_exact(&mut first)
        .expect("some text");
    for signal in signals {
        let sent = Command::new("kill")
            .args([*signal, &child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }
    child.wait_with_output().expect("emel-run ends")
}

#[test]
fn the_first_interrupt_ends_the_reply_cleanly() {
    let trace = temporary("interrupted.tokens.txt");
    let output = interrupt(&["-INT"], &trace);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("eval time"),
        "{}",
        text(&output.stderr)
    );
    let found = fs::read_to_string(&trace).expect("the trace is written");
    assert!(found.trim_end().ends_with("# stop=cancelled"), "{found}");
}

#[test]
fn a_killed_run_leaves_no_trace_file() {
    let trace = temporary("killed.tokens.txt");
    let output = interrupt(&["-KILL"], &trace);
    assert_eq!(output.status.code(), None);
    assert!(!trace.exists());
}

#[test]
fn tokenize_prints_ids_of_files_that_hold_a_vocabulary_alone() {
    let vocabulary = model("vocab/ggml-vocab-llama-spm.gguf");
    let path = vocabulary.to_str().expect("UTF-8");
    let output = run(
        &["-m", path, "--tokenize", "--no-bos", "-f", "-"],
        b"Hello world\n",
    );
    assert_eq!(
        text(&output.stdout),
        "15043 3186\n",
        "{}",
        text(&output.stderr)
    );
    let output = run(&["-m", path, "--tokenize", "-p", "Hello world", "-v"], b"");
    assert_eq!(
        text(&output.stdout),
        "1 -> '<s>'\n15043 -> ' Hello'\n3186 -> ' world'\n"
    );
}

#[test]
fn outputs_never_take_the_place_of_inputs_or_of_each_other() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    let before = fs::metadata(model.path()).expect("the model").len();
    let prompt = temporary("prompt.txt");
    fs::write(&prompt, "hello").expect("a file");
    let prompt_path = prompt.to_str().expect("UTF-8");
    let other = temporary("same.txt");
    let other = other.to_str().expect("UTF-8");
    fails(
        &["-m", path, "-n", "1", "-p", "x", "-o", path],
        b"",
        2,
        &["-o", "the model"],
    );
    fails(
        &["-m", path, "-n", "1", "-p", "x", "--trace", path],
        b"",
        2,
        &["--trace", "the model"],
    );
    fails(
        &["-m", path, "-n", "1", "-f", prompt_path, "-o", prompt_path],
        b"",
        2,
        &["prompt's file"],
    );
    fails(
        &[
            "-m", path, "-n", "1", "-p", "x", "-o", other, "--trace", other,
        ],
        b"",
        2,
        &["transcript"],
    );
    assert_eq!(fs::metadata(model.path()).expect("the model").len(), before);
    assert_eq!(fs::read_to_string(&prompt).expect("the prompt"), "hello");
}

#[test]
fn a_terminated_run_leaves_no_unfinished_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = interrupt(&["-TERM"], &folder.path().join("t"));
    assert_eq!(output.status.code(), Some(143), "{}", text(&output.stderr));
    let left: Vec<_> = fs::read_dir(&folder).expect("the folder").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_single_turn_is_a_chat_even_without_a_terminal() {
    let path = model(SMOLLM2);
    let path = path.to_str().expect("UTF-8");
    let arguments = [
        "-m",
        path,
        "-st",
        "-n",
        "8",
        "--temp",
        "0",
        "-p",
        "Why is the sky blue?",
    ];
    let output = run(&arguments, b"");
    assert!(
        text(&output.stdout).starts_with("The answer to this question"),
        "{}",
        text(&output.stdout)
    );
}

/// An endless input ends with a message, not with all of the memory.
#[test]
fn endless_prompts_are_refused() {
    let model = small();
    let path = model.path().to_str().expect("UTF-8");
    fails(
        &["-m", path, "-n", "1", "-f", "/dev/zero"],
        b"",
        1,
        &["/dev/zero", "MiB"],
    );
}
