//! Every flag once, through the same entry as the program.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;

use emel_kernels::{CacheType, Level};

use super::flag::{self, Act};
use super::*;
use crate::engine::Route;
use crate::gguf::Value;
use crate::sampling::{Mirostat, SamplerKind};

fn run_with(args: &[&str], env: &[(&str, &str)]) -> Result<RunConfig, UsageError> {
    let env = |name: &str| {
        env.iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| OsString::from(value))
    };
    match parse(args.iter().map(OsString::from), env)? {
        Parsed::Run(config) => Ok(*config),
        Parsed::Print(text) => panic!("printed instead: {text}"),
    }
}

fn run(args: &[&str]) -> RunConfig {
    run_with(args, &[]).unwrap_or_else(|error| panic!("{args:?}: {error}"))
}

fn refusal(args: &[&str]) -> String {
    run_with(args, &[])
        .expect_err("should be refused")
        .to_string()
}

fn page(arg: &str) -> String {
    match parse([OsString::from(arg)], |_| None) {
        Ok(Parsed::Print(text)) => text,
        other => panic!("no page: {other:?}"),
    }
}

fn text(text: &str) -> Option<Source> {
    Some(Source::Text(text.to_owned()))
}

#[test]
fn nothing_given_is_llama_cpps_defaults() {
    let c = run(&[]);
    assert_eq!((c.model, c.prompt, c.system), (None, None, None));
    assert_eq!((c.n_ctx, c.n_batch, c.n_ubatch), (0, 2048, 512));
    assert_eq!((c.threads, c.threads_batch), (None, None));
    assert_eq!((c.isa, c.route), (None, None));
    assert_eq!(c.n_predict, Predict::Endless);
    assert_eq!(
        (c.chat, c.reasoning, c.color),
        (Switch::Auto, Switch::Auto, Switch::Auto)
    );
    assert_eq!(c.template, TemplateSource::Model);
    assert!(c.display_prompt && c.timings && c.escape);
    assert!(!(c.single_turn || c.special || c.ignore_eos || c.tokenize || c.logits_checksum));
    assert_eq!(c.sampling, crate::sampling::SamplerConfig::default());
    assert_eq!((c.seed, c.verbosity, c.top_logprobs), (None, 3, 0));
}

#[test]
fn no_name_is_used_twice() {
    let mut seen = HashSet::new();
    for flag in flag::all() {
        let mut names = vec![format!("--{}", flag.long)];
        names.extend(flag.also.iter().map(|name| format!("--{name}")));
        names.extend(flag.dash.iter().map(|name| format!("-{name}")));
        if let Act::Toggle { off, off_dash, .. } = flag.act {
            names.push(format!("--{off}"));
            names.extend(off_dash.iter().map(|name| format!("-{name}")));
        }
        for name in names {
            assert!(seen.insert(name.clone()), "{name} is used twice");
        }
        let shown = !matches!(flag.act, Act::Refused { .. });
        assert_eq!(shown, !flag.help.is_empty(), "--{} and its help", flag.long);
    }
    // clap's own consistency checks.
    super::command().debug_assert();
}

#[test]
fn model_and_its_environment() {
    let path = |p: &str| Some(PathBuf::from(p));
    assert_eq!(run(&["-m", "a.gguf"]).model, path("a.gguf"));
    assert_eq!(run(&["--model=a b.gguf"]).model, path("a b.gguf"));
    let both = [("EMEL_MODEL", "ours"), ("LLAMA_ARG_MODEL", "theirs")];
    assert_eq!(run_with(&[], &both).unwrap().model, path("ours"));
    assert_eq!(run_with(&[], &both[1..]).unwrap().model, path("theirs"));
    assert_eq!(
        run_with(&["-m", "typed"], &both).unwrap().model,
        path("typed")
    );
    assert_eq!(run_with(&[], &[("EMEL_MODEL", "")]).unwrap().model, None);
    assert!(refusal(&["-m", ""]).contains("-m, --model: wants a file name"));
    assert_eq!(
        refusal(&["x.gguf"]),
        "x.gguf stands alone; name the model with -m x.gguf"
    );
}

