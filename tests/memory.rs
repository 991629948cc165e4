//! Peak memory of loading and running: the file once, not twice.

mod common;

use emel::engine::{
    Engine, ExecutionPolicy, Generator, Limits, LoadOptions, Output, Prompt, RoutePolicy, Session,
};
use emel::sampling::{Sampler, SamplerConfig};
use std::fs;

/// The most memory that this process has had in use, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a Linux /proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("VmHWM");
    let kib: u64 = line
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .expect("a number");
    kib * 1024
}

/// The buffers of a batch of 512 tokens, which only a run with long prompts takes.
const REST: u64 = 24 << 20;

#[test]
fn peak_memory_stays_near_the_file_and_the_cache() {
    // The larger model comes last: the peak never falls.
    for name in [common::SMOLLM2, common::GEMMA3] {
        let path = common::model(name);
        let file = fs::metadata(&path).expect("the model's size").len();
        let options = LoadOptions {
            n_ctx: Some(512),
            ..LoadOptions::new(ExecutionPolicy::detect(), RoutePolicy::default())
        };
        let engine = Engine::load(&path, &options).expect("a valid model");
        let cache = engine.cache_bytes() as u64;
        let bound = file + file / 5 + cache;
        println!(
            "{name}: file {file}, cache {cache}, peak {} when loaded",
            peak()
        );
        assert!(peak() < bound, "{name}: {} loading, file {file}", peak());
        let config = SamplerConfig {
            temp: 0.0,
            ..SamplerConfig::default()
        };
        let sampler = Sampler::new(&config, engine.n_vocab()).expect("valid");
        let session = Session::new(
            engine,
            sampler,
            Limits {
                max_tokens: None,
                end_tokens: vec![],
            },
        );
        let tokens: Vec<u32> = (100..500).collect();
        let output = Output::new();
        let mut generator = Generator::new(&session);
        assert!(generator.process_event(Prompt {
            tokens: &tokens,
            output: &output
        }));
        output.take().expect("an output").expect("a prefill");
        println!("{name}: peak {} after 400 tokens in one batch", peak());
        assert!(
            peak() < bound + REST,
            "{name}: {} running, file {file}",
            peak()
        );
    }
}
