//! Drafting ahead changes nothing but speed: tokens, logits, cache and ends of a run are those of
//! plain decode, for every family, route, draft length, lane count and sampler.

mod common;

use common::{emel_run, model, temporary};
use emel::engine::{
    Engine, ExecutionPolicy, Generator, Halt, Limits, LoadOptions, Output, Prompt, RoutePolicy,
    Session, SpeculationPolicy, Step, StopReason, VerifyCosts,
};
use emel::gguf::{Gguf, TensorType};
use emel::model::testing::TestModel;
use emel::sampling::{Sampler, SamplerConfig};
use emel::tokenizer::{EncodeOptions, TokenId, Tokenizer};
use emel::trace::checksum::Checksums;
use emel_kernels::Level;
use std::path::Path;

const DRAFTS: [usize; 5] = [1, 3, 8, 16, 33];

/// Drafts at every chance, right or wrong, on every route.
fn eager(draft_max: usize) -> SpeculationPolicy {
    SpeculationPolicy {
        draft_max,
        draft_min: 0,
        ngram_max: 1,
        ngram_min: 1,
        costs: VerifyCosts {
            chunk4: 0.0,
            chunk8: 1e-9,
            wide: 0.0,
            wide_token: 0.0,
            attention: 0.0,
        },
        credit: 0.0,
        allowance: 0.0,
        credit_max: 0.0,
        rest_max: 0,
    }
}

/// The same, on one of the routes alone.
fn eager_on(route: &str, draft_max: usize) -> SpeculationPolicy {
    let cost = |name| if name == route { 0.0 } else { f64::INFINITY };
    SpeculationPolicy {
        // Drafts begin short, and short ones have no route.
        draft_min: if route == "chunk8" { 7 } else { 0 },
        costs: VerifyCosts {
            chunk4: cost("chunk4"),
            chunk8: cost("chunk8"),
            wide: cost("wide"),
            ..eager(1).costs
        },
        ..eager(draft_max)
    }
}

fn with_draft_max(draft_max: usize) -> SpeculationPolicy {
    SpeculationPolicy {
        draft_max,
        ..SpeculationPolicy::default()
    }
}

/// A sampler in which the order of draws and all that was selected before matter.
fn sampled() -> SamplerConfig {
    SamplerConfig {
        temp: 0.7,
        top_k: 20,
        seed: 7,
        repeat_penalty: 1.05,
        frequency_penalty: 0.1,
        ..SamplerConfig::default()
    }
}

/// A token that [`few`] hardly ever selects.
const RARE: TokenId = 6;

/// The same over three tokens, almost alone: random models are right about the next of so few, often
/// enough.
fn few(config: SamplerConfig) -> SamplerConfig {
    SamplerConfig {
        logit_bias: vec![(3, 1e3), (4, 1e3), (5, 1e3), (RARE, 997.0)],
        ..config
    }
}

/// Everything that a caller can see of one reply.
#[derive(Debug, PartialEq)]
struct Reply {
    reused: usize,
    ids: Vec<TokenId>,
    sums: String,
    cached: Vec<usize>,
    stop: StopReason,
}

/// Generates until it ends, or halts it after `halt` tokens.
fn reply(
    session: &Session,
    generator: &mut Generator<'_>,
    tokens: &[TokenId],
    halt: usize,
) -> Reply {
    let prefilled = Output::new();
    let output = &prefilled;
    assert!(generator.process_event(Prompt { tokens, output }));
    let reused = prefilled
        .take()
        .expect("an output")
        .expect("a prefill")
        .reused;
    let (mut ids, mut sums, mut cached) = (Vec::new(), Checksums::default(), Vec::new());
    let stepped = Output::new();
    let stop = loop {
        if ids.len() == halt {
            let reason = StopReason::Cancelled;
            let output = &stepped;
            assert!(generator.process_event(Halt { reason, output }));
        } else {
            assert!(generator.process_event(Step { output: &stepped }));
        }
        let step = stepped.take().expect("an output").expect("a step");
        if let Some(token) = step.token {
            assert_eq!(token.index, ids.len());
            let logits = session.logits();
            assert_eq!(token.logit.to_bits(), logits[token.id as usize].to_bits());
            ids.push(token.id);
            sums.add_id(token.id);
            sums.add_logits(&logits);
            cached.push(session.cached_tokens().len());
        }
        if let Some(stop) = step.stop {
            break stop;
        }
    };
    Reply {
        reused,
        ids,
        sums: sums.to_string(),
        cached,
        stop,
    }
}

