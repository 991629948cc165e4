//! What the cache stores, and what is refused.

use super::*;

#[test]
fn storing_is_the_same_at_every_level_on_lanes_and_in_pieces() {
    let mut rng = Rng(12);
    for (n_kv, dim_k, dim_v, tokens) in [
        (1, 5, 3, 1),
        (2, 64, 64, 130),
        (3, 80, 96, 70),
        (1, 17, 40, 65),
    ] {
        let case = Case {
            n_head: n_kv,
            n_kv,
            dim_k,
            dim_v,
            tokens,
            ..PLAIN
        };
        let data = Data {
            q: vec![],
            k: rng.wilds(tokens * n_kv * dim_k),
            v: rng.wilds(tokens * n_kv * dim_v),
        };
        // By position and element, from the words on the layout.
        let (vectors, n_blocks) = (dim_v.div_ceil(16), tokens.div_ceil(64));
        let (k_len, v_len) = (dim_k * 64, 64 * vectors * 16);
        let block_len = n_kv * (k_len + v_len);
        let mut wanted = vec![0u16; n_blocks * block_len];
        for p in 0..tokens {
            for h in 0..n_kv {
                let block = &mut wanted[p / 64 * block_len..][..block_len];
                for d in 0..dim_k {
                    let k = f16::from_f32(data.k[(p * n_kv + h) * dim_k + d]).to_bits();
                    block[h * k_len + d * 64 + p % 64] = k;
                }
                for d in 0..dim_v {
                    let v = f16::from_f32(data.v[(p * n_kv + h) * dim_v + d]).to_bits();
                    block[n_kv * k_len + h * v_len + p % 64 * vectors * 16 + d] = v;
                }
            }
        }
        let widen = |x: &u16| f16::from_bits(*x).to_f32();
        let wanted: Vec<f32> = wanted.iter().map(widen).collect();
        let same = |what: &str, cache: &LayerCache| {
            let found: Vec<f32> = cache.elements().iter().map(widen).collect();
            assert_same(what, &found[..wanted.len()], &wanted);
        };
        let mut lanes = Lanes::new(3, crate::Patience::SharedCores).unwrap();
        for kernels in levels() {
            same("whole", &data.cache(&case, kernels));
            let mut cache = empty(&case);
            let mut job = StoreKvJob::new(kernels, &mut cache, 0, &data.k, &data.v);
            parallel(&mut lanes, &mut job).unwrap();
            same("lanes", &cache);
            let mut cache = empty(&case);
            for p in 0..tokens {
                let k = &data.k[p * n_kv * dim_k..][..n_kv * dim_k];
                let v = &data.v[p * n_kv * dim_v..][..n_kv * dim_v];
                serial(&mut StoreKvJob::new(kernels, &mut cache, p, k, v));
            }
            same("pieces", &cache);
        }
    }
}

#[test]
fn impossible_caches_and_workspaces_are_errors() {
    let allocate = |h, k, v, n| LayerCache::allocate(h, k, v, n, CacheType::F16).map(|_| ());
    assert!(matches!(
        allocate(0, 64, 64, 1),
        Err(CacheError::Empty { .. })
    ));
    assert!(matches!(
        allocate(1, 0, 64, 1),
        Err(CacheError::Empty { .. })
    ));
    for n in [usize::MAX, usize::MAX / 64, 1 << 50] {
        assert!(
            matches!(allocate(8, 128, 128, n), Err(CacheError::OutOfMemory(_))),
            "{n}"
        );
        let shape = AttentionShape {
            lanes: 1,
            n_head: 8,
            head_dim_k: 128,
            head_dim_v: 128,
            n_ctx: n,
        };
        assert!(AttentionWorkspace::allocate(shape).is_err());
        for shape in [
            AttentionShape {
                lanes: n,
                n_ctx: 1,
                ..shape
            },
            AttentionShape {
                n_head: n,
                n_ctx: 1,
                ..shape
            },
            AttentionShape {
                head_dim_k: n,
                n_ctx: 1,
                ..shape
            },
            AttentionShape {
                head_dim_v: n,
                n_ctx: 1,
                ..shape
            },
        ] {
            assert!(AttentionWorkspace::allocate(shape).is_err(), "{shape:?}");
        }
    }
    let cache = LayerCache::allocate(2, 64, 80, 65, CacheType::F16).unwrap();
    assert_eq!(cache.capacity(), 128);
    assert!(cache.bytes() >= 2 * 128 * (64 + 80) * 2);
}

#[test]
#[should_panic(expected = "do not fit")]
fn storing_past_the_end_is_refused() {
    let mut cache = empty(&Case { pos0: 63, ..PLAIN });
    let _ = StoreKvJob::new(levels()[0], &mut cache, 63, &[0.0; 128], &[0.0; 128]);
}

#[test]
#[should_panic(expected = "another split")]
fn merging_another_split_is_refused() {
    let case = Case { pos0: 10, ..PLAIN };
    let data = Data::random(&case, &mut Rng(13));
    let cache = data.cache(&case, levels()[0]);
    let (mut workspace, mut out) = (case.workspace(1), case.out());
    let input = case.input(&data.q, &cache);
    serial(&mut AttentionSplitJob::new(
        levels()[0],
        input,
        &mut workspace,
    ));
    let other = AttentionInput { pos0: 9, ..input };
    let _ = AttentionMergeJob::new(levels()[0], other, &mut workspace, &mut out);
}

#[test]
#[should_panic(expected = "allocated for less")]
fn a_small_workspace_is_refused() {
    let case = Case { pos0: 100, ..PLAIN };
    let data = Data::random(&case, &mut Rng(14));
    let cache = data.cache(&case, levels()[0]);
    let mut workspace = Case { pos0: 10, ..PLAIN }.workspace(1);
    let mut out = case.out();
    let input = case.input(&data.q, &cache);
    let _ = AttentionJob::<Direct>::new(levels()[0], input, &mut workspace, &mut out);
}