#[cfg(unix)]
#[test]
fn file_names_need_not_be_utf8_but_texts_must() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"m\xff.gguf".to_vec());
    let Ok(Parsed::Run(c)) = parse([OsString::from("-m"), odd.clone()], |_| None) else {
        panic!("not parsed");
    };
    assert_eq!(c.model, Some(PathBuf::from(&odd)));
    let error = parse([OsString::from("-p"), odd], |_| None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "-p, --prompt: the value is not valid UTF-8"
    );
}

#[test]
fn overrides() {
    let c = run(&[
        "--override-kv",
        r#"a.b=int:-3,"c=str:x,y:z""#,
        "--override-kv",
        "d=bool:true",
    ]);
    let expected = [
        ("a.b", Value::I64(-3)),
        ("c", Value::String("x,y:z".to_owned())),
        ("d", Value::Bool(true)),
    ];
    assert_eq!(
        c.overrides,
        expected.map(|(key, value)| (key.to_owned(), value))
    );
    let message = refusal(&["--override-kv", "a=list:3"]);
    assert!(
        message.starts_with("--override-kv: ") && message.contains("a=list:3"),
        "{message}"
    );
}

#[test]
fn threads() {
    let c = run(&["-t", "3", "-tb", "2"]);
    assert_eq!((c.threads, c.threads_batch), (Some(3), Some(2)));
    assert_eq!(run(&["--threads", "-1"]).threads, None);
    assert_eq!(run(&["-t5"]).threads, Some(5));
    assert_eq!(
        run_with(&[], &[("LLAMA_ARG_THREADS", "7")])
            .unwrap()
            .threads,
        Some(7)
    );
    assert!(refusal(&["-t", "0"]).contains("at least one thread"));
    assert!(refusal(&["-tb", "0"]).contains("-tb, --threads-batch: at least one thread"));
    assert!(refusal(&["-t", "two"]).contains("'two' is not a whole number"));
    assert!(refusal(&["-t", "-2"]).contains("-1 to 1024"));
    let error = run_with(&[], &[("LLAMA_ARG_THREADS", "0")])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("environment variable LLAMA_ARG_THREADS: "),
        "{error}"
    );
}

#[test]
fn isa_and_route() {
    for level in Level::ALL {
        assert_eq!(run(&["--isa", level.name()]).isa, Some(level));
    }
    for route in Route::ALL {
        assert_eq!(run(&["--route", route.name()]).route, Some(route));
    }
    assert_eq!(run(&["--isa", "scalar", "--isa", "auto"]).isa, None);
    assert_eq!(run(&["--route", "auto"]).route, None);
    let message = refusal(&["--isa", "sse"]);
    assert!(
        message.starts_with("--isa: 'sse' is none of auto, scalar, avx2, "),
        "{message}"
    );
    assert!(refusal(&["--route", "x"]).contains("none of auto, scalar, chunk4, chunk8, wide"));
}

#[test]
fn sizes() {
    let c = run(&["-c", "4096", "-b", "64", "-ub", "8", "-n", "5"]);
    assert_eq!((c.n_ctx, c.n_batch, c.n_ubatch), (4096, 64, 8));
    assert_eq!(c.n_predict, Predict::Count(5));
    assert_eq!(run(&["-b", "100"]).n_ubatch, 100);
    assert_eq!(run(&["-ub", "0"]).n_ubatch, 2048);
    for (given, wanted) in [
        (["-n", "-1"], Predict::Endless),
        (["--predict", "-2"], Predict::UntilFull),
        (["--n-predict", "0"], Predict::Count(0)),
        (["--n_predict", "9"], Predict::Count(9)),
    ] {
        assert_eq!(run(&given).n_predict, wanted);
    }
    assert!(refusal(&["-b", "0"]).contains("-b, --batch-size"));
    assert!(refusal(&["-n", "-3"]).contains("-n, --predict"));
    assert!(refusal(&["-c", "5000000000"]).contains("-c, --ctx-size"));
    assert!(refusal(&["-n", ""]).contains("'' is not a whole number"));
}

