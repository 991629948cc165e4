//! The tensors that an observer sees: which, in what order, what they hold, and that they are the
//! same bits however a pass is cut and shared out.

use emel::engine::{
    Engine, Event, ExecutionPolicy, Generator, Limits, LoadOptions, Observer, Output, Prompt,
    Route, RoutePolicy, Session, Step, Tensor,
};
use emel::gguf::{Gguf, TensorType};
use emel::model::testing::TestModel;
use emel::model::{LayerSpec, ModelSpec, Point};
use emel::oracle::{Oracle, Want};
use emel::sampling::{Sampler, SamplerConfig};
use emel::tokenizer::TokenId;
use emel_kernels::Level;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

const FAMILIES: [&str; 4] = ["llama", "qwen2", "qwen3", "gemma3"];

/// A tensor, kept.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    layer: Option<usize>,
    point: Point,
    position: usize,
    rows: usize,
    values: Vec<f32>,
}

/// Keeps what it sees.
#[derive(Default)]
struct Eye(RefCell<Vec<Kept>>);

impl Observer for Eye {
    fn event(&self, _: Event) {}

    fn tensor(&self, tensor: Tensor<'_>) {
        self.0.borrow_mut().push(Kept {
            layer: tensor.layer,
            point: tensor.point,
            position: tensor.position,
            rows: tensor.rows,
            values: tensor.values.to_vec(),
        });
    }
}

fn options(level: Level, lanes: usize, routes: RoutePolicy) -> LoadOptions {
    let execution = ExecutionPolicy {
        // Small models must fork too, and share attention by blocks.
        fork_min_work: 256,
        split_min_depth: 16,
        ..ExecutionPolicy::new(level, lanes)
    };
    LoadOptions {
        n_ctx: Some(128),
        ..LoadOptions::new(execution, routes)
    }
}

fn tokens(n: usize) -> Vec<TokenId> {
    (0..n as TokenId).map(|i| 3 + i * 41 % 290).collect()
}

/// A pass of `tokens` and one step after it: the model, what was seen, and the last logits.
struct Passed {
    spec: ModelSpec,
    seen: Vec<Kept>,
    chosen: TokenId,
    logits: Vec<f32>,
}

fn pass(path: &Path, options: &LoadOptions, tokens: &[TokenId]) -> Passed {
    let eye = Rc::new(Eye::default());
    let engine = Engine::load(path, options).unwrap_or_else(|e| panic!("{e}"));
    let spec = engine.spec().clone();
    let sampler = Sampler::new(&SamplerConfig::greedy(), engine.n_vocab()).expect("a sampler");
    let limits = Limits {
        max_tokens: None,
        end_tokens: Vec::new(),
    };
    let session = Session::new(engine, sampler, limits).observed_by(Rc::clone(&eye));
    let mut generator = Generator::new(&session);
    let output = Output::new();
    generator.process_event(Prompt {
        tokens,
        output: &output,
    });
    output.take().expect("an output").expect("a prefill");
    let mut step = || {
        let output = Output::new();
        generator.process_event(Step { output: &output });
        let stepped = output.take().expect("an output").expect("a step");
        stepped.token.expect("a token").id
    };
    // The first token comes from the prompt's logits; the second takes a step.
    let chosen = step();
    step();
    let logits = session.logits().to_vec();
    Passed {
        spec,
        seen: eye.0.take(),
        chosen,
        logits,
    }
}

fn width(spec: &ModelSpec, layer: Option<usize>, point: Point) -> usize {
    let of_layer: fn(&LayerSpec) -> usize = match point {
        Point::Query => LayerSpec::q_dim,
        Point::Key => LayerSpec::k_dim,
        Point::Value => LayerSpec::v_dim,
        Point::Attended => LayerSpec::o_dim,
        Point::FfnHidden => |layer| layer.d_ff,
        _ => return spec.d_model,
    };
    of_layer(&spec.layers[layer.expect("a layer")])
}

