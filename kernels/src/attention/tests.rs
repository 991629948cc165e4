use super::*;
use crate::lanes::{Lanes, parallel, serial};
use crate::level::Kernels;
use crate::test_util::{self, Rng, assert_same, levels, tree};
use half::f16;

mod contracts;
mod held;
mod types;

/// The definition's.
const VALUE_LEVELS: f32 = 4095.0;
const WEIGHT_LEVELS: f32 = 8191.0;

/// One attention problem: queries of the last `tokens` of `pos0 + tokens` positions.
#[derive(Clone, Copy, Debug)]
struct Case {
    n_head: usize,
    n_kv: usize,
    dim_k: usize,
    dim_v: usize,
    pos0: usize,
    tokens: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    /// Of keys and of values.
    types: (CacheType, CacheType),
}

const PLAIN: Case = Case {
    n_head: 3,
    n_kv: 1,
    dim_k: 64,
    dim_v: 64,
    pos0: 0,
    tokens: 1,
    window: None,
    softcap: None,
    types: (CacheType::F16, CacheType::F16),
};

/// Every pair of types.
fn pairs() -> impl Iterator<Item = (CacheType, CacheType)> {
    let all = CacheType::ALL.into_iter();
    all.flat_map(|k| CacheType::ALL.map(|v| (k, v)))
}

impl Case {
    fn end(&self) -> usize {
        self.pos0 + self.tokens
    }
    fn scale(&self) -> f32 {
        1.0 / (self.dim_k as f32).sqrt()
    }
    fn input<'a>(&self, q: &'a [f32], cache: &'a LayerCache) -> AttentionInput<'a> {
        AttentionInput {
            q,
            cache,
            pos0: self.pos0,
            n_head: self.n_head,
            scale: self.scale(),
            window: self.window,
            softcap: self.softcap,
        }
    }
    fn workspace(&self, lanes: usize) -> AttentionWorkspace {
        AttentionWorkspace::allocate(AttentionShape {
            lanes,
            n_head: self.n_head,
            head_dim_k: self.dim_k,
            head_dim_v: self.dim_v,
            n_ctx: self.end(),
        })
        .unwrap()
    }
    fn out(&self) -> Vec<f32> {
        vec![f32::NAN; self.tokens * self.n_head * self.dim_v]
    }
}

/// Queries, keys, values.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Data {
    fn random(case: &Case, rng: &mut Rng) -> Data {
        let n = case.end() * case.n_kv;
        Data {
            q: rng.units(case.tokens * case.n_head * case.dim_k),
            // Large enough that softmax is far from uniform.
            k: rng.units(n * case.dim_k).iter().map(|x| 4.0 * x).collect(),
            v: rng.units(n * case.dim_v),
        }
    }

    fn cache(&self, case: &Case, kernels: Kernels) -> LayerCache {
        let mut cache = empty(case, kernels);
        serial(&mut StoreKvJob::new(&mut cache, 0, &self.k, &self.v));
        cache
    }
}

fn shape(case: &Case) -> CacheShape {
    CacheShape {
        n_kv_heads: case.n_kv,
        head_dim_k: case.dim_k,
        head_dim_v: case.dim_v,
        n_ctx: case.end(),
        n_held: case.end(),
        type_k: case.types.0,
        type_v: case.types.1,
    }
}

fn empty(case: &Case, kernels: Kernels) -> LayerCache {
    LayerCache::allocate(kernels, shape(case)).unwrap()
}

/// What rows of `head_dim` are as a cache of the type holds them.
fn stored(ty: CacheType, rows: &[f32]) -> Vec<f32> {
    match ty {
        CacheType::F32 => rows.to_vec(),
        CacheType::F16 => rows.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
        CacheType::Q8_0 => {
            let (blocks, rest) = rows.as_chunks::<32>();
            assert!(rest.is_empty());
            let number = |block| {
                let test_util::Quantized { q, d, .. } = test_util::quantize(block);
                q.into_iter().map(move |q| d * q as f32)
            };
            blocks.iter().flat_map(|block| number(block)).collect()
        }
    }
}

/// The module's `row(x, levels)`: integers and their step.
fn row(x: &[f32], levels: f32) -> (Vec<i64>, f32) {
    let largest = x.iter().fold(0.0f32, |top, x| {
        if top.is_nan() || x.is_nan() {
            f32::NAN
        } else {
            top.max(x.abs())
        }
    });
    if !largest.is_finite() {
        return (vec![0; x.len()], f32::NAN);
    }
    if largest < 2f32.powi(-100) {
        return (vec![0; x.len()], 0.0);
    }
    let step = largest / levels;
    let inverse = 1.0 / step;
    let integers = x
        .iter()
        .map(|&x| (f64::from(x) * f64::from(inverse)).round_ties_even() as i64);
    (integers.collect(), step)
}

