//! One arithmetic, whole programs: `emel-run` prints the same checksums for every instruction
//! set, thread count, route, physical batch and process, with drafts and without, whatever the
//! types of the cache.
//!
//! The test samples the product of all settings so that every value of each one meets both
//! models and every prompt length; `EMEL_FULL_MATRIX=1` (or `scripts/test.sh --full`) runs the
//! whole product, from packed copies that stay beside the models.

mod common;

use common::{emel_run, model};
use emel_kernels::Level;
use std::collections::BTreeMap;
use std::path::Path;

const THREADS: [&str; 4] = ["1", "2", "3", "8"];
const ROUTES: [&str; 5] = ["auto", "scalar", "chunk4", "chunk8", "wide"];
const UBATCHES: [&str; 6] = ["1", "4", "7", "8", "64", "512"];
const DRAFTS: [&str; 2] = ["none", "ngram-simple"];

/// One way to run the engine.
#[derive(Clone, Copy)]
struct Setting {
    level: Level,
    threads: &'static str,
    route: &'static str,
    ubatch: &'static str,
    drafts: &'static str,
}

impl Setting {
    fn arguments(&self) -> [&'static str; 10] {
        let level = self.level.name();
        let (threads, route, ubatch) = (self.threads, self.route, self.ubatch);
        [
            "--isa",
            level,
            "-t",
            threads,
            "--route",
            route,
            "-ub",
            ubatch,
            "--spec-type",
            self.drafts,
        ]
    }

    fn drafting(&self) -> bool {
        self.drafts != DRAFTS[0]
    }
}

/// Every combination, in an order in which neighbours differ in most settings.
fn product(levels: &[Level]) -> Vec<Setting> {
    let (n_t, n_r, n_u) = (THREADS.len(), ROUTES.len(), UBATCHES.len());
    let n_d = DRAFTS.len();
    let mut all = Vec::new();
    for step in 0..levels.len() * n_t * n_r * n_u * n_d {
        let (level, rest) = (step % levels.len(), step / levels.len());
        let (thread, rest) = ((rest + level) % n_t, rest / n_t);
        let (route, rest) = ((rest + thread) % n_r, rest / n_r);
        let (ubatch, rest) = ((rest + route) % n_u, rest / n_u);
        all.push(Setting {
            level: levels[level],
            threads: THREADS[thread],
            route: ROUTES[route],
            ubatch: UBATCHES[ubatch],
            drafts: DRAFTS[(rest + ubatch) % n_d],
        });
    }
    all
}

/// `n` of `all` from the `first` on, far apart and of one instruction set after another.
fn spread(all: &[Setting], first: usize, n: usize) -> Vec<Setting> {
    // One more than a multiple of the number of instruction sets, whatever that is.
    let stride = (all.len() / n).next_multiple_of(60) + 1;
    let index = |i: usize| (first + i * stride) % all.len();
    (0..n).map(|i| all[index(i)]).collect()
}

/// A sample of `all` in which each value of each setting occurs.
fn sample(all: &[Setting], n: usize) -> Vec<Setting> {
    let mut chosen = spread(all, 0, n);
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
    DRAFTS.iter().for_each(|value| missing(value, |s| s.drafts));
    for level in Level::available() {
        missing(level.name(), |s| s.level.name());
    }
    chosen
}

/// Types of the K and the V cache.
type Types = (&'static str, &'static str);

const HALF: Types = ("f16", "f16");

/// What is run in every setting.
struct Case<'a> {
    model: &'a Path,
    prompt: &'a str,
    n_predict: &'static str,
    types: Types,
}