#[test]
fn tensors_come_in_the_order_of_the_pass_with_the_widths_of_the_model() {
    for family in FAMILIES {
        let model = TestModel::new(family, TensorType::Q8_0);
        let model = model.write_temporary().expect("a test model");
        let routes = RoutePolicy::default().with_ubatch(8);
        let passed = pass(
            model.path(),
            &options(Level::best(), 2, routes),
            &tokens(21),
        );
        let spec = &passed.spec;
        let mut wanted = Vec::new();
        let mut want = |layer, point, position: usize, rows: usize| {
            wanted.push((layer, point, position, rows, width(spec, layer, point)));
        };
        // Wide, wide, four, one; then the step.
        for (position, rows) in [(0, 8), (8, 8), (16, 4), (20, 1), (21, 1)] {
            want(None, Point::Embedding, position, rows);
            for layer in 0..spec.layers.len() {
                for point in &Point::ALL[1..11] {
                    want(Some(layer), *point, position, rows);
                }
            }
            if position >= 20 {
                want(None, Point::OutputNorm, position, 1);
            }
        }
        let seen = passed.seen.iter().map(|kept| {
            let width = kept.values.len() / kept.rows;
            (kept.layer, kept.point, kept.position, kept.rows, width)
        });
        assert_eq!(seen.collect::<Vec<_>>(), wanted, "{family}");
    }
}

/// Every row seen, by where it belongs; bits, so that they can be compared.
fn rows(seen: &[Kept]) -> BTreeMap<(Option<usize>, Point, usize), Vec<u32>> {
    let mut rows = BTreeMap::new();
    for kept in seen {
        let width = kept.values.len() / kept.rows;
        for (i, row) in kept.values.chunks_exact(width).enumerate() {
            let place = (kept.layer, kept.point, kept.position + i);
            let bits = row.iter().map(|value| value.to_bits()).collect();
            assert!(rows.insert(place, bits).is_none(), "{place:?} seen twice");
        }
    }
    rows
}

#[test]
fn every_route_batch_and_lane_shows_the_same_bits() {
    let types = [
        TensorType::Q8_0,
        TensorType::F32,
        TensorType::Q5_1,
        TensorType::Q4_K,
    ];
    for (family, ty) in FAMILIES.into_iter().zip(types) {
        let model = TestModel::new(family, ty);
        let model = model.write_temporary().expect("a test model");
        let shown = |level, lanes, routes| {
            let passed = pass(model.path(), &options(level, lanes, routes), &tokens(29));
            rows(&passed.seen)
        };
        let base = shown(Level::Scalar, 1, RoutePolicy::only(Route::Scalar));
        assert_eq!(base.len(), 30 + 3 * 10 * 30 + 2, "{family}");
        for (route, lanes) in Route::ALL.into_iter().zip([3, 1, 2, 8]) {
            for routes in [
                RoutePolicy::only(route),
                RoutePolicy::only(route).with_ubatch(9),
            ] {
                let found = shown(Level::best(), lanes, routes);
                let unlike = base
                    .iter()
                    .find(|(place, bits)| found.get(place) != Some(bits));
                let unlike = unlike.map(|(place, _)| place);
                assert_eq!(unlike, None, "{family} {ty}: {lanes} lanes, {routes:?}");
                assert_eq!(found.len(), base.len());
            }
        }
    }
}

/// A tensor of the file, F32.
fn floats(gguf: &Gguf, name: &str) -> Vec<f32> {
    let tensor = gguf.tensors().iter().find(|tensor| tensor.name == name);
    let data = gguf.data(tensor.unwrap_or_else(|| panic!("no {name}")));
    let words = data.as_chunks::<4>().0;
    words.iter().map(|&word| f32::from_le_bytes(word)).collect()
}

/// `x` normed by its root mean square, in f64.
fn normed(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let x: Vec<f64> = x.iter().copied().map(f64::from).collect();
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let root = (mean + f64::from(eps)).sqrt();
    let pairs = x.iter().zip(weight);
    pairs.map(|(v, w)| v / root * f64::from(*w)).collect()
}

fn close(got: &[f32], wanted: &[f64], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (got, wanted) in got.iter().zip(wanted) {
        let off = (f64::from(*got) - wanted).abs();
        assert!(
            off <= 2e-6 * wanted.abs().max(1.0),
            "{what}: {got} for {wanted}"
        );
    }
}

