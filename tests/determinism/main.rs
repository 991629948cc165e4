//! One arithmetic, whole programs: `emel-run` prints the same checksums for every instruction
//! set, thread count, route, physical batch and process, with drafts and without, whatever the
//! types of the cache. They are also those of every machine before ([`golden`]).
//!
//! The program runs a sample of the product of all settings, in which every value of each one meets
//! both models; a long prompt, and other types of the cache, meet fewer. `scripts/test.sh --full` has
//! the engine, without the program around it, run the whole product ([`whole`]).

#[path = "../common/mod.rs"]
mod common;
mod golden;
mod settings;
mod whole;

use common::{emel_run, model};
use emel_kernels::Level;
use settings::{DRAFTS, ROUTES, Setting, THREADS, UBATCHES, levels, product, sample, spread};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::NamedTempFile;

/// Types of the K and the V cache.
type Types = (&'static str, &'static str);

const HALF: Types = ("f16", "f16");

const OTHER_TYPES: [Types; 4] = [
    ("q8_0", "q8_0"),
    ("q8_0", "f16"),
    ("f32", "q8_0"),
    ("f32", "f32"),
];

/// What is run in every setting.
struct Case<'a> {
    model: &'a Path,
    prompt: &'a str,
    n_predict: &'a str,
    types: Types,
}

impl Case<'_> {
    /// A file with the prompt.
    fn file(&self) -> NamedTempFile {
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(&file, self.prompt).expect("a temporary file");
        file
    }

    /// The checksum line of a run, and the line about its drafts, of the prompt in its file.
    fn run(&self, file: &Path, setting: &Setting) -> (String, Option<String>) {
        let (k, v) = self.types;
        let output = emel_run()
            .arg("-m")
            .arg(self.model)
            .arg("-f")
            .arg(file)
            .args("--temp 0 -c 2304 --logits-checksum -no-cnv --ignore-eos".split(' '))
            .args(["-n", self.n_predict, "-ctk", k, "-ctv", v])
            .args(setting.arguments())
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

    /// Compares a line of checksums with what other machines found.
    fn compare_with_golden(&self, sums: &str) {
        let model = self.model.file_stem().expect("a model is a file");
        let (k, v) = self.types;
        let begin: String = self.prompt.chars().take(24).collect();
        let (length, n_predict) = (self.prompt.len(), self.n_predict);
        let model = model.display();
        let of = format!("{model}, {k} {v}, {length} bytes {begin:?}, {n_predict} tokens");
        golden::check(&of, sums);
    }

    /// The one line of checksums of the first setting, run twice, and of all the others; with the
    /// lines about drafts of those that draft.
    fn one_value(&self, settings: &[Setting]) -> (String, Vec<String>) {
        let file = self.file();
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut all_drafts = Vec::new();
        for setting in settings.iter().chain(&settings[..1]) {
            let (sums, drafts) = self.run(file.path(), setting);
            let name = setting.arguments().join(" ");
            assert_eq!(drafts.is_some(), setting.drafting(), "{name}: {drafts:?}");
            found.entry(sums).or_default().push(name);
            all_drafts.extend(drafts);
        }
        let (model, types) = (self.model.display(), self.types);
        assert_eq!(found.len(), 1, "{model} {types:?}: {found:#?}");
        let sums: String = found.into_keys().collect();
        self.compare_with_golden(&sums);
        (sums, all_drafts)
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

/// Long enough to repeat, and repeated so that drafts come true.
const SONG: &str = "Row, row, row your boat, gently down the stream. Row, row, row your boat, gently \
    down the stream. Row, row, row your";

fn short_prompts(name: &str) {
    let model = model(name);
    let settings = sample(&product(&levels()), 10);
    let long = text(40);
    let check = |prompt, n_predict| {
        let case = Case {
            model: &model,
            prompt,
            n_predict,
            types: HALF,
        };
        case.one_value(&settings)
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
    let check = |types, settings: &[Setting]| {
        let case = Case {
            model: &model,
            prompt: &text(60),
            n_predict: "4",
            types,
        };
        case.one_value(settings).0
    };
    // The usual type meets more settings elsewhere.
    let mut found = vec![check(HALF, &all[..1])];
    let others = OTHER_TYPES.into_iter().enumerate();
    found.extend(others.map(|(i, types)| check(types, &spread(&all, i, 5))));
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
    let check = |types, settings: &[Setting]| {
        let case = Case {
            model: &model,
            prompt: &text(2000),
            n_predict: "4",
            types,
        };
        case.one_value(settings);
    };
    check(HALF, &settings);
    let few = [&settings[..1], &settings[settings.len() - 1..]].concat();
    check(("q8_0", "q8_0"), &few);
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
    let meets = |value: &str| {
        let found = |setting: &Setting| setting.arguments().contains(&value);
        assert!(chosen.iter().any(found), "{value}");
    };
    let levels = Level::available().into_iter().map(Level::name);
    levels.for_each(meets);
    [&THREADS[..], &ROUTES, &UBATCHES, &DRAFTS]
        .concat()
        .into_iter()
        .for_each(meets);
}
