//! A decode step allocates nothing, on any lane: counted by an allocator that sees them all.

use emel::engine::{
    Engine, ExecutionPolicy, Generator, Limits, LoadOptions, Output, Prompt, RoutePolicy, Session,
    SpeculationPolicy, Step,
};
use emel::gguf::TensorType;
use emel::model::testing::TestModel;
use emel::sampling::{Sampler, SamplerConfig};
use emel_kernels::Level;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Fewest allocations of forty decode steps in a row, over steps that cross cache blocks.
fn allocations(
    family: &'static str,
    ty: TensorType,
    config: &SamplerConfig,
    speculation: SpeculationPolicy,
) -> usize {
    let model = TestModel::new(family, ty)
        .write_temporary()
        .expect("a temporary model");
    let execution = ExecutionPolicy {
        fork_min_work: 256,
        split_min_depth: 64,
        ..ExecutionPolicy::new(Level::best(), 3)
    };
    let options = LoadOptions {
        n_ctx: Some(512),
        speculation,
        ..LoadOptions::new(execution, RoutePolicy::default())
    };
    let engine = Engine::load(model.path(), &options).expect("a valid model");
    let sampler = Sampler::new(config, engine.n_vocab()).expect("a valid configuration");
    let limits = Limits {
        max_tokens: None,
        end_tokens: vec![],
    };
    let session = Session::new(engine, sampler, limits);
    let mut generator = Generator::new(&session);
    let prefilled = Output::new();
    generator.process_event(Prompt {
        tokens: &[3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        output: &prefilled,
    });
    prefilled.take().expect("an output").expect("a prefill");
    let stepped = Output::new();
    generator.process_event(Step { output: &stepped });
    stepped.take().expect("an output").expect("a first step");

    // A worker thread that the system starts late allocates once, in its own prologue. So several
    // windows are counted: a step that allocates would show in every one of them.
    let windows = (0..5).map(|_| {
        let region = Region::new(ALLOCATOR);
        for _ in 0..40 {
            generator.process_event(Step { output: &stepped });
            let step = stepped.take().expect("an output").expect("a step");
            assert!(step.token.is_some());
        }
        region.change().allocations
    });
    windows.min().unwrap_or(usize::MAX)
}

#[test]
fn a_decode_step_allocates_nothing() {
    let greedy = SamplerConfig {
        temp: 0.0,
        ..SamplerConfig::default()
    };
    // Drafts that are tried at every chance, on whatever evidence.
    let eager = SpeculationPolicy {
        ngram_min: 1,
        credit: 1e9,
        credit_max: 1e9,
        rest_max: 0,
        ..SpeculationPolicy::default()
    };
    for speculation in [SpeculationPolicy::off(), eager] {
        let count = |family, ty, config| allocations(family, ty, config, speculation);
        assert_eq!(count("llama", TensorType::Q4_1, &greedy), 0);
        assert_eq!(count("gemma3", TensorType::Q6_K, &greedy), 0);
        assert_eq!(
            count("qwen3", TensorType::F16, &SamplerConfig::default()),
            0
        );
    }
}
