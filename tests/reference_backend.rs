//! The llama.cpp backend over its protocol. With the reference built (`scripts/reference/build.sh`)
//! the real program answers: the one that `EMEL_REFERENCE` names, else the cache's. Without it,
//! recorded answers stand in for it; the test says which. `EMEL_BLESS=1` records the real ones anew.

mod common;
#[path = "common/reference.rs"]
mod reference;

use common::{SMOLLM2, model, temporary};
use emel::bench::protocol::{KernelReady, Loaded, Ran, Timed};
use emel::gguf::Gguf;
use emel::tokenizer::{EncodeOptions, Tokenizer};
use emel::trace::{Trace, checksum::Fnv64};
use reference::{Backend, bless, check_error, done, golden, program};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const TEXT: &str = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n";
const TOKENS: usize = 8;

/// What is asked, in order; the paths are this run's own.
fn requests(model: &Path, trace: &Path) -> Vec<Value> {
    let load = json!({"op": "load", "model": model, "threads": 2, "threads_batch": 1, "n_ctx": 256,
        "n_ubatch": 64, "options": {"flash_attention": true, "repack": true}});
    let run = json!({"op": "run", "text": TEXT, "prompt_tokens": null, "max_tokens": TOKENS,
        "stop": "limit", "observe": true, "trace": trace, "top_logprobs": 3,
        "header": {"model_sha256": "00ff", "workload_id": "a", "lane": "multithreaded",
            "note": "from a test"}});
    let mut cut = run.clone();
    cut["prompt_tokens"] = json!(3);
    cut["observe"] = json!(false);
    let kernel = json!({"op": "prepare_kernel", "kernel": "matmul", "ty": "q4_k", "rows": 64,
        "cols": 256, "tokens": 33, "threads": 2, "options": {"repack": true}});
    let repeat = json!({"op": "run_kernel", "samples": 3, "min_sample_ns": 1000});
    let barrier = json!({"op": "barrier", "threads": 2, "samples": 2, "min_sample_ns": 1000});
    vec![load, run, cut, kernel, repeat, barrier]
}

/// Answers to [`requests`] and the trace that was written: the program's, or recorded ones.
fn answers() -> (Vec<String>, Trace) {
    let Some(program) = program() else {
        eprintln!("the reference is not built: checking recorded answers");
        let text = std::fs::read_to_string(golden("answers.jsonl")).unwrap();
        let trace = Trace::read(&golden("smollm2.tokens.txt")).unwrap();
        return (text.lines().map(str::to_owned).collect(), trace);
    };
    eprintln!("checking the answers of {}", program.display());
    let file = temporary("reference.tokens.txt");
    let mut backend = Backend::start(&program);
    let answers: Vec<String> = requests(&model(SMOLLM2), &file)
        .iter()
        .map(|request| backend.ask(&request.to_string()))
        .collect();
    let trace = Trace::read(&file);
    bless("answers.jsonl", &(answers.join("\n") + "\n"));
    bless(
        "smollm2.tokens.txt",
        &std::fs::read_to_string(&file).unwrap(),
    );
    (answers, trace.unwrap())
}

fn ids_checksum(ids: &[u32]) -> String {
    let mut sum = Fnv64::new();
    ids.iter().for_each(|id| sum.update(&id.to_le_bytes()));
    sum.to_string()
}

