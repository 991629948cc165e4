//! The whole product of settings, through the engine alone: one load for each setting, from a packed
//! copy that stays beside the model. `emel-run` gives the value that all are to have.
//!
//! It takes hours on two cores, most of them on the portable level. So prompts and replies are short,
//! other types of the cache go without drafts, and the long prompt meets what matters to it
//! ([`long_settings`]).

use super::settings::{DRAFTS, ROUTES, Setting, THREADS, UBATCHES, levels, product};
use super::{Case, HALF, OTHER_TYPES, SONG, Types, text};
use crate::common::{self, model};
use emel::cli::packed;
use emel::engine::{
    Engine, ExecutionPolicy, Generator, Halt, Limits, LoadOptions, Output, Prompt, RoutePolicy,
    Session, SpeculationPolicy, Step, StopReason,
};
use emel::packed::{PackedPlace, PackedReport};
use emel::sampling::{Sampler, SamplerConfig};
use emel::tokenizer::{EncodeOptions, TokenId, Tokenizer};
use emel::trace::checksum::Checksums;
use emel_kernels::Level;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A prompt, and how many tokens are generated.
struct Text {
    text: String,
    n_predict: usize,
}

/// A model with what all runs share.
struct Model {
    path: PathBuf,
    place: PackedPlace,
    tokenizer: Tokenizer,
    ends: Vec<TokenId>,
}

impl Model {
    fn read(name: &str) -> Model {
        let path = model(name);
        let place = packed::place(&packed::shards(&path), |_| ()).expect("a digest");
        let gguf = emel::gguf::Gguf::open(&path).expect("a model");
        let tokenizer = Tokenizer::from_metadata(gguf.metadata()).expect("a tokenizer");
        let ids = 0..tokenizer.n_vocab() as TokenId;
        let ends = ids.filter(|&id| tokenizer.is_eog(id)).collect();
        Model {
            path,
            place,
            tokenizer,
            ends,
        }
    }

    /// A session that keeps to `setting`.
    fn session(&self, setting: &Setting, (k, v): Types, n_ctx: usize) -> Session {
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let execution = ExecutionPolicy {
            level: setting.level,
            ..ExecutionPolicy::detect()
        };
        let threads = number(setting.threads);
        let routes = match setting.route {
            "auto" => RoutePolicy::default(),
            route => RoutePolicy::only(route.parse().expect("a route")),
        };
        let options = LoadOptions {
            n_ctx: Some(n_ctx),
            cache_k: k.parse().expect("a type"),
            cache_v: v.parse().expect("a type"),
            packed: Some(self.place.clone()),
            speculation: match setting.drafting() {
                true => SpeculationPolicy::default(),
                false => SpeculationPolicy::off(),
            },
            ..LoadOptions::new(
                execution.with_lanes(threads, threads),
                RoutePolicy {
                    n_ubatch: number(setting.ubatch),
                    ..routes
                },
            )
        };
        let engine = Engine::load(&self.path, &options).expect("a load");
        let PackedReport { used, kept, .. } = engine.packed();
        assert!(*used || matches!(kept, Some(Ok(_))), "{kept:?}");
        let never = self.ends.iter().map(|&id| (id, f32::NEG_INFINITY));
        let config = SamplerConfig {
            logit_bias: never.collect(),
            ..SamplerConfig::greedy()
        };
        let sampler = Sampler::new(&config, engine.n_vocab()).expect("a configuration");
        let limits = Limits {
            max_tokens: None,
            end_tokens: Vec::new(),
        };
        Session::new(engine, sampler, limits)
    }

    /// The sums of one text after another, each of a cache that begins anew, but for what two texts
    /// begin with.
    fn sums(&self, setting: &Setting, types: Types, n_ctx: usize, texts: &[Text]) -> Vec<String> {
        let session = self.session(setting, types, n_ctx);
        let mut generator = Generator::new(&session);
        let options = EncodeOptions {
            add_special: true,
            parse_special: true,
        };
        let mut reply = |Text { text, n_predict }: &Text| {
            let tokens = &self.tokenizer.encode(text, options);
            let prefilled = Output::new();
            let output = &prefilled;
            assert!(generator.process_event(Prompt { tokens, output }));
            prefilled.take().expect("an output").expect("a prefill");
            let (mut sums, stepped) = (Checksums::default(), Output::new());
            for _ in 0..*n_predict {
                assert!(generator.process_event(Step { output: &stepped }));
                let step = stepped.take().expect("an output").expect("a step");
                sums.add_id(step.token.expect("a token").id);
                sums.add_logits(&session.logits());
            }
            let (reason, output) = (StopReason::Cancelled, &stepped);
            assert!(generator.process_event(Halt { reason, output }));
            stepped.take().expect("an output").expect("a halt");
            ids_and_logits(&sums.to_string())
        };
        let sums = texts.iter().map(&mut reply).collect();
        let counters = session.engine().counters();
        // A physical batch of one has no room for a draft; of the texts, the song has right ones.
        let has_song = texts.iter().any(|text| text.text == SONG);
        let drafts = has_song && setting.drafting() && setting.ubatch != "1";
        let name = setting.arguments().join(" ");
        assert_eq!(counters.accepted() > 0, drafts, "{name}");
        sums
    }