/// One way to run.
#[derive(Clone)]
struct Run {
    lanes: usize,
    n_ctx: usize,
    speculation: SpeculationPolicy,
    sampler: SamplerConfig,
    limits: Limits,
    halt: usize,
}

impl Run {
    fn plain(n_ctx: usize, max_tokens: usize) -> Self {
        Run {
            lanes: 2,
            n_ctx,
            speculation: SpeculationPolicy::off(),
            sampler: SamplerConfig::greedy(),
            limits: Limits {
                max_tokens: Some(max_tokens),
                end_tokens: Vec::new(),
            },
            halt: usize::MAX,
        }
    }

    /// The replies to `prompts` in one session, and how many drafted tokens were accepted.
    fn replies(&self, path: &Path, prompts: &[Vec<TokenId>]) -> (Vec<Reply>, u64) {
        let execution = ExecutionPolicy {
            fork_min_work: 256,
            split_min_depth: 64,
            ..ExecutionPolicy::new(Level::best(), self.lanes)
        };
        let options = LoadOptions {
            n_ctx: Some(self.n_ctx),
            speculation: self.speculation,
            ..LoadOptions::new(execution, RoutePolicy::default())
        };
        let engine = Engine::load(path, &options).unwrap_or_else(|e| panic!("{e}"));
        let sampler = Sampler::new(&self.sampler, engine.n_vocab()).expect("a configuration");
        let session = Session::new(engine, sampler, self.limits.clone());
        let mut generator = Generator::new(&session);
        let replies = prompts
            .iter()
            .map(|prompt| reply(&session, &mut generator, prompt, self.halt))
            .collect();
        let counters = session.engine().counters();
        assert!(counters.accepted() <= counters.drafted());
        assert_eq!(counters.drafted() > 0, counters.verifying_passes() > 0);
        (replies, counters.accepted())
    }
}

/// A prompt that repeats itself, one that does not, and one of two tokens.
fn random_prompts() -> Vec<Vec<TokenId>> {
    let mixed = |n: TokenId| (0..n).map(|i| 3 + (i * 37 + i * i) % 290);
    vec![
        mixed(12).chain(mixed(12)).chain(mixed(12)).collect(),
        mixed(70).collect(),
        vec![5, 5],
    ]
}

const FAMILIES: [(&str, TensorType); 4] = [
    ("llama", TensorType::Q4_1),
    ("qwen2", TensorType::Q4_K),
    ("qwen3", TensorType::F16),
    ("gemma3", TensorType::Q6_K),
];

#[test]
fn every_family_and_route_is_as_plain() {
    let prompts = random_prompts();
    for (family, ty) in FAMILIES {
        let file = TestModel::new(family, ty)
            .write_temporary()
            .expect("a model");
        for sampler in [SamplerConfig::greedy(), sampled()] {
            let plain = Run {
                sampler: few(sampler),
                ..Run::plain(512, 90)
            };
            let (wanted, none) = plain.replies(file.path(), &prompts);
            assert_eq!(none, 0);
            let mut accepted = 0;
            for (i, draft_max) in DRAFTS.into_iter().enumerate() {
                let policies = [
                    eager(draft_max),
                    eager_on("chunk4", draft_max),
                    eager_on("chunk8", draft_max),
                    eager_on("wide", draft_max),
                    with_draft_max(draft_max),
                ];
                for (j, speculation) in policies.into_iter().enumerate() {
                    let run = Run {
                        speculation,
                        lanes: 1 + (i + j) % 3,
                        ..plain.clone()
                    };
                    let (found, right) = run.replies(file.path(), &prompts);
                    assert!(found == wanted, "{family}, {speculation:?}");
                    accepted += right;
                }
            }
            assert!(accepted > 0, "{family}: no draft was ever right");
        }
    }
}