#[test]
fn the_prompt_has_four_sources_and_the_last_counts() {
    assert_eq!(run(&["-p", "hello"]).prompt, text("hello"));
    assert_eq!(run(&["-f", "x"]).prompt, Some(Source::File("x".into())));
    assert_eq!(run(&["-f", "-"]).prompt, Some(Source::Stdin));
    assert_eq!(run(&["-bf", "x"]).prompt, Some(Source::Binary("x".into())));
    assert_eq!(run(&["-f", "x", "-p", "y"]).prompt, text("y"));
    assert_eq!(
        run(&["-p", "y", "-f", "x"]).prompt,
        Some(Source::File("x".into()))
    );
    assert_eq!(run(&["-p", ""]).prompt, text(""));
}

#[test]
fn a_value_is_a_value_whatever_it_looks_like() {
    for odd in [
        "-sys", "--help", "--", "-", "- a list", "a=b", "--temp=3", "-n5",
    ] {
        assert_eq!(run(&["-p", odd]).prompt, text(odd), "{odd}");
        assert_eq!(run(&["--prompt", odd]).prompt, text(odd), "{odd}");
    }
    assert_eq!(run(&["-p=x=y"]).prompt, text("x=y"));
}

#[test]
fn escapes_are_processed_unless_told_otherwise() {
    assert_eq!(run(&["-p", r"a\nb\x41"]).prompt, text("a\nbA"));
    assert_eq!(run(&["-e", "-p", r"a\tb"]).prompt, text("a\tb"));
    assert_eq!(run(&["-p", r"a\nb", "--no-escape"]).prompt, text(r"a\nb"));
    assert_eq!(
        run(&["--no-escape", "-p", r"a\nb", "-e"]).prompt,
        text("a\nb")
    );
    assert_eq!(run(&["-r", r"\n\n"]).stop, ["\n\n"]);
    assert!(refusal(&["-p", r"\xff"]).contains("not UTF-8 from byte 0"));
}

#[test]
fn stop_strings_add_up() {
    assert_eq!(
        run(&["-r", "a", "--reverse-prompt", "b", "-r", ""]).stop,
        ["a", "b"]
    );
}

#[test]
fn chat_mode_and_its_texts() {
    assert_eq!(run(&["-cnv"]).chat, Switch::On);
    assert_eq!(run(&["--conversation"]).chat, Switch::On);
    assert_eq!(run(&["-no-cnv"]).chat, Switch::Off);
    assert_eq!(run(&["--no-conversation"]).chat, Switch::Off);
    assert_eq!(run(&["-cnv", "-no-cnv"]).chat, Switch::Off);
    assert_eq!(run(&["-no-cnv", "-cnv", "-cnv"]).chat, Switch::On);
    assert_eq!(run(&["-sys", r"be\n"]).system, text(r"be\n"));
    assert_eq!(
        run(&["-sysf", "s.txt"]).system,
        Some(Source::File("s.txt".into()))
    );
    assert!(run(&["-st"]).single_turn && run(&["--single-turn"]).single_turn);
    assert!(run(&["-mli"]).multiline_input && run(&["--multiline-input"]).multiline_input);
    assert_eq!(run(&["-rea", "off"]).reasoning, Switch::Off);
    assert_eq!(run(&["--reasoning", "ON"]).reasoning, Switch::On);
    assert!(refusal(&["-rea", "maybe"]).contains("none of on, off, auto"));
    run(&["--reasoning-budget", "-1"]);
    assert!(refusal(&["--reasoning-budget", "100"]).contains("--reasoning off"));
}

#[test]
fn templates() {
    let named = TemplateSource::NameOrText("chatml".to_owned());
    assert_eq!(
        run(&["--jinja", "--chat-template", "chatml"]).template,
        named
    );
    let file = TemplateSource::File("t.jinja".into());
    assert_eq!(run(&["--chat-template-file", "t.jinja"]).template, file);
    let c = run(&[
        "--chat-template-kwargs",
        r#"{"a":1}"#,
        "--chat-template-kwargs",
        r#"{"b":2}"#,
    ]);
    assert_eq!(
        (&c.template_kwargs["a"], &c.template_kwargs["b"]),
        (&1.into(), &2.into())
    );
    assert!(refusal(&["--chat-template-kwargs", "[1]"]).contains("not a JSON object"));
}

