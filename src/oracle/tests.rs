//! Models small enough to be worked out by hand, and properties that hold for any model.

mod real;

use super::*;
use crate::gguf::TensorType;
use crate::model;
use crate::model::testing::{TemporaryModel, TestFile, TestModel};

const IDENTITY: [[f32; 4]; 4] = [
    [1., 0., 0., 0.],
    [0., 1., 0., 0.],
    [0., 0., 1., 0.],
    [0., 0., 0., 1.],
];

/// One layer, four wide, two query heads and one key and value head of two. Keys are the first
/// half of the normed stream, values the second, everything else is the identity where it can
/// be. Token 0 is (1, 1, 1, 1) and token 1 is (1, -1, 1, -1), both of root mean square 1, so that
/// the first norm changes nothing.
fn tiny(architecture: &str) -> TestFile {
    let mut file = TestFile::new(architecture);
    for (name, value) in [
        ("context_length", 8u32),
        ("embedding_length", 4),
        ("block_count", 1),
        ("feed_forward_length", 2),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ] {
        file.set(format!("{architecture}.{name}"), value);
    }
    file.set(
        format!("{architecture}.attention.layer_norm_rms_epsilon"),
        0.0f32,
    );
    let ones = [1.0; 4];
    file.matrix("token_embd.weight", &[[1., 1., 1., 1.], [1., -1., 1., -1.]]);
    file.vector("output_norm.weight", &ones);
    file.vector("blk.0.attn_norm.weight", &ones);
    file.matrix("blk.0.attn_q.weight", &IDENTITY);
    file.matrix("blk.0.attn_k.weight", &IDENTITY[..2]);
    file.matrix("blk.0.attn_v.weight", &IDENTITY[2..]);
    file.matrix("blk.0.attn_output.weight", &IDENTITY);
    file.vector("blk.0.ffn_norm.weight", &ones);
    file.matrix("blk.0.ffn_gate.weight", &IDENTITY[..2]);
    file.matrix("blk.0.ffn_up.weight", &IDENTITY[2..]);
    file.matrix(
        "blk.0.ffn_down.weight",
        &[[1., 0.], [0., 1.], [0., 0.], [0., 0.]],
    );
    file
}

struct Loaded {
    gguf: Gguf,
    model: Model,
    _file: TemporaryModel,
}

fn load(file: &TestFile) -> Loaded {
    let file = file.write_temporary().unwrap();
    let gguf = Gguf::open(file.path()).unwrap();
    let model = model::bind(&gguf).unwrap();
    Loaded {
        gguf,
        model,
        _file: file,
    }
}

impl Loaded {
    fn oracle(&self) -> Oracle<'_> {
        Oracle::new(&self.gguf, &self.model).unwrap()
    }
}