/// Each tensor is what the next one is made of, from the embedding to the logits.
#[test]
fn tensors_follow_from_each_other() {
    let model = TestModel::new("llama", TensorType::F32);
    let model = model.write_temporary().expect("a test model");
    let tokens = tokens(10);
    let passed = pass(
        model.path(),
        &options(Level::best(), 2, RoutePolicy::default()),
        &tokens,
    );
    let (spec, chosen) = (&passed.spec, passed.chosen);
    let gguf = Gguf::open(model.path()).expect("a readable model");
    let rows = rows(&passed.seen);
    let row = |layer, point| {
        let bits = &rows[&(layer, point, 10)];
        bits.iter()
            .map(|&bits| f32::from_bits(bits))
            .collect::<Vec<f32>>()
    };
    let table = floats(&gguf, "token_embd.weight");
    let d_model = spec.d_model;
    let embedding = &table[chosen as usize * d_model..][..d_model];
    let mut stream = row(None, Point::Embedding);
    assert_eq!(stream, embedding);
    for i in 0..spec.layers.len() {
        let at = |point| row(Some(i), point);
        let weight = |part: &str| floats(&gguf, &format!("blk.{i}.{part}.weight"));
        let wanted = normed(&stream, &weight("attn_norm"), spec.rms_eps);
        close(&at(Point::AttnNorm), &wanted, "attn_norm");
        let residual = at(Point::AttnResidual);
        let wanted = normed(&residual, &weight("ffn_norm"), spec.rms_eps);
        close(&at(Point::FfnNorm), &wanted, "ffn_norm");
        let out = at(Point::FfnOut);
        stream = residual.iter().zip(out).map(|(x, y)| x + y).collect();
        assert_eq!(at(Point::LayerOut), stream, "layer {i}");
    }
    let last = row(None, Point::OutputNorm);
    let wanted = normed(&stream, &floats(&gguf, "output_norm.weight"), spec.rms_eps);
    close(&last, &wanted, "output_norm");
    // The design's product of floats: ascending, fused.
    let output = floats(&gguf, "output.weight");
    let logits = output.chunks_exact(d_model).map(|weights| {
        let pairs = weights.iter().zip(&last);
        pairs.fold(0.0, |sum: f32, (w, x)| w.mul_add(*x, sum))
    });
    assert_eq!(passed.logits, logits.collect::<Vec<f32>>());
}

/// The engine's own points are those of the oracle, which shares no code with it. With float
/// weights only f32 rounding and the f16 cache stand between the two.
#[test]
fn points_mean_what_they_mean_to_the_oracle() {
    for family in FAMILIES {
        let model = TestModel::new(family, TensorType::F32);
        let model = model.write_temporary().expect("a test model");
        let tokens = tokens(40);
        let options = options(Level::best(), 2, RoutePolicy::default());
        let rows = rows(&pass(model.path(), &options, &tokens).seen);

        let gguf = Gguf::open(model.path()).expect("a readable model");
        let bound = emel::model::bind(&gguf).expect("a supported model");
        let mut oracle = Oracle::new(&gguf, &bound)
            .expect("an oracle")
            .with_context(128);
        let mut compared = 0;
        let mut compare = |tensor: emel::oracle::Tensor<'_>| {
            let place = (tensor.layer, tensor.point, tensor.position);
            let Some(bits) = rows.get(&place) else {
                // Logits are wanted of the last position alone.
                assert_eq!(tensor.point, Point::OutputNorm, "{family}: {place:?}");
                return;
            };
            compared += 1;
            assert_eq!(bits.len(), tensor.values.len(), "{family}: {place:?}");
            let (mut difference, mut size) = (0.0, 0.0);
            for (&bits, exact) in bits.iter().zip(tensor.values) {
                difference += (f64::from(f32::from_bits(bits)) - exact).powi(2);
                size += exact * exact;
            }
            let off = (difference / size).sqrt();
            // Up to the values of the first layer nothing has passed the cache, which is in f16.
            let exact = tensor.layer.unwrap_or_default() == 0 && tensor.point <= Point::Value;
            let most = if exact { 1e-6 } else { 4e-3 };
            assert!(off < most, "{family}: {place:?} is off by {off:e}");
        };
        oracle
            .prefill_observed(&tokens, Want::Last, &mut compare)
            .expect("the tokens are valid");
        assert_eq!(compared, 40 + 3 * 10 * 40 + 1, "{family}");
    }
}