#[test]
fn sampling_numbers() {
    let s = |args: &[&str]| run(args).sampling;
    assert_eq!(s(&["--temp", "0.5"]).temp, 0.5);
    assert_eq!(s(&["--temperature", "-1"]).temp, -1.0);
    assert_eq!(s(&["--dynatemp-range", "0.25"]).dynatemp_range, 0.25);
    assert_eq!(s(&["--dynatemp-exp", "2"]).dynatemp_exponent, 2.0);
    assert_eq!(s(&["--top-k", "1"]).top_k, 1);
    assert_eq!(s(&["--top_k", "-1"]).top_k, -1);
    assert_eq!(s(&["--top-p", "0.5"]).top_p, 0.5);
    assert_eq!(s(&["--min-p", "0.25"]).min_p, 0.25);
    assert_eq!(s(&["--typical", "0.5"]).typical_p, 0.5);
    assert_eq!(s(&["--typical-p", "0.75"]).typical_p, 0.75);
    assert_eq!(s(&["--top-nsigma", "1.5"]).top_n_sigma, 1.5);
    assert_eq!(s(&["--top-n-sigma", "2.5"]).top_n_sigma, 2.5);
    assert_eq!(s(&["--xtc-probability", "0.5"]).xtc_probability, 0.5);
    assert_eq!(s(&["--xtc-threshold", "0.25"]).xtc_threshold, 0.25);
    assert_eq!(s(&["--repeat-last-n", "0"]).repeat_last_n, 0);
    assert_eq!(s(&["--repeat-penalty", "1.5"]).repeat_penalty, 1.5);
    assert_eq!(s(&["--presence-penalty", "0.5"]).presence_penalty, 0.5);
    assert_eq!(s(&["--frequency-penalty", "-0.5"]).frequency_penalty, -0.5);
    assert_eq!(s(&["--dry-multiplier", "0.75"]).dry_multiplier, 0.75);
    assert_eq!(s(&["--dry-base", "2"]).dry_base, 2.0);
    assert_eq!(s(&["--dry-allowed-length", "4"]).dry_allowed_length, 4);
    assert_eq!(s(&["--dry-penalty-last-n", "128"]).dry_penalty_last_n, 128);
    assert_eq!(s(&["--mirostat", "1"]).mirostat, Mirostat::V1);
    assert_eq!(s(&["--mirostat", "2"]).mirostat, Mirostat::V2);
    assert_eq!(s(&["--mirostat-lr", "0.5"]).mirostat_eta, 0.5);
    assert_eq!(s(&["--mirostat-ent", "3"]).mirostat_tau, 3.0);
    assert_eq!(s(&["--temp", "1", "--temp", "2"]).temp, 2.0);
    assert!(refusal(&["--temp", "hot"]).contains("--temp: 'hot' is not a finite number"));
    assert!(refusal(&["--top-p", "nan"]).contains("--top-p"));
    assert!(refusal(&["--top-k", "1.5"]).contains("--top-k"));
    assert!(refusal(&["--repeat-last-n", "-1"]).contains("--repeat-last-n"));
    assert!(refusal(&["--repeat-penalty", "0"]).contains("not above 0"));
    assert!(refusal(&["--dry-base", "0.5"]).contains("--dry-base"));
    assert!(refusal(&["--mirostat", "3"]).contains("none of 0, 1, 2"));
}

#[test]
fn chain_seed_and_biases() {
    use SamplerKind::{Temperature, TopK};
    assert_eq!(
        run(&["--samplers", "top_k;temp"]).sampling.chain,
        [TopK, Temperature]
    );
    assert_eq!(
        run(&["--sampling-seq", "tk"]).sampling.chain,
        [Temperature, TopK]
    );
    assert_eq!(run(&["--sampler-seq", "k"]).sampling.chain, [TopK]);
    assert!(refusal(&["--samplers", "top_z"]).contains("'top_z' is not a sampler"));
    assert!(refusal(&["--sampling-seq", "kz"]).contains("'z' is not a sampler"));
    assert_eq!(run(&["-s", "42"]).seed, Some(42));
    assert_eq!(run(&["--seed", "-1"]).seed, None);
    assert_eq!(run(&["--seed", "4294967295"]).seed, None);
    assert!(refusal(&["-s", "4294967296"]).contains("-s, --seed"));
    let bias = run(&["-l", "15043+1.5", "--logit-bias", "2-inf", "-l", "7-2"])
        .sampling
        .logit_bias;
    assert_eq!(bias, [(15043, 1.5), (2, f32::NEG_INFINITY), (7, -2.0)]);
    for bad in ["3", "x+1", "3+", "3+inf", "3-nan", "-1+2"] {
        assert!(
            refusal(&["-l", bad]).contains("is not TOKEN_ID+BIAS"),
            "{bad}"
        );
    }
    assert!(run(&["--ignore-eos"]).ignore_eos);
}