fn close(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (g, w) in got.iter().zip(wanted) {
        assert!((g - w).abs() < 1e-14, "{got:?} for {wanted:?}");
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The last norm and the logits of the two tokens of `tiny`, tied to the embedding.
fn tiny_logits(x: [f64; 4]) -> [f64; 2] {
    let root = (x.iter().map(|v| v * v).sum::<f64>() / 4.0).sqrt();
    let [a, b, c, d] = x.map(|v| v / root);
    [a + b + c + d, a - b + c - d]
}

/// The logits of `tiny` after tokens 0 and 1, worked out with pen and paper.
///
/// The query heads at position 1 are (1, -1) turned by one radian, as is the key; the key at
/// position 0 is (1, 1), not turned. So the scores are 2 sin 1 and 2, over sqrt 2. With shares
/// w0 and w1 the mixed value is (1, w0 - w1) in both heads.
fn tiny_second_logits() -> [f64; 2] {
    let scores = [2.0 * 1.0_f64.sin(), 2.0].map(|s| (s * f64::from(0.5_f32.sqrt())).exp());
    let d = (scores[0] - scores[1]) / (scores[0] + scores[1]);
    let x = [2.0, d - 1.0, 2.0, d - 1.0];
    let root = ((4.0 + (d - 1.0) * (d - 1.0)) / 2.0).sqrt();
    let (a, b) = (2.0 / root, (d - 1.0) / root);
    tiny_logits([x[0] + silu(a) * a, x[1] + silu(b) * b, x[2], x[3]])
}

#[test]
fn plain_attention_and_silu_by_hand() {
    let loaded = load(&tiny("llama"));
    let mut oracle = loaded.oracle();
    // Alone, a position gets its own value: (1, 1) in both heads, so the stream is all 2.
    let s = silu(1.0);
    close(
        &oracle.step(0).unwrap(),
        &tiny_logits([2.0 + s, 2.0 + s, 2.0, 2.0]),
    );
    close(&oracle.step(1).unwrap(), &tiny_second_logits());
    assert_eq!(oracle.position(), 2);
}

/// A tensor, kept: layer, point, position, values.
type Kept = (Option<usize>, Point, usize, Vec<f64>);

/// The logits and every tensor of a pass.
fn observed(oracle: &mut Oracle, tokens: &[u32], want: Want) -> (Vec<Vec<f64>>, Vec<Kept>) {
    let mut seen = Vec::new();
    let mut observe = |tensor: Tensor| {
        let Tensor {
            layer,
            point,
            position,
            values,
        } = tensor;
        seen.push((layer, point, position, values.to_vec()));
    };
    let logits = oracle.prefill_observed(tokens, want, &mut observe).unwrap();
    (logits, seen)
}

#[test]
fn every_point_is_shown_in_order() {
    let loaded = load(&tiny("llama"));
    let mut oracle = loaded.oracle();
    let (logits, seen) = observed(&mut oracle, &[0, 1], Want::Every);
    let wanted = Point::ALL.into_iter().flat_map(|point| {
        let layer = match point {
            Point::Embedding | Point::OutputNorm => None,
            _ => Some(0),
        };
        [(layer, point, 0), (layer, point, 1)]
    });
    let places: Vec<_> = seen.iter().map(|s| (s.0, s.1, s.2)).collect();
    assert_eq!(places, wanted.collect::<Vec<_>>());

    // The first position, as in `plain_attention_and_silu_by_hand`.
    let s = silu(1.0);
    let out = [2.0 + s, 2.0 + s, 2.0, 2.0];
    let root = (out.iter().map(|v| v * v).sum::<f64>() / 4.0).sqrt();
    let wanted: [&[f64]; 12] = [
        &[1.0; 4],
        &[1.0; 4],
        &[1.0; 4],
        &[1.0; 2],
        &[1.0; 2],
        &[1.0; 4],
        &[2.0; 4],
        &[1.0; 4],
        &[s; 2],
        &[s, s, 0.0, 0.0],
        &out,
        &out.map(|v| v / root),
    ];
    for (wanted, seen) in wanted.iter().zip(seen.iter().step_by(2)) {
        close(&seen.3, wanted);
    }
    // Of the second, what is rotated and what is not.
    let at = |point| &seen.iter().find(|s| (s.1, s.2) == (point, 1)).unwrap().3;
    let (cos, sin) = (1.0_f64.cos(), 1.0_f64.sin());
    let turned = [cos + sin, sin - cos];
    close(at(Point::Query), &[turned, turned].concat());
    close(at(Point::Key), &turned);
    close(at(Point::Value), &[1.0, -1.0]);
    let last: [f64; 4] = at(Point::LayerOut).clone().try_into().unwrap();
    close(&logits[1], &tiny_logits(last));
}

#[test]
fn points_lie_before_and_after_what_their_names_say() {
    let mut file = tiny("qwen2");
    file.vector("blk.0.attn_q.bias", &[5.0, -2.0, 0.0, 1.0]);
    file.vector("blk.0.attn_k.bias", &[1.0, 4.0]);
    file.vector("blk.0.attn_v.bias", &[1.0, 3.0]);
    let loaded = load(&file);
    let (_, seen) = observed(&mut loaded.oracle(), &[0], Want::Last);
    close(&seen[2].3, &[6.0, -1.0, 1.0, 2.0]);
    close(&seen[3].3, &[2.0, 5.0]);
    close(&seen[4].3, &[2.0, 4.0]);

    let mut file = tiny("gemma3");
    file.set("gemma3.attention.sliding_window", 1u32);
    file.set("gemma3.attention.sliding_window_pattern", 2u32);
    file.vector("blk.0.attn_q_norm.weight", &[3.0, 1.0]);
    file.vector("blk.0.attn_k_norm.weight", &[1.0, 2.0]);
    file.vector("blk.0.post_attention_norm.weight", &[3.0; 4]);
    file.vector("blk.0.post_ffw_norm.weight", &[5.0; 4]);
    let loaded = load(&file);
    let (_, seen) = observed(&mut loaded.oracle(), &[0], Want::Last);
    close(&seen[0].3, &[2.0; 4]);
    close(&seen[2].3, &[3.0, 1.0, 3.0, 1.0]);
    close(&seen[3].3, &[1.0, 2.0]);
    close(&seen[5].3, &[1.0; 4]);
    close(&seen[6].3, &[5.0; 4]);
    let g = math::activate(model::Activation::Gelu, 1.0);
    close(&seen[8].3, &[g; 2]);
    close(&seen[9].3, &[g, g, 0.0, 0.0]);
    // The mean square of the product is half of g squared.
    let normed = 5.0 * 2.0_f64.sqrt();
    close(&seen[10].3, &[5.0 + normed, 5.0 + normed, 5.0, 5.0]);
}

#[test]
fn head_norms_by_hand() {
    // The norms undo the factor 7 of the query matrix, and their weights 2 and 1/2 cancel, so
    // the logits are those of the plain model.
    let mut file = tiny("qwen3");
    file.remove("blk.0.attn_q.weight");
    file.matrix(
        "blk.0.attn_q.weight",
        &IDENTITY.map(|row| row.map(|v| 7.0 * v)),
    );
    file.vector("blk.0.attn_q_norm.weight", &[2.0, 2.0]);
    file.vector("blk.0.attn_k_norm.weight", &[0.5, 0.5]);
    let loaded = load(&file);
    let logits = loaded.oracle().prefill(&[0, 1], Want::Last).unwrap();
    close(&logits[0], &tiny_second_logits());
}

#[test]
fn biases_by_hand() {
    // Without value matrix, every value is the bias (1, 3). Without gate, no feed-forward.
    let mut file = tiny("qwen2");
    file.reshape("blk.0.attn_v.weight", &[4, 2], TensorType::F32);
    file.reshape("blk.0.ffn_gate.weight", &[4, 2], TensorType::F32);
    file.vector("blk.0.attn_q.bias", &[5.0, -2.0, 0.0, 1.0]);
    file.vector("blk.0.attn_k.bias", &[1.0, 4.0]);
    file.vector("blk.0.attn_v.bias", &[1.0, 3.0]);
    let loaded = load(&file);
    let logits = loaded.oracle().prefill(&[0, 1], Want::Every).unwrap();
    close(&logits[0], &tiny_logits([2.0, 4.0, 2.0, 4.0]));
    close(&logits[1], &tiny_logits([2.0, 2.0, 2.0, 2.0]));
}

#[test]
fn biases_of_queries_and_keys_enter_before_the_rotation() {
    // Without matrices, all queries are (2, 1) and (0, 3) and all keys (1, 4), turned by their
    // positions; one step apart, they meet at an angle of one radian.
    let mut file = tiny("qwen2");
    file.reshape("blk.0.attn_q.weight", &[4, 4], TensorType::F32);
    file.reshape("blk.0.attn_k.weight", &[4, 2], TensorType::F32);
    file.reshape("blk.0.ffn_gate.weight", &[4, 2], TensorType::F32);
    file.vector("blk.0.attn_q.bias", &[2.0, 1.0, 0.0, 3.0]);
    file.vector("blk.0.attn_k.bias", &[1.0, 4.0]);
    file.vector("blk.0.attn_v.bias", &[0.0, 0.0]);
    let loaded = load(&file);
    let logits = loaded.oracle().prefill(&[0, 1], Want::Last).unwrap();
    let (cos, sin) = (1.0_f64.cos(), 1.0_f64.sin());
    // The value at position 0 is (1, 1), at position 1 (1, -1).
    let second_value = |q: [f64; 2]| {
        let turned = [q[0] * cos - q[1] * sin, q[0] * sin + q[1] * cos];
        let far = turned[0] + 4.0 * turned[1];
        let near = q[0] + 4.0 * q[1];
        let [far, near] = [far, near].map(|s| (s * f64::from(0.5_f32.sqrt())).exp());
        (far - near) / (far + near)
    };
    let (a, b) = (second_value([2.0, 1.0]), second_value([0.0, 3.0]));
    close(&logits[0], &tiny_logits([2.0, a - 1.0, 2.0, b - 1.0]));
}

#[test]
fn scaled_embedding_window_post_norms_gelu_and_softcap_by_hand() {
    let mut file = tiny("gemma3");
    file.set("gemma3.attention.sliding_window", 1u32);
    file.set("gemma3.attention.sliding_window_pattern", 2u32);
    file.set("gemma3.final_logit_softcapping", 5.0f32);
    file.vector("blk.0.attn_q_norm.weight", &[1.0, 1.0]);
    file.vector("blk.0.attn_k_norm.weight", &[1.0, 1.0]);
    file.vector("blk.0.post_attention_norm.weight", &[3.0; 4]);
    file.vector("blk.0.post_ffw_norm.weight", &[1.0; 4]);
    let loaded = load(&file);
    let logits = loaded.oracle().prefill(&[0, 1], Want::Last).unwrap();
    // A window of one sees only itself, so attention gives (1, -1, 1, -1), which its norm
    // triples; the embedding was doubled by sqrt 4.
    let (gelu_1, gelu_minus_1) = {
        let t = ((2.0 / std::f64::consts::PI).sqrt() * 1.044715).tanh();
        (0.5 * (1.0 + t), -0.5 * (1.0 - t))
    };
    let h = [gelu_1, -gelu_minus_1];
    let root = ((h[0] * h[0] + h[1] * h[1]) / 4.0).sqrt();
    let x = [5.0 + h[0] / root, -5.0 + h[1] / root, 5.0, -5.0];
    close(&logits[0], &tiny_logits(x).map(|l| 5.0 * (l / 5.0).tanh()));
}

/// Every token's text, in a way that uses most of the vocabulary.
fn some_tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 97 + 5) % 300).collect()
}

