//! Attention at the shapes of real models: one token deep in the context, and a prompt.
//!
//! Throughput of decode is the cache's bytes read in a second, to hold against the memory's;
//! that of prefill is queries times positions times head size, two multiply-adds each.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use emel_kernels::{
    AttentionInput, AttentionJob, AttentionMergeJob, AttentionShape, AttentionSplitJob,
    AttentionWorkspace, CacheShape, CacheType, Direct, Kernels, Lanes, LayerCache, Level, Repacked,
    StoreKvJob, parallel, serial,
};

struct Model {
    name: &'static str,
    n_head: usize,
    n_kv: usize,
    dim: usize,
}

const MODELS: [Model; 3] = [
    Model {
        name: "smollm2-135m",
        n_head: 9,
        n_kv: 3,
        dim: 64,
    },
    Model {
        name: "gemma3-270m",
        n_head: 4,
        n_kv: 1,
        dim: 256,
    },
    Model {
        name: "qwen3-0.6b",
        n_head: 16,
        n_kv: 8,
        dim: 128,
    },
];

/// Values in -1..1 from a linear congruential generator.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

impl Model {
    fn shape(&self, n: usize, ty: CacheType) -> CacheShape {
        CacheShape {
            n_kv_heads: self.n_kv,
            head_dim_k: self.dim,
            head_dim_v: self.dim,
            n_ctx: n,
            n_held: n,
            type_k: ty,
            type_v: ty,
        }
    }

    fn cache(&self, kernels: Kernels, n: usize, ty: CacheType) -> LayerCache {
        let mut cache = LayerCache::allocate(kernels, self.shape(n, ty)).unwrap();
        let rows = noise(n * self.n_kv * self.dim);
        serial(&mut StoreKvJob::new(&mut cache, 0, &rows, &rows));
        cache
    }

    fn workspace(&self, lanes: usize, n_ctx: usize) -> AttentionWorkspace {
        let (n_head, head_dim_k, head_dim_v) = (self.n_head, self.dim, self.dim);
        let shape = AttentionShape {
            lanes,
            n_head,
            head_dim_k,
            head_dim_v,
            n_ctx,
        };
        AttentionWorkspace::allocate(shape).unwrap()
    }

    fn input<'a>(&self, q: &'a [f32], cache: &'a LayerCache, pos0: usize) -> AttentionInput<'a> {
        AttentionInput {
            q,
            cache,
            pos0,
            n_head: self.n_head,
            scale: 1.0 / (self.dim as f32).sqrt(),
            window: None,
            softcap: None,
        }
    }
}

/// Layers whose caches are read in turn, so that together they do not fit a core's own caches.
const LAYERS: usize = 48;

fn decode(c: &mut Criterion) {
    let depth = 4096;
    let types = CacheType::ALL;
    for (model, ty) in MODELS.iter().flat_map(|model| types.map(|ty| (model, ty))) {
        let mut group = c.benchmark_group(format!("decode at {depth}, {}, {ty}", model.name));
        let bytes = model.shape(depth, ty).bytes().unwrap();
        group.throughput(Throughput::Bytes((LAYERS * bytes) as u64));
        let q = noise(model.n_head * model.dim);
        let mut out = vec![0.0; q.len()];
        for kernels in Level::available().into_iter().filter_map(Kernels::new) {
            let caches: Vec<_> = (0..LAYERS)
                .map(|_| model.cache(kernels, depth, ty))
                .collect();
            let mut workspace = model.workspace(2, depth);
            let level = kernels.level();
            group.bench_function(BenchmarkId::new("whole", level), |b| {
                b.iter(|| {
                    for cache in &caches {
                        let input = model.input(&q, cache, depth - 1);
                        serial(&mut AttentionJob::<Direct>::new(
                            kernels,
                            input,
                            &mut workspace,
                            &mut out,
                        ));
                        black_box(&out);
                    }
                });
            });
            for n in [1, 2] {
                let mut lanes = Lanes::new(n, emel_kernels::Patience::SharedCores).unwrap();
                group.bench_function(BenchmarkId::new(format!("split, {n} lanes"), level), |b| {
                    b.iter(|| {
                        for cache in &caches {
                            let input = model.input(&q, cache, depth - 1);
                            let mut job = AttentionSplitJob::new(kernels, input, &mut workspace);
                            parallel(&mut lanes, &mut job).unwrap();
                            let mut job =
                                AttentionMergeJob::new(kernels, input, &mut workspace, &mut out);
                            parallel(&mut lanes, &mut job).unwrap();
                            black_box(&out);
                        }
                    });
                });
            }
        }
        group.finish();
    }
}

fn prefill(c: &mut Criterion) {
    let tokens = 512;
    let types = CacheType::ALL;
    for (model, ty) in MODELS.iter().flat_map(|model| types.map(|ty| (model, ty))) {
        let mut group = c.benchmark_group(format!("prefill of {tokens}, {}, {ty}", model.name));
        let pairs = tokens * (tokens + 1) / 2;
        group.throughput(Throughput::Elements(
            (2 * 2 * pairs * model.n_head * model.dim) as u64,
        ));
        let q = noise(tokens * model.n_head * model.dim);
        let mut out = vec![0.0; q.len()];
        for kernels in Level::available().into_iter().filter_map(Kernels::new) {
            let cache = model.cache(kernels, tokens, ty);
            let mut workspace = model.workspace(1, tokens);
            group.bench_function(BenchmarkId::new("1 lane", kernels.level()), |b| {
                b.iter(|| {
                    let input = model.input(&q, &cache, 0);
                    serial(&mut AttentionJob::<Repacked>::new(
                        kernels,
                        input,
                        &mut workspace,
                        &mut out,
                    ));
                    black_box(&out);
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, decode, prefill);
criterion_main!(benches);