#[test]
fn a_generation_is_answered_and_traced() {
    let (answers, trace) = answers();
    let [load, run, cut, kernel, samples, barrier] = answers.as_slice() else {
        panic!("{} answers", answers.len());
    };
    let loaded: Loaded = done(load);
    assert_eq!(loaded.engine, "llama.cpp");
    assert_eq!((loaded.threads, loaded.threads_batch), (2, 1));
    assert!(!loaded.isa.is_empty() && !loaded.isa.contains(' '));
    assert!(loaded.load_ns > 0);
    assert_eq!(loaded.options["flash_attention"], json!(true));
    assert_eq!(loaded.options["cache_type_k"], json!("f16"));
    assert_eq!(loaded.options["n_ubatch"], json!(64));

    let ran: Ran = done(run);
    let gguf = Gguf::open(&model(SMOLLM2)).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    assert_eq!(ran.prompt_ids, tokenizer.encode(TEXT, options));
    assert_eq!((ran.ids.len(), ran.step_ns.len()), (TOKENS, TOKENS - 1));
    assert_eq!(ran.stop, "limit");
    let text = tokenizer.decode(&ran.ids, false).unwrap();
    assert_eq!(ran.output_bytes, text.len());
    let mut sum = Fnv64::new();
    sum.update(text.as_bytes());
    assert_eq!(ran.text_checksum, Some(sum.to_string()));
    assert_eq!(ran.ids_checksum, Some(ids_checksum(&ran.ids)));
    assert_eq!(ran.logits_checksum.map(|sum| sum.len()), Some(16));
    assert!(ran.prefill_ns > 0 && ran.first_token_ns > 0 && ran.peak_rss_bytes > 1 << 20);

    assert_eq!(trace.header.engine, "llama.cpp");
    assert_eq!(trace.header.engine_version, loaded.engine_version);
    assert_eq!(trace.header.model_sha256, "00ff");
    assert_eq!(trace.header.lane, "multithreaded");
    assert_eq!(trace.header.isa, loaded.isa);
    let more = |key: &str| trace.header.more.iter().find(|(known, _)| known == key);
    assert_eq!(more("note").unwrap().1, "from a test");
    assert_eq!(more("options_repack").unwrap().1, "true");
    assert_eq!(trace.prompt, ran.prompt_ids);
    let ids: Vec<u32> = trace.tokens.iter().map(|token| token.id).collect();
    assert_eq!(ids, ran.ids);
    for token in &trace.tokens {
        assert_eq!(token.next.len(), 3);
        assert!(token.logit >= token.next[0].1 && token.logit.is_finite());
    }

    let cut: Ran = done(cut);
    assert_eq!(cut.prompt_ids, ran.prompt_ids[..3]);
    assert_eq!((cut.ids_checksum, cut.logits_checksum), (None, None));

    let ready: KernelReady = done(kernel);
    assert!(ready.variant.contains("q4_K"), "{}", ready.variant);
    let timed: Timed = done(samples);
    assert_eq!(timed.ns.len(), 3);
    assert!(timed.operations > 0 && timed.ns.iter().all(|&ns| ns > 0.0));
    let timed: Timed = done(barrier);
    assert!(timed.ns.len() == 2 && timed.ns.iter().all(|&ns| ns > 0.0));
}