#[test]
fn batches_and_threads_change_no_bit() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        let loaded = load(&TestModel::new(architecture, TensorType::Q4_K).file());
        let tokens = some_tokens(BATCH + 6);
        let mut steps = loaded.oracle().with_threads(1);
        let one: Vec<_> = tokens
            .iter()
            .map(|token| steps.step(*token).unwrap())
            .collect();
        let many = loaded
            .oracle()
            .with_threads(3)
            .prefill(&tokens, Want::Every)
            .unwrap();
        assert_eq!(one, many, "{architecture}");
    }
}

#[test]
fn wanted_places_are_those_of_the_whole() {
    let loaded = load(&TestModel::new("llama", TensorType::Q8_0).file());
    let tokens = some_tokens(9);
    let all = loaded.oracle().prefill(&tokens, Want::Every).unwrap();
    let some = loaded.oracle().prefill(&tokens, Want::At(&[7, 0])).unwrap();
    assert_eq!(some, [all[7].clone(), all[0].clone()]);
    let last = loaded.oracle().prefill(&tokens, Want::Last).unwrap();
    assert_eq!(last, [all[8].clone()]);
}

#[test]
fn one_pass_gives_logits_at_some_places_and_tensors_at_another() {
    let loaded = load(&TestModel::new("gemma3", TensorType::Q8_0).file());
    let tokens = some_tokens(BATCH + 9);
    let places = [BATCH + 7, 2, BATCH - 1, LOGITS_BATCH, 2];
    let places: Vec<usize> = places.into_iter().chain(0..LOGITS_BATCH).collect();
    let mut oracle = loaded.oracle();
    let (logits, seen) = observed(&mut oracle, &tokens, Want::At(&places));
    let plain = loaded.oracle().prefill(&tokens, Want::Every).unwrap();
    for (logits, place) in logits.iter().zip(&places) {
        assert_eq!(logits, &plain[*place]);
    }
    // Whatever logits are wanted, every position is shown, and as if it had come alone.
    assert_eq!(seen.len(), tokens.len() * (2 + 3 * 10));
    for position in [5, BATCH + 4] {
        let mut alone = loaded.oracle();
        alone.prefill(&tokens[..position], Want::At(&[])).unwrap();
        let (_, alone) = observed(&mut alone, &tokens[position..=position], Want::Last);
        let among: Vec<&Kept> = seen.iter().filter(|kept| kept.2 == position).collect();
        assert_eq!(alone.iter().collect::<Vec<_>>(), among);
    }
}