impl Case<'_> {
    /// The checksum line of a run, and the line about its drafts, of a prompt that stands in `file`.
    fn run(&self, file: &Path, setting: &Setting, more: &[&str]) -> (String, Option<String>) {
        let (k, v) = self.types;
        let output = emel_run()
            .arg("-m")
            .arg(self.model)
            .arg("-f")
            .arg(file)
            .args("--temp 0 -c 2304 --logits-checksum -no-cnv --ignore-eos".split(' '))
            .args(["-n", self.n_predict, "-ctk", k, "-ctv", v])
            .args(setting.arguments())
            .args(more)
            .output()
            .expect("emel-run starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        let name = setting.arguments().join(" ");
        assert!(output.status.success(), "{name}: {errors}");
        let line = |word| errors.lines().find(|line| line.contains(word));
        let sums = line("logits=");
        let sums = sums.unwrap_or_else(|| panic!("{name}: no checksums in {errors}"));
        (sums.to_owned(), line("drafted").map(str::to_owned))
    }

    /// The one line of checksums of the first setting, run twice, and of all the others; with the
    /// lines about drafts of those that draft.
    fn one_value(&self, settings: &[Setting], more: &[&str]) -> (String, Vec<String>) {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, self.prompt).expect("a temporary file");
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut all_drafts = Vec::new();
        for setting in settings.iter().chain(&settings[..1]) {
            let (sums, drafts) = self.run(file.path(), setting, more);
            let name = setting.arguments().join(" ");
            assert_eq!(drafts.is_some(), setting.drafting(), "{name}: {drafts:?}");
            found.entry(sums).or_default().push(name);
            all_drafts.extend(drafts);
        }
        let (model, types) = (self.model.display(), self.types);
        assert_eq!(found.len(), 1, "{model} {types:?}: {found:#?}");
        (found.into_keys().collect(), all_drafts)
    }

    /// The checksums of the sample, and of all settings too where the whole product is wanted; that
    /// maps a packed copy, which every setting can use.
    fn check(&self, sample: &[Setting], all: &[Setting]) -> (String, Vec<String>) {
        let (sums, mut drafts) = self.one_value(sample, &[]);
        if full() {
            let found = self.one_value(all, &["--packed-cache"]);
            assert_eq!(found.0, sums);
            drafts.extend(found.1);
        }
        (sums, drafts)
    }
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

/// Long enough to repeat, and repeated so that drafts come true.
const SONG: &str = "Row, row, row your boat, gently down the stream. Row, row, row your boat, gently \
    down the stream. Row, row, row your";

fn short_prompts(name: &str) {
    let model = model(name);
    let all = product(&levels());
    let settings = sample(&all, 10);
    let long = text(40);
    let check = |prompt, n_predict| {
        let case = Case {
            model: &model,
            prompt,
            n_predict,
            types: HALF,
        };
        case.check(&settings, &all)
    };
    check("Hello", "8");
    check("The river runs past", "8");
    check(&long, "8");
    let (_, drafts) = check(SONG, "16");
    // A physical batch of one has no room for a draft.
    let tried = drafts.iter().filter(|line| !line.contains(" 0 drafted"));
    let (right, vain): (Vec<_>, Vec<_>) = tried.partition(|line| !line.contains(" 0 accepted"));
    assert!(!right.is_empty() && vain.is_empty(), "{drafts:?}");
}

/// The other types of the cache, each with a sample of the settings: one value a type, and another
/// for each.
fn cache_types(name: &str) {
    let model = model(name);
    let all = product(&levels());
    let check = |types, sample: &[Setting], all: &[Setting]| {
        let case = Case {
            model: &model,
            prompt: &text(60),
            n_predict: "4",
            types,
        };
        case.check(sample, all).0
    };
    // The usual type meets all settings elsewhere.
    let mut found = vec![check(HALF, &all[..1], &all[..1])];
    let others = [
        ("q8_0", "q8_0"),
        ("q8_0", "f16"),
        ("f32", "q8_0"),
        ("f32", "f32"),
    ];
    let others = others.into_iter().enumerate();
    found.extend(others.map(|(i, types)| check(types, &spread(&all, i, 5), &all)));
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 5, "{found:#?}");
}

/// 2000 tokens: many cache blocks, and past every sliding window.
fn long_prompt(name: &str) {
    let model = model(name);
    let levels = levels();
    let pick = |level: Level, threads, route, ubatch| Setting {
        level,
        threads,
        route,
        ubatch,
        drafts: DRAFTS[0],
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
    let check = |types, sample: &[Setting], all: &[Setting]| {
        let case = Case {
            model: &model,
            prompt: &text(2000),
            n_predict: "4",
            types,
        };
        case.check(sample, all);
    };
    // Without drafts: nothing repeats.
    let mut all = product(&levels);
    all.retain(|setting| !setting.drafting());
    check(HALF, &settings, &all);
    let few = [&settings[..1], &settings[settings.len() - 1..]].concat();
    check(("q8_0", "q8_0"), &few, &few);
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