/// Requests that cannot be met, and what the answer must say.
const HOSTILE: &[(&str, &str)] = &[
    ("", "not JSON"),
    ("{", "not JSON"),
    ("\u{0}\u{1f}", "not JSON"),
    (r#""\ud800""#, "not JSON"),
    ("[]", "object is due"),
    ("7", "object is due"),
    ("{}", "'op' is missing"),
    (r#"{"op":7}"#, "'op' must be a string"),
    (r#"{"op":"fly"}"#, "'fly' is not known"),
    (r#"{"op":"load"}"#, "'model' is missing"),
    (
        r#"{"op":"load","model":"/no/such.gguf","threads":1,"threads_batch":1,"n_ctx":64,"n_ubatch":64}"#,
        "cannot open /no/such.gguf",
    ),
    (
        r#"{"op":"load","model":"/","threads":1,"threads_batch":1,"n_ctx":64,"n_ubatch":64}"#,
        "not a file",
    ),
    (
        r#"{"op":"load","model":"MODEL","threads":1000000,"threads_batch":1,"n_ctx":64,"n_ubatch":64}"#,
        "'threads' must be an integer from 1 to",
    ),
    (
        r#"{"op":"load","model":"MODEL","threads":1,"threads_batch":1,"n_ctx":1e30,"n_ubatch":64}"#,
        "'n_ctx' must be an integer",
    ),
    (
        r#"{"op":"load","model":"MODEL","threads":1,"threads_batch":1,"n_ctx":16777216,"n_ubatch":64}"#,
        "not enough memory: the context takes",
    ),
    (
        r#"{"op":"load","model":"MODEL","threads":1,"threads_batch":1,"n_ctx":64,"n_ubatch":64,"options":{"warp":9}}"#,
        "option 'warp' is not known",
    ),
    (
        r#"{"op":"load","model":"NOT_A_MODEL","threads":1,"threads_batch":1,"n_ctx":64,"n_ubatch":64}"#,
        "cannot load",
    ),
    (
        r#"{"op":"run","text":"a","max_tokens":1,"stop":"limit","observe":false}"#,
        "no model is loaded",
    ),
    (
        r#"{"op":"force","ids":[1],"prompt":1,"logits":"logits"}"#,
        "no model is loaded",
    ),
    (
        r#"{"op":"run_kernel","samples":1,"min_sample_ns":1}"#,
        "no kernel case",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"dance"}"#,
        "kernel 'dance' is not known",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"matmul","ty":"q8_1","rows":1,"cols":32,"tokens":1,"threads":1}"#,
        "type 'q8_1'",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"matmul","ty":"q4_k","rows":1,"cols":32,"tokens":1,"threads":1}"#,
        "'cols' must be a multiple of 256",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"matmul","ty":"f32","rows":16777216,"cols":16777216,"tokens":16777216,"threads":1}"#,
        "not enough memory",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"rms_norm","width":16777216,"tokens":16777216,"threads":1}"#,
        "not enough memory",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"attention","n_head":4096,"n_head_kv":4096,"head_dim":4096,"depth":16777216,"tokens":16777216,"threads":1}"#,
        "not enough memory",
    ),
    (
        r#"{"op":"prepare_kernel","kernel":"attention","n_head":3,"n_head_kv":2,"head_dim":64,"depth":9,"tokens":1,"threads":1}"#,
        "multiple of 'n_head_kv'",
    ),
    (
        r#"{"op":"barrier","threads":0,"samples":1,"min_sample_ns":1}"#,
        "'threads' must be",
    ),
    (
        r#"{"op":"barrier","threads":1,"samples":1e9,"min_sample_ns":1}"#,
        "'samples' must be",
    ),
];

#[test]
fn hostile_requests_are_answered_with_errors() {
    let Some(program) = program() else {
        eprintln!("the reference is not built: checking recorded errors");
        let text = std::fs::read_to_string(golden("errors.jsonl")).unwrap();
        let answers: Vec<&str> = text.lines().collect();
        assert_eq!(answers.len(), HOSTILE.len());
        for ((request, wanted), answer) in HOSTILE.iter().zip(answers) {
            check_error(request, wanted, answer);
        }
        return;
    };
    let mut backend = Backend::start(&program);
    let broken = temporary("broken.gguf");
    std::fs::write(&broken, b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f").unwrap();
    let mut recorded = String::new();
    for (request, wanted) in HOSTILE {
        let request = request
            .replace("NOT_A_MODEL", broken.to_str().unwrap())
            .replace("MODEL", model(SMOLLM2).to_str().unwrap());
        let answer = backend.ask(&request);
        check_error(&request, wanted, &answer);
        recorded += &answer.replace(broken.to_str().unwrap(), "NOT_A_MODEL");
        recorded.push('\n');
    }
    std::fs::remove_file(&broken).unwrap();
    // A line too long to keep, and the backend still goes on.
    let long = format!("{{\"op\":\"{}\"}}", "x".repeat(65 << 20));
    check_error("a long line", "too long", &backend.ask(&long));
    let barrier = json!({"op": "barrier", "threads": 1, "samples": 1, "min_sample_ns": 1});
    let _: Timed = done(&backend.ask(&barrier.to_string()));
    check_end(backend);
    bless("errors.jsonl", &recorded);
}

/// It must end with its input, even while it computes.
fn check_end(mut backend: Backend) {
    let hour = json!({"op": "barrier", "threads": 1, "samples": 100,
        "min_sample_ns": 36_000_000_000_u64});
    writeln!(backend.requests.as_ref().unwrap(), "{hour}").unwrap();
    backend.requests = None;
    for _ in 0..600 {
        if let Some(status) = backend.child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it goes on without its input");
}