fn plain_few(n_ctx: usize, max_tokens: usize) -> Run {
    Run {
        sampler: few(sampled()),
        ..Run::plain(n_ctx, max_tokens)
    }
}

/// A model, a prompt, and what plain decode says to it.
fn repeating() -> (
    emel::model::testing::TemporaryModel,
    Vec<Vec<TokenId>>,
    Vec<TokenId>,
) {
    let file = TestModel::new("llama", TensorType::Q8_0);
    let file = file.write_temporary().expect("a model");
    let prompts = vec![random_prompts().remove(0)];
    let (replies, _) = plain_few(512, 120).replies(file.path(), &prompts);
    let ids = replies[0].ids.clone();
    (file, prompts, ids)
}

#[test]
fn a_run_ends_in_the_middle_of_a_right_draft_as_plain_does() {
    let (file, prompts, _) = repeating();
    let mut ended = 0;
    for end in 100..110 {
        let plain = plain_few(512, 120);
        let by_limit = plain_few(512, end);
        let by_context = plain_few(prompts[0].len() + end, usize::MAX);
        let by_token = Run {
            limits: Limits {
                max_tokens: Some(400),
                end_tokens: vec![RARE],
            },
            sampler: SamplerConfig {
                seed: end as u32,
                ..plain.sampler.clone()
            },
            ..plain.clone()
        };
        let by_caller = Run { halt: end, ..plain };
        let stops = [
            StopReason::Limit,
            StopReason::ContextFull,
            StopReason::EndOfGeneration,
            StopReason::Cancelled,
        ];
        let runs = [by_limit, by_context, by_token, by_caller];
        for (plain, stop) in runs.into_iter().zip(stops) {
            let wanted = plain.replies(file.path(), &prompts).0;
            assert!(wanted[0].stop == stop || wanted[0].ids.len() == 400);
            for draft_max in DRAFTS {
                let run = Run {
                    speculation: eager(draft_max),
                    ..plain.clone()
                };
                let (found, right) = run.replies(file.path(), &prompts);
                assert!(found == wanted, "{stop:?} at {end}, drafts of {draft_max}");
                assert!(right > 0 || wanted[0].ids.len() < 20);
                ended += usize::from(found[0].stop == StopReason::EndOfGeneration);
            }
        }
    }
    assert!(ended > 0, "no run has met its end token");
}

#[test]
fn the_next_turn_finds_the_cache_that_plain_leaves() {
    let (file, prompts, ids) = repeating();
    for cut in 60..70 {
        // What was generated comes back as part of a longer prompt, as in a chat.
        let mut next = prompts[0].clone();
        next.extend(&ids[..cut]);
        next.extend([9, 8, 7]);
        let turns = [prompts[0].clone(), next];
        let plain = Run {
            halt: cut + 1,
            ..plain_few(512, 120)
        };
        let wanted = plain.replies(file.path(), &turns).0;
        assert!(wanted[1].reused > prompts[0].len());
        for draft_max in [3, 8, 33] {
            let run = Run {
                speculation: eager(draft_max),
                ..plain.clone()
            };
            assert_eq!(run.replies(file.path(), &turns).0, wanted, "{draft_max}");
        }
    }
}

const POEM: &str = "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, \
    merrily, life is but a dream. Row, row, row your boat, gently down the stream. Merrily, merrily,";