/// The levels of queries and keys.
fn head_levels(dim: usize) -> f32 {
    (0..=8191).rfind(|n| n * n * dim <= 2147483647).unwrap() as f32
}

/// What products take of a row, and the step it is times.
type Factors = (Vec<f64>, f32);

/// A row that meets one of the type, which is taken as integers unless that is single precision.
fn factors(ty: CacheType, x: &[f32], levels: f32) -> Factors {
    if ty == CacheType::F32 {
        let finite = x.iter().all(|x| x.is_finite());
        let x = x.iter().map(|&x| f64::from(x)).collect();
        return (x, if finite { 1.0 } else { f32::NAN });
    }
    let (x, step) = row(x, levels);
    (x.into_iter().map(|x| x as f64).collect(), step)
}

/// A sum of products as the type has it: exact, or fused in `f32`, in order.
fn dot(ty: CacheType, products: impl Iterator<Item = (f64, f64)>) -> f32 {
    if ty == CacheType::F32 {
        return products.fold(0.0, |sum, (a, b)| (a as f32).mul_add(b as f32, sum));
    }
    let sum: i64 = products.map(|(a, b)| a as i64 * b as i64).sum();
    assert!(i32::try_from(sum).is_ok());
    sum as f32
}

/// The module's definition, one number at a time, over the rows that were stored.
fn naive(case: &Case, data: &Data) -> Vec<f32> {
    let Case {
        n_head,
        n_kv,
        dim_k,
        dim_v,
        ..
    } = *case;
    let (type_k, type_v) = case.types;
    let rows = |ty: CacheType, all: &[f32], dim: usize, levels: f32| -> Vec<Factors> {
        let rows = all.chunks_exact(dim);
        rows.map(|x| factors(ty, x, levels)).collect()
    };
    let levels = head_levels(dim_k);
    let q = rows(type_k, &data.q, dim_k, levels);
    let k = rows(type_k, &stored(type_k, &data.k), dim_k, levels);
    let v = rows(type_v, &stored(type_v, &data.v), dim_v, VALUE_LEVELS);
    let mut out = Vec::new();
    for t in 0..case.tokens {
        for h in 0..n_head {
            let pos = case.pos0 + t;
            let (q, q_step) = &q[t * n_head + h];
            let kv = h / (n_head / n_kv);
            let lo = case.window.map_or(0, |w| (pos + 1).saturating_sub(w));
            let (mut m, mut l, mut o) = (f32::NEG_INFINITY, 0.0f32, vec![0.0f32; dim_v]);
            for block in 0..=pos / 64 {
                let positions = lo.max(64 * block)..(pos + 1).min(64 * block + 64);
                if positions.is_empty() {
                    continue;
                }
                let scores: Vec<f32> = positions
                    .clone()
                    .map(|p| {
                        let (k, k_step) = &k[p * n_kv + kv];
                        let dot = dot(type_k, q.iter().copied().zip(k.iter().copied()));
                        let score = (dot * k_step) * (q_step * case.scale());
                        case.softcap
                            .map_or(score, |cap| cap * test_util::tanh(score / cap))
                    })
                    .collect();
                let m_b = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut sums = [0.0f32; 16];
                let mut weights = Vec::new();
                for (p, score) in positions.clone().zip(scores) {
                    let w = test_util::exp(score - m_b);
                    sums[p % 16] += w;
                    weights.push(w * v[p * n_kv + kv].1);
                }
                let (weights, w_step) = factors(type_v, &weights, WEIGHT_LEVELS);
                let o_b: Vec<f32> = (0..dim_v)
                    .map(|d| {
                        let products = positions.clone().zip(&weights);
                        let products = products.map(|(p, &w)| (w, v[p * n_kv + kv].0[d]));
                        dot(type_v, products) * w_step
                    })
                    .collect();
                let top = m.max(m_b);
                let (a, b) = (test_util::exp(m - top), test_util::exp(m_b - top));
                l = l.mul_add(a, tree(sums) * b);
                for d in 0..dim_v {
                    o[d] = o[d].mul_add(a, o_b[d] * b);
                }
                m = top;
            }
            out.extend(o.iter().map(|o| o / l));
        }
    }
    out
}

/// Runs the jobs, at every level, both ways of reading, alone and on pools.
fn check(case: &Case, data: &Data) -> Vec<f32> {
    check_reading::<Direct>(case, data);
    check_reading::<Repacked>(case, data)
}

