//! One arithmetic, whole programs: `emel-run` prints the same checksums for every instruction
//! set, thread count, route, physical batch and process, whatever the types of the cache.
//!
//! The test samples the product of all settings so that every value of each one meets both
//! models and every prompt length; `EMEL_FULL_MATRIX=1` (or `scripts/test.sh --full`) runs the
//! whole product.

mod common;

use common::{emel_run, model};
use emel_kernels::Level;
use std::collections::BTreeMap;
use std::path::Path;

const THREADS: [&str; 4] = ["1", "2", "3", "8"];
const ROUTES: [&str; 5] = ["auto", "scalar", "chunk4", "chunk8", "wide"];
const UBATCHES: [&str; 6] = ["1", "4", "7", "8", "64", "512"];

/// One way to run the engine.
#[derive(Clone, Copy)]
struct Setting {
    level: Level,
    threads: &'static str,
    route: &'static str,
    ubatch: &'static str,
}

impl Setting {
    fn name(&self) -> String {
        let Setting {
            level,
            threads,
            route,
            ubatch,
        } = self;
        format!("--isa {level} -t {threads} --route {route} -ub {ubatch}")
    }
}

/// Every combination, in an order in which neighbours differ in most settings.
fn product(levels: &[Level]) -> Vec<Setting> {
    let (n_t, n_r, n_u) = (THREADS.len(), ROUTES.len(), UBATCHES.len());
    let mut all = Vec::new();
    for step in 0..levels.len() * n_t * n_r * n_u {
        let (level, rest) = (step % levels.len(), step / levels.len());
        let (thread, rest) = ((rest + level) % n_t, rest / n_t);
        let (route, rest) = ((rest + thread) % n_r, rest / n_r);
        all.push(Setting {
            level: levels[level],
            threads: THREADS[thread],
            route: ROUTES[route],
            ubatch: UBATCHES[(rest + route) % n_u],
        });
    }
    all
}

/// A sample of `all` in which each value of each setting occurs.
fn sample(all: &[Setting], n: usize) -> Vec<Setting> {
    let mut chosen: Vec<Setting> = all
        .iter()
        .step_by((all.len() / n).max(1))
        .copied()
        .collect();
    let mut missing = |value: &str, of: fn(&Setting) -> &str| {
        if !chosen.iter().any(|setting| of(setting) == value) {
            chosen.extend(all.iter().find(|setting| of(setting) == value));
        }
    };
    THREADS
        .iter()
        .for_each(|value| missing(value, |s| s.threads));
    ROUTES.iter().for_each(|value| missing(value, |s| s.route));
    UBATCHES
        .iter()
        .for_each(|value| missing(value, |s| s.ubatch));
    for level in Level::available() {
        missing(level.name(), |s| s.level.name());
    }
    chosen
}

/// Types of the K and the V cache.
type Types = (&'static str, &'static str);

const HALF: Types = ("f16", "f16");

/// The checksum line of a run.
fn checksums(
    model: &Path,
    ids: &Path,
    n_predict: &str,
    (k, v): Types,
    setting: &Setting,
) -> String {
    let output = emel_run()
        .args(["-ctk", k, "-ctv", v])
        .arg("-m")
        .arg(model)
        .arg("-f")
        .arg(ids)
        .args([
            "-n",
            n_predict,
            "--temp",
            "0",
            "-c",
            "2304",
            "--logits-checksum",
            "-no-cnv",
        ])
        .args(["--no-perf", "--ignore-eos", "--isa", setting.level.name()])
        .args([
            "-t",
            setting.threads,
            "--route",
            setting.route,
            "-ub",
            setting.ubatch,
        ])
        .output()
        .expect("emel-run starts");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", setting.name());
    let line = errors.lines().find(|line| line.contains("logits="));
    line.unwrap_or_else(|| panic!("{}: no checksums in {errors}", setting.name()))
        .to_owned()
}

/// Runs every setting over one prompt and finds them all alike.
fn one_value(
    model: &Path,
    prompt: &str,
    n_predict: &str,
    types: Types,
    settings: &[Setting],
) -> String {
    let file = common::temporary("prompt.txt");
    std::fs::write(&file, prompt).expect("a temporary file");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for setting in settings {
        let sums = checksums(model, &file, n_predict, types, setting);
        found.entry(sums).or_default().push(setting.name());
    }
    // The first setting again, in another process.
    found
        .entry(checksums(model, &file, n_predict, types, &settings[0]))
        .or_default();
    let _ = std::fs::remove_file(&file);
    assert_eq!(found.len(), 1, "{} {types:?}: {found:#?}", model.display());
    found.into_keys().collect()
}