    /// Every setting's sums of every text, which are to be what `emel-run` prints.
    fn one_value(&self, settings: &[Setting], types: Types, n_ctx: usize, texts: &[Text]) {
        let begun = Instant::now();
        let wanted: Vec<_> = texts
            .iter()
            .map(|text| program(&self.path, text, types))
            .collect();
        for (i, setting) in settings.iter().enumerate() {
            let found = self.sums(setting, types, n_ctx, texts);
            assert_eq!(found, wanted, "{types:?} {}", setting.arguments().join(" "));
            if (i + 1) % 100 == 0 {
                let (of, seconds) = (settings.len(), begun.elapsed().as_secs());
                eprintln!("{types:?}: {} of {of} settings, {seconds} s", i + 1);
            }
        }
        let (path, n) = (self.path.display(), settings.len());
        eprintln!("{path} {types:?}: one value for each text in {n} settings: {wanted:?}");
    }
}

/// What `emel-run` prints of a text, as it comes.
fn program(model: &Path, text: &Text, types: Types) -> String {
    let case = Case {
        model,
        prompt: &text.text,
        n_predict: &text.n_predict.to_string(),
        types,
    };
    let setting = Setting {
        level: Level::best(),
        threads: THREADS[1],
        route: ROUTES[0],
        ubatch: UBATCHES[UBATCHES.len() - 1],
        drafts: DRAFTS[0],
    };
    let sums = case.run(case.file().path(), &setting).0;
    case.compare_with_golden(&sums);
    ids_and_logits(&sums)
}

/// What the engine makes of a line of checksums: all but the text's.
fn ids_and_logits(line: &str) -> String {
    let start = line.find("ids=").expect("a sum of ids");
    line[start..].to_owned()
}

fn text_of(text: impl Into<String>, n_predict: usize) -> Text {
    Text {
        text: text.into(),
        n_predict,
    }
}

fn short_texts() -> [Text; 4] {
    [
        text_of("Hello", 4),
        text_of("The river runs past", 4),
        text_of(text(24), 4),
        text_of(SONG, 12),
    ]
}

/// All settings, with the usual type of the cache.
fn short(name: &str) {
    let model = Model::read(name);
    model.one_value(&product(&levels()), HALF, 256, &short_texts());
}

/// All settings without drafts, of which so short a reply has none, with other types.
fn other_types(name: &str, types: Types) {
    let model = Model::read(name);
    let mut all = product(&levels());
    all.retain(|setting| !setting.drafting());
    model.one_value(&all, types, 256, &[text_of(text(16), 2)]);
}

/// Every instruction set with every number of threads and every physical batch, and with every
/// route; but for the portable level, which a token at a time would take minutes with: there
/// batches are large and tokens go in chunks. Without drafts: nothing repeats.
fn long_settings() -> Vec<Setting> {
    let mut all = product(&levels());
    let large = |s: &Setting| ["64", "512"].contains(&s.ubatch);
    all.retain(|s| !s.drafting() && (s.route == "auto" || s.threads == "2" && large(s)));
    all.retain(|s| s.level != Level::Scalar || large(s) && s.route != "scalar");
    all
}

fn long(name: &str) {
    let model = Model::read(name);
    let long = [text_of(text(2000), 4)];
    model.one_value(&long_settings(), HALF, 2304, &long);
    let few: Vec<_> = long_settings().into_iter().step_by(7).collect();
    model.one_value(&few, ("q8_0", "q8_0"), 2304, &long);
}

macro_rules! whole {
    ($($name:ident: $whole:expr;)*) => {
        $(#[test]
        #[ignore = "takes long: scripts/test.sh --full runs it"]
        fn $name() {
            $whole;
        })*
    };
}

whole! {
    smollm2_all_settings: short(common::SMOLLM2);
    smollm2_q8_0_keys_and_values: other_types(common::SMOLLM2, OTHER_TYPES[0]);
    smollm2_q8_0_keys: other_types(common::SMOLLM2, OTHER_TYPES[1]);
    smollm2_q8_0_values: other_types(common::SMOLLM2, OTHER_TYPES[2]);
    smollm2_f32_keys_and_values: other_types(common::SMOLLM2, OTHER_TYPES[3]);
    smollm2_long_prompt: long(common::SMOLLM2);
    gemma3_all_settings: short(common::GEMMA3);
    gemma3_q8_0_keys_and_values: other_types(common::GEMMA3, OTHER_TYPES[0]);
    gemma3_q8_0_keys: other_types(common::GEMMA3, OTHER_TYPES[1]);
    gemma3_q8_0_values: other_types(common::GEMMA3, OTHER_TYPES[2]);
    gemma3_f32_keys_and_values: other_types(common::GEMMA3, OTHER_TYPES[3]);
    gemma3_long_prompt: long(common::GEMMA3);
}