#[test]
fn a_window_ends_where_it_says() {
    let mut model = TestModel::new("gemma3", TensorType::F32);
    model.n_layer = 1;
    model.window = Some((20, 0));
    let loaded = load(&model.file());
    let tokens = some_tokens(25);
    let logits = |tokens: &[u32]| loaded.oracle().prefill(tokens, Want::Last).unwrap();
    let whole = logits(&tokens);
    // Position 24 sees positions 5 to 24.
    let mut outside = tokens.clone();
    outside[4] += 1;
    assert_eq!(logits(&outside), whole);
    let mut inside = tokens.clone();
    inside[5] += 1;
    assert_ne!(logits(&inside), whole);
}

#[test]
fn every_family_runs_with_every_weight_type() {
    for architecture in ["llama", "qwen2", "qwen3", "gemma3"] {
        let logits = |ty| {
            let loaded = load(&TestModel::new(architecture, ty).file());
            loaded
                .oracle()
                .prefill(&some_tokens(4), Want::Last)
                .unwrap()
                .remove(0)
        };
        let exact = logits(TensorType::F32);
        let divergence = |ty: TensorType| {
            let kl = compare::kl_divergence(&exact, &logits(ty));
            assert!(kl.is_finite(), "{architecture} {}", ty.name());
            kl
        };
        let of: std::collections::HashMap<_, _> =
            model::WEIGHT_TYPES.map(|ty| (ty, divergence(ty))).into();
        // More bits lie nearer to the floats they were made from.
        let finer = [
            TensorType::F16,
            TensorType::Q8_0,
            TensorType::Q4_K,
            TensorType::Q2_K,
        ];
        for pair in finer.windows(2) {
            assert!(
                of[&pair[0]] < of[&pair[1]],
                "{architecture} {:?}: {of:?}",
                pair
            );
        }
    }
}