fn check_reading<R: CacheReading>(case: &Case, data: &Data) -> Vec<f32> {
    let wanted = naive(case, data);
    let mut pools: Vec<Lanes> = [2, 5]
        .into_iter()
        .map(|n| Lanes::new(n, crate::Patience::SharedCores).unwrap())
        .collect();
    for kernels in levels() {
        let what = format!("{} {case:?}", kernels.level());
        let cache = data.cache(case, kernels);
        let input = case.input(&data.q, &cache);
        let (mut workspace, mut out) = (case.workspace(1), case.out());
        serial(&mut AttentionJob::<R>::new(
            kernels,
            input,
            &mut workspace,
            &mut out,
        ));
        assert_same(&what, &out, &wanted);
        for lanes in &mut pools {
            let (mut workspace, mut out) = (case.workspace(lanes.count()), case.out());
            let mut job = AttentionJob::<R>::new(kernels, input, &mut workspace, &mut out);
            parallel(lanes, &mut job).unwrap();
            assert_same(&what, &out, &wanted);
        }
        if case.tokens > 1 {
            continue;
        }
        out.fill(f32::NAN);
        serial(&mut AttentionSplitJob::new(kernels, input, &mut workspace));
        serial(&mut AttentionMergeJob::new(
            kernels,
            input,
            &mut workspace,
            &mut out,
        ));
        assert_same(&format!("split, {what}"), &out, &wanted);
        for lanes in &mut pools {
            let (mut workspace, mut out) = (case.workspace(lanes.count()), case.out());
            parallel(
                lanes,
                &mut AttentionSplitJob::new(kernels, input, &mut workspace),
            )
            .unwrap();
            let mut job = AttentionMergeJob::new(kernels, input, &mut workspace, &mut out);
            parallel(lanes, &mut job).unwrap();
            assert_same(&format!("split, {what}"), &out, &wanted);
        }
    }
    wanted
}

fn check_random(case: Case, seed: u64) {
    check(&case, &Data::random(&case, &mut Rng(seed)));
}

#[test]
fn decode_of_every_head_size() {
    for (seed, dim) in [1, 2, 7, 15, 16, 17, 40, 64, 72, 80, 96, 128, 130, 256]
        .into_iter()
        .enumerate()
    {
        check_random(
            Case {
                dim_k: dim,
                dim_v: dim,
                pos0: 200,
                ..PLAIN
            },
            seed as u64,
        );
    }
    // Keys and values of different sizes.
    check_random(
        Case {
            dim_k: 192,
            dim_v: 128,
            pos0: 100,
            ..PLAIN
        },
        50,
    );
    check_random(
        Case {
            dim_k: 24,
            dim_v: 72,
            pos0: 100,
            ..PLAIN
        },
        51,
    );
}

#[test]
fn decode_of_every_group_size_and_depth() {
    for group in 1..=9 {
        let case = Case {
            n_head: 2 * group,
            n_kv: 2,
            dim_k: 32,
            dim_v: 32,
            ..PLAIN
        };
        check_random(Case { pos0: 150, ..case }, group as u64);
    }
    for pos0 in [0, 1, 15, 16, 62, 63, 64, 65, 127, 128, 500, 1000] {
        check_random(Case { pos0, ..PLAIN }, pos0 as u64);
    }
    // More heads than a tile has queries.
    let case = Case {
        n_head: 71,
        n_kv: 1,
        dim_k: 16,
        dim_v: 16,
        pos0: 70,
        ..PLAIN
    };
    check_random(case, 99);
    check_random(Case { tokens: 3, ..case }, 98);
}

#[test]
fn batches() {
    for (n_head, n_kv) in [(1, 1), (3, 1), (9, 3), (4, 1), (8, 2), (2, 2), (16, 2)] {
        for (pos0, tokens) in [(0, 2), (0, 7), (60, 8), (0, 65), (100, 40), (3, 130)] {
            let case = Case {
                n_head,
                n_kv,
                dim_k: 16,
                dim_v: 24,
                pos0,
                tokens,
                ..PLAIN
            };
            check_random(case, (n_head * tokens) as u64);
        }
    }
    check_random(
        Case {
            n_head: 9,
            n_kv: 3,
            tokens: 300,
            ..PLAIN
        },
        1,
    );
    check_random(
        Case {
            n_head: 4,
            dim_k: 256,
            dim_v: 256,
            pos0: 40,
            tokens: 60,
            ..PLAIN
        },
        2,
    );
}