#[test]
fn dry_breakers_replace_the_defaults_once() {
    let breakers = |args: &[&str]| run(args).sampling.dry_sequence_breakers;
    let flag = "--dry-sequence-breaker";
    assert_eq!(breakers(&[flag, "a", flag, r"\t"]), ["a", "\t"]);
    assert!(breakers(&[flag, "none"]).is_empty());
    assert_eq!(breakers(&[]), ["\n", ":", "\"", "*"]);
}

#[test]
fn display() {
    assert!(!run(&["--no-display-prompt"]).display_prompt);
    assert!(run(&["--no-display-prompt", "--display-prompt"]).display_prompt);
    assert!(run(&["--verbose-prompt"]).verbose_prompt);
    assert!(run(&["-sp"]).special && run(&["--special"]).special);
    assert_eq!(run(&["-co", "on"]).color, Switch::On);
    assert_eq!(run(&["--color=off"]).color, Switch::Off);
    assert!(run(&["--simple-io"]).simple_io);
    assert!(!run(&["--no-perf"]).timings && !run(&["--no-show-timings"]).timings);
    assert!(run(&["--no-perf", "--show-timings"]).timings && run(&["--perf"]).timings);
    assert_eq!(run(&["-v"]).verbosity, 5);
    assert_eq!(run(&["--verbose"]).verbosity, 5);
    assert_eq!(run(&["-lv", "1"]).verbosity, 1);
    assert_eq!(run(&["--log-verbosity", "99"]).verbosity, 5);
    assert_eq!(run(&["--log-disable"]).verbosity, 0);
}

#[test]
fn records() {
    let c = run(&[
        "--trace",
        "t.txt",
        "--top-logprobs",
        "4",
        "--logits-checksum",
        "-o",
        "out",
    ]);
    assert_eq!(
        (c.trace, c.output),
        (Some("t.txt".into()), Some("out".into()))
    );
    assert_eq!((c.top_logprobs, c.logits_checksum), (4, true));
    assert!(refusal(&["--top-logprobs", "4"]).contains("needs --trace"));
    assert!(refusal(&["--trace", "t", "--top-logprobs", "257"]).contains("0 to 256"));
}

#[test]
fn tokens_only() {
    let c = run(&["--tokenize", "-p", "x", "--no-bos", "--no-parse-special"]);
    assert!(c.tokenize && c.no_bos && c.no_parse_special);
    assert!(refusal(&["--tokenize"]).contains("needs a text"));
    assert!(refusal(&["--no-bos", "-p", "x"]).contains("with --tokenize only"));
    assert!(refusal(&["--no-parse-special"]).contains("with --tokenize only"));
}