/// Text of about `n` tokens, no two sentences alike.
fn text(n: usize) -> String {
    let words = [
        "river", "stone", "market", "letter", "engine", "garden", "signal", "winter",
    ];
    let mut text = String::new();
    let mut seed = 12345u32;
    for i in 0..n.div_ceil(2) {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.push_str(words[(seed >> 24) as usize % words.len()]);
        text.push_str(if i % 9 == 8 { ". " } else { " " });
        if seed >> 30 == 0 {
            text.push_str(&format!("{} ", (seed >> 8) % 1000));
        }
    }
    text
}

fn levels() -> Vec<Level> {
    let here = Level::available();
    for level in Level::ALL.iter().filter(|level| !here.contains(level)) {
        eprintln!("skipped: this processor has no {level}");
    }
    here
}

fn full() -> bool {
    std::env::var_os("EMEL_FULL_MATRIX").is_some_and(|value| value == "1")
}

fn short_prompts(name: &str) {
    let model = model(name);
    let all = product(&levels());
    let settings = if full() { all } else { sample(&all, 10) };
    one_value(&model, "Hello", "8", HALF, &settings);
    one_value(&model, "The river runs past", "8", HALF, &settings);
    one_value(&model, &text(40), "8", HALF, &settings);
}

/// The other types of the cache, each with a sample of the settings: one value a type, and another
/// for each.
fn cache_types(name: &str) {
    let model = model(name);
    let all = product(&levels());
    let mut found = vec![one_value(&model, &text(60), "4", HALF, &all[..1])];
    for (i, types) in [
        ("q8_0", "q8_0"),
        ("q8_0", "f16"),
        ("f32", "q8_0"),
        ("f32", "f32"),
    ]
    .into_iter()
    .enumerate()
    {
        let settings = if full() {
            all.clone()
        } else {
            all.iter().skip(i).step_by(all.len() / 4).copied().collect()
        };
        found.push(one_value(&model, &text(60), "4", types, &settings));
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 5, "{found:#?}");
}

/// 2000 tokens: many cache blocks, and past every sliding window.
fn long_prompt(name: &str) {
    let model = model(name);
    let levels = levels();
    let all = product(&levels);
    let pick = |level: Level, threads, route, ubatch| Setting {
        level,
        threads,
        route,
        ubatch,
    };
    let best = levels.last().copied().unwrap_or(Level::Scalar);
    let mut settings = vec![
        pick(best, "1", "wide", "512"),
        pick(best, "2", "scalar", "512"),
        pick(best, "8", "chunk8", "64"),
        pick(best, "3", "wide", "7"),
        pick(best, "2", "chunk4", "512"),
    ];
    settings.extend(levels.iter().map(|&level| pick(level, "2", "auto", "64")));
    one_value(
        &model,
        &text(2000),
        "4",
        HALF,
        if full() { &all } else { &settings },
    );
    let few = [&settings[..1], &settings[settings.len() - 1..]].concat();
    one_value(&model, &text(2000), "4", ("q8_0", "q8_0"), &few);
}

#[test]
fn smollm2_short_prompts() {
    short_prompts(common::SMOLLM2);
}

#[test]
fn gemma3_short_prompts() {
    short_prompts(common::GEMMA3);
}

#[test]
fn smollm2_cache_types() {
    cache_types(common::SMOLLM2);
}

#[test]
fn gemma3_cache_types() {
    cache_types(common::GEMMA3);
}

#[test]
fn smollm2_long_prompt() {
    long_prompt(common::SMOLLM2);
}

#[test]
fn gemma3_long_prompt() {
    long_prompt(common::GEMMA3);
}

#[test]
fn the_sample_meets_every_value() {
    let chosen = sample(&product(&Level::available()), 10);
    assert!(chosen.len() < 40);
    for value in UBATCHES {
        assert!(chosen.iter().any(|setting| setting.ubatch == value));
    }
    for value in ROUTES {
        assert!(chosen.iter().any(|setting| setting.route == value));
    }
}