#[test]
fn windows() {
    for window in [1, 2, 16, 63, 64, 65, 100, 1000] {
        for (pos0, tokens) in [(0, 1), (300, 1), (63, 1), (64, 1), (0, 200), (150, 90)] {
            let case = Case {
                window: Some(window),
                pos0,
                tokens,
                dim_k: 16,
                dim_v: 16,
                ..PLAIN
            };
            check_random(case, (window + tokens) as u64);
        }
    }
}

#[test]
fn soft_caps() {
    for (pos0, tokens) in [(0, 1), (130, 1), (0, 100)] {
        check_random(
            Case {
                softcap: Some(2.5),
                pos0,
                tokens,
                ..PLAIN
            },
            3,
        );
    }
}

#[test]
fn batch_splits_give_the_same_bits() {
    let case = Case {
        n_head: 6,
        n_kv: 2,
        tokens: 150,
        dim_k: 32,
        dim_v: 32,
        ..PLAIN
    };
    let data = Data::random(&case, &mut Rng(8));
    let whole = naive(&case, &data);
    let kernels = *levels().last().unwrap();
    for step in [1, 4, 8, 64, 100] {
        let (mut cache, mut out) = (empty(&case, kernels), case.out());
        let mut workspace = case.workspace(1);
        for first in (0..case.tokens).step_by(step) {
            let tokens = first..case.tokens.min(first + step);
            let rows =
                |x: &[f32], width: usize| x[tokens.start * width..tokens.end * width].to_vec();
            let (k, v) = (rows(&data.k, 2 * 32), rows(&data.v, 2 * 32));
            serial(&mut StoreKvJob::new(&mut cache, first, &k, &v));
            let q = rows(&data.q, 6 * 32);
            let input = AttentionInput {
                pos0: first,
                ..case.input(&q, &cache)
            };
            let out = &mut out[tokens.start * 6 * 32..tokens.end * 6 * 32];
            serial(&mut AttentionJob::<Repacked>::new(
                kernels,
                input,
                &mut workspace,
                out,
            ));
        }
        assert_same(&format!("steps of {step}"), &out, &whole);
    }
}

#[test]
fn what_lies_beyond_the_last_position_does_not_matter() {
    let case = Case {
        pos0: 70,
        tokens: 3,
        ..PLAIN
    };
    let data = Data::random(&case, &mut Rng(9));
    let wanted = naive(&case, &data);
    for kernels in levels() {
        let mut cache = data.cache(&case, kernels);
        let rest = cache.capacity() - case.end();
        let junk = vec![f32::NAN; rest * 64];
        serial(&mut StoreKvJob::new(&mut cache, case.end(), &junk, &junk));
        let (mut workspace, mut out) = (case.workspace(1), case.out());
        let input = case.input(&data.q, &cache);
        serial(&mut AttentionJob::<Repacked>::new(
            kernels,
            input,
            &mut workspace,
            &mut out,
        ));
        assert_same("beside NaN", &out, &wanted);
    }
}

#[test]
fn extreme_values() {
    let mut rng = Rng(10);
    for tokens in [1, 20] {
        let case = Case {
            n_head: 2,
            pos0: 100,
            tokens,
            dim_k: 16,
            dim_v: 16,
            ..PLAIN
        };
        for _ in 0..20 {
            let mut data = Data::random(&case, &mut rng);
            // Scores far apart, so that weights underflow; values that round to subnormal halves.
            data.k.iter_mut().for_each(|k| *k *= 3000.0);
            data.v.iter_mut().for_each(|v| *v *= 1e-6);
            let out = check(&case, &data);
            assert!(out.iter().all(|o| o.is_finite()));
        }
        let poison = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e6];
        for bad in poison {
            let mut data = Data::random(&case, &mut rng);
            let at = rng.below(data.k.len());
            data.k[at] = bad;
            let out = check(&case, &data);
            // The last token sees every key: its output must not look like a number. (The last of
            // them is infinite as a half.)
            assert!(out[out.len() - 16..].iter().all(|o| o.is_nan()));
        }
        let mut data = Data::random(&case, &mut rng);
        data.q.fill(f32::NEG_INFINITY);
        data.k.fill(1.0);
        assert!(
            check(&case, &data).iter().all(|o| o.is_nan()),
            "all scores -infinity"
        );
    }
}

#[test]
fn uniform_scores_give_the_mean() {
    let case = Case {
        n_head: 1,
        dim_k: 8,
        dim_v: 8,
        pos0: 99,
        ..PLAIN
    };
    let mut data = Data::random(&case, &mut Rng(11));
    data.q.fill(0.0);
    for (i, v) in data.v.iter_mut().enumerate() {
        *v = (i / 8) as f32;
    }
    // As near as the steps allow.
    for mean in check(&case, &data) {
        assert!((mean - 49.5).abs() < 0.005, "{mean}");
    }
}
