//! Probe events: their order, what they say, and ending a prompt in the middle.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use emel::engine::{
    Engine, Event, ExecutionPolicy, Generator, Limits, LoadOptions, Observer, Output, Prompt,
    Route, RoutePolicy, Session, Step,
};
use emel::gguf::TensorType;
use emel::model::testing::TestModel;
use emel::sampling::{Sampler, SamplerConfig};
use emel_kernels::{TileKind, WeightType};

/// Keeps what it hears; ends a prompt after so many passes.
#[derive(Default)]
struct Ear {
    heard: RefCell<Vec<Event>>,
    passes_wanted: Cell<Option<usize>>,
}

impl Observer for Ear {
    fn event(&self, event: Event) {
        self.heard.borrow_mut().push(event);
    }

    fn wants_end(&self) -> bool {
        let passed = |event: &&Event| matches!(event, Event::Passed { .. });
        let passes = self.heard.borrow().iter().filter(passed).count();
        self.passes_wanted
            .get()
            .is_some_and(|wanted| passes >= wanted)
    }
}

fn session(ear: &Rc<Ear>) -> Session {
    let file = TestModel::new("llama", TensorType::Q8_0)
        .write_temporary()
        .expect("a test model");
    let execution = ExecutionPolicy::detect().with_lanes(2, 2);
    let options = LoadOptions {
        n_ctx: Some(64),
        ..LoadOptions::new(execution, RoutePolicy::default().with_ubatch(8))
    };
    let engine = Engine::load_with(file.path(), &options, &**ear).expect("a valid model");
    let sampler = Sampler::new(&SamplerConfig::greedy(), engine.n_vocab()).expect("a sampler");
    let limits = Limits {
        max_tokens: Some(2),
        end_tokens: Vec::new(),
    };
    Session::new(engine, sampler, limits).observed_by(Rc::clone(ear))
}

fn prompt(generator: &mut Generator<'_>, tokens: &[u32]) -> emel::engine::Prefilled {
    let output = Output::new();
    assert!(generator.process_event(Prompt {
        tokens,
        output: &output
    }));
    output.take().expect("an output").expect("a prefill")
}

fn step(generator: &mut Generator<'_>) -> Option<u32> {
    let output = Output::new();
    assert!(generator.process_event(Step { output: &output }));
    let stepped = output.take().expect("an output").expect("a step");
    stepped.token.map(|token| token.id)
}

#[test]
fn a_run_tells_every_phase_in_order() {
    let ear = Rc::new(Ear::default());
    let session = session(&ear);
    let heard = ear.heard.take();
    assert_eq!(heard[..2], [Event::LoadBegins, Event::Bound]);
    let total = match heard[2] {
        Event::Packing { done: 0, total } => total,
        other => panic!("{other:?}"),
    };
    let last = heard[heard.len() - 3..].to_vec();
    let whole = Event::Packing { done: total, total };
    assert_eq!(last, [whole, Event::Packed, Event::Ready]);

    let mut generator = Generator::new(&session);
    let tokens: Vec<u32> = (3..16).collect();
    assert!(prompt(&mut generator, &tokens).whole);
    let ids = [step(&mut generator), step(&mut generator)].map(|id| id.expect("a token"));
    assert_eq!(step(&mut generator), None);
    let passed = |route, tokens| Event::Passed { route, tokens };
    assert_eq!(
        ear.heard.take(),
        [
            Event::PromptBegins {
                reused: 0,
                tokens: 13
            },
            passed(Route::Wide, 8),
            passed(Route::Chunk4, 4),
            passed(Route::Scalar, 1),
            Event::PromptEnds,
            Event::Selecting,
            Event::Selected { id: ids[0] },
            Event::StepBegins,
            Event::Selecting,
            Event::Selected { id: ids[1] },
        ]
    );
    let counters = session.engine().counters();
    // Seven matrices a layer, and one scalar pass of the prompt and one step beside the logits of
    // each.
    assert_eq!(counters.products(WeightType::Q8_0, TileKind::T4), 3 * 7);
    assert_eq!(counters.products(WeightType::Q8_0, TileKind::Wide), 3 * 7);
    assert_eq!(
        counters.products(WeightType::Q8_0, TileKind::T1),
        2 * (3 * 7 + 1)
    );
    assert!(counters.parallel_jobs() > 0);
    let named: u64 = counters.named().map(|(_, count)| count).sum();
    let products = 4 * 21 + 2;
    assert_eq!(
        named,
        products + counters.serial_jobs() + counters.parallel_jobs()
    );
}

#[test]
fn a_prompt_that_is_cut_can_be_taken_up_again() {
    let ear = Rc::new(Ear::default());
    let session = session(&ear);
    let mut generator = Generator::new(&session);
    let tokens: Vec<u32> = (3..40).collect();
    ear.heard.take();
    ear.passes_wanted.set(Some(2));
    let cut = prompt(&mut generator, &tokens);
    assert_eq!((cut.whole, cut.computed), (false, 16));
    assert!(generator.is_finished());
    assert_eq!(ear.heard.take().last(), Some(&Event::PromptCut));
    assert_eq!(session.cached_tokens().len(), 16);

    ear.passes_wanted.set(None);
    let rest = prompt(&mut generator, &tokens);
    assert_eq!((rest.whole, rest.reused, rest.computed), (true, 16, 21));
    let resumed = step(&mut generator);
    assert!(resumed.is_some());
    while step(&mut generator).is_some() {}

    session.forget();
    let again = prompt(&mut generator, &tokens);
    assert_eq!((again.whole, again.reused, again.computed), (true, 0, 37));
    assert_eq!(step(&mut generator), resumed);
}