#[test]
fn reset_forgets() {
    let loaded = load(&TestModel::new("llama", TensorType::Q4_0).file());
    let mut oracle = loaded.oracle();
    let first = oracle.step(7).unwrap();
    assert_ne!(oracle.step(7).unwrap(), first);
    oracle.reset();
    assert_eq!(oracle.step(7).unwrap(), first);
}

#[test]
fn what_cannot_be_answered_is_refused_and_leaves_the_cache_alone() {
    let loaded = load(&tiny("llama"));
    let mut oracle = loaded.oracle();
    oracle.step(0).unwrap();
    let error = oracle.prefill(&[1, 2], Want::Last).unwrap_err();
    assert!(matches!(
        error,
        OracleError::UnknownToken {
            token: 2,
            n_vocab: 2
        }
    ));
    let error = oracle.prefill(&[0; 8], Want::Last).unwrap_err();
    assert!(matches!(
        error,
        OracleError::ContextFull {
            position: 8,
            n_ctx: 8
        }
    ));
    let error = oracle.prefill(&[0, 1], Want::At(&[0, 2])).unwrap_err();
    assert!(matches!(
        error,
        OracleError::NoSuchPlace {
            place: 2,
            tokens: 2
        }
    ));
    assert_eq!(oracle.position(), 1);
    close(&oracle.step(1).unwrap(), &tiny_second_logits());
    assert!(oracle.prefill(&[], Want::Last).unwrap().is_empty());
}