const ESSAY: &str =
    "The first lighthouses were fires on hilltops, kept burning so that ships could";
const CODE: &str = "fn red() -> Colour { Colour::new(255, 0, 0) }\nfn green() -> Colour { \
    Colour::new(0, 255, 0) }\nfn blue() -> Colour {";

fn tokens(path: &Path, texts: &[&str]) -> Vec<Vec<TokenId>> {
    let gguf = Gguf::open(path).expect("a readable model");
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).expect("a known tokenizer");
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    texts
        .iter()
        .map(|text| tokenizer.encode(text, options))
        .collect()
}

/// Real text, drafted eagerly and by the default policy.
fn real(name: &str) {
    let path = model(name);
    let prompts = tokens(&path, &[POEM, ESSAY, CODE]);
    for sampler in [SamplerConfig::greedy(), sampled()] {
        let plain = Run {
            sampler,
            ..Run::plain(512, 40)
        };
        let wanted = plain.replies(&path, &prompts).0;
        let mut accepted = [0, 0];
        for (i, draft_max) in DRAFTS.into_iter().enumerate() {
            for (j, speculation) in [eager(draft_max), with_draft_max(draft_max)]
                .into_iter()
                .enumerate()
            {
                let run = Run {
                    speculation,
                    lanes: 1 + (i + j) % 2,
                    ..plain.clone()
                };
                let (found, right) = run.replies(&path, &prompts);
                assert_eq!(found, wanted, "{name}, {speculation:?}");
                accepted[j] += right;
            }
        }
        assert!(accepted[0] > 0, "{name}: no eager draft was right");
        assert!(
            accepted[1] > 0,
            "{name}: no draft of the default policy was right"
        );
    }
}

#[test]
fn smollm2_is_as_plain() {
    real(common::SMOLLM2);
}

#[test]
fn gemma3_is_as_plain() {
    real(common::GEMMA3);
}

/// Standard output, checksums and trace of the real binary, and its draft line.
fn program(arguments: &[&str], speculate: bool) -> (Vec<u8>, String, String, Option<String>) {
    let trace = temporary("trace.tokens.txt");
    let mut command = emel_run();
    command
        .arg("-m")
        .arg(model(common::SMOLLM2))
        .args(["-p", POEM, "-no-cnv"]);
    command
        .args(["--logits-checksum", "--top-logprobs", "3", "--trace"])
        .arg(&trace);
    command.args(arguments);
    if speculate {
        command.args(["--spec-type", "ngram-simple", "--draft-max", "8"]);
    }
    let output = command.output().expect("emel-run starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let line = |word| {
        errors
            .lines()
            .find(|line| line.contains(word))
            .map(str::to_owned)
    };
    let written = std::fs::read_to_string(&trace).expect("a trace");
    let sums = line("logits=").expect("checksums");
    (output.stdout, sums, written, line("drafted"))
}

#[test]
fn the_program_writes_the_same_text_trace_and_checksums() {
    let cases: [&[&str]; 4] = [
        &["-n", "64", "--temp", "0"],
        &[
            "-n",
            "64",
            "--seed",
            "3",
            "--temp",
            "0.6",
            "--repeat-penalty",
            "1.02",
        ],
        &["-n", "200", "--temp", "0", "-r", "dream. Row"],
        &[
            "-n",
            "-2",
            "--temp",
            "0",
            "-c",
            "100",
            "--ignore-eos",
            "--seed",
            "1",
        ],
    ];
    for arguments in cases {
        let (text, sums, trace, drafts) = program(arguments, false);
        assert_eq!(drafts, None);
        let found = program(arguments, true);
        assert_eq!(
            (found.0, found.1, found.2),
            (text, sums, trace),
            "{arguments:?}"
        );
        let drafts = found.3.expect("a line about drafts");
        assert!(!drafts.contains(" 0 accepted"), "{drafts}");
    }
}