#[test]
fn accepted_without_effect() {
    for form in [
        ["-ngl", "99"],
        ["--gpu-layers", "all"],
        ["--n-gpu-layers", "auto"],
    ] {
        let notes = run(&form).notes;
        assert_eq!(
            notes,
            ["-ngl, --gpu-layers has no effect: EMEL computes on the CPU"]
        );
    }
    for mode in ["on", "off", "auto"] {
        run(&["-fa", mode]);
    }
    run(&[
        "-ctk",
        "f16",
        "--cache-type-v",
        "F16",
        "-lm",
        "mmap",
        "--mmap",
        "--warmup",
    ]);
    run(&[
        "--no-warmup",
        "--keep",
        "0",
        "--no-context-shift",
        "--load-mode",
        "auto",
    ]);
    assert!(refusal(&["-fa", "x"]).contains("-fa, --flash-attn"));
    let types = |c: RunConfig| (c.cache_k, c.cache_v);
    assert_eq!(types(run(&[])), (CacheType::F16, CacheType::F16));
    let c = run(&["-ctk", "q8_0", "--cache-type-v", "F32"]);
    assert_eq!(types(c), (CacheType::Q8_0, CacheType::F32));
    let why = refusal(&["-ctk", "q4_0"]);
    assert!(why.contains("-ctk, --cache-type-k: 'q4_0' is none of f16, q8_0, f32"));
    assert!(refusal(&["-ctv", "q4_0"]).contains("-ctv"));
    assert!(refusal(&["-lm", "dio"]).contains("-lm"));
    assert!(refusal(&["--keep", "5"]).contains("no context shift"));
}

#[test]
fn what_is_not_there_is_refused_by_name() {
    let mut count = 0;
    for flag in flag::all() {
        let Act::Refused { value, why } = flag.act else {
            continue;
        };
        let mut names = vec![format!("--{}", flag.long)];
        names.extend(flag.also.iter().map(|name| format!("--{name}")));
        names.extend(flag.dash.iter().map(|name| format!("-{name}")));
        for name in names {
            let args: &[&str] = if value { &[&name, "1"] } else { &[&name] };
            let message = refusal(args);
            let wanted = format!("emel-run does not have {}: {why}", flag.names());
            assert_eq!(message, wanted, "{name}");
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
    assert!(refusal(&["-hf", "org/model:Q4_K_M"]).contains("-hf, -hfr, --hf-repo"));
}

#[test]
fn slips_are_usage_errors_with_a_hint() {
    assert_eq!(
        refusal(&["-xyz"]),
        "there is no flag -xyz (emel-run --help lists all)"
    );
    let message = refusal(&["--promt", "x"]);
    assert!(
        message.contains("--promt") && message.contains("'--prompt'"),
        "{message}"
    );
    let message = refusal(&["-p"]);
    assert!(
        message.contains("a value is required for '--prompt <TEXT>'"),
        "{message}"
    );
    assert!(!message.starts_with("error"), "{message}");
    assert!(refusal(&["stray"]).contains("'stray'"));
    assert!(refusal(&["--ignore-eos=yes"]).contains("--ignore-eos"));
}

#[test]
fn help_and_version() {
    let help = page("--help");
    assert_eq!(help, page("--usage"));
    for flag in flag::all() {
        let shown = help.contains(&format!("--{}", flag.long));
        let refused = matches!(flag.act, Act::Refused { .. });
        assert!(shown || refused, "--{} is not in the help", flag.long);
    }
    for (long, note) in [
        ("gpu-layers", "also -ngl"),
        ("conversation", "off: -no-cnv"),
    ] {
        assert!(help.contains(note), "--{long}: {note}");
    }
    for chapter in [
        "Model:",
        "Engine:",
        "Chat:",
        "Sampling:",
        "Display and records:",
    ] {
        assert!(help.contains(chapter), "{chapter}");
    }
    assert!(page("-h").len() < help.len());
    assert_eq!(
        page("--version"),
        format!("emel-run {}\n", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn drafts_are_off_until_asked_for() {
    let c = run(&[]);
    assert!(!c.speculate && c.draft_max.is_none() && c.draft_min.is_none());
    let c = run(&[
        "--spec-type",
        "ngram-simple",
        "--draft",
        "8",
        "--draft-min",
        "2",
    ]);
    assert_eq!(
        (c.speculate, c.draft_max, c.draft_min),
        (true, Some(8), Some(2))
    );
    assert!(c.notes.is_empty());
    assert_eq!(run(&["--draft-n", "3"]).notes.len(), 1);
    assert!(refusal(&["--spec-type", "eagle"]).contains("ngram-simple"));
    assert!(refusal(&["--draft-min", "99"]).contains("99 is more than --draft-max 16"));
    let crossed = refusal(&["--draft-min", "9", "--draft-max", "8"]);
    assert!(
        crossed.contains("9 is more than --draft-max 8"),
        "{crossed}"
    );
}
