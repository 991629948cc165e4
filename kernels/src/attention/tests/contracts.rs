//! What is refused.

use super::*;

#[test]
fn impossible_caches_and_workspaces_are_errors() {
    let with = |n_kv_heads, head_dim_k, head_dim_v, n_ctx, (type_k, type_v)| CacheShape {
        n_kv_heads,
        head_dim_k,
        head_dim_v,
        n_ctx,
        n_held: n_ctx,
        type_k,
        type_v,
    };
    let allocate =
        |h, k, v, n| LayerCache::allocate(levels()[0], with(h, k, v, n, PLAIN.types)).map(|_| ());
    assert!(matches!(
        allocate(0, 64, 64, 1),
        Err(CacheError::Empty { .. })
    ));
    assert!(matches!(
        allocate(1, 0, 64, 1),
        Err(CacheError::Empty { .. })
    ));
    for n in [usize::MAX, usize::MAX / 64, 1 << 50] {
        for types in pairs() {
            for shape in [
                with(8, 128, 128, n, types),
                with(n / 32 * 32, 128, 128, 64, types),
                with(8, n / 32 * 32, 128, 64, types),
                with(8, 128, n / 32 * 32, 64, types),
            ] {
                let found = LayerCache::allocate(levels()[0], shape).map(|_| ());
                assert!(
                    matches!(found, Err(CacheError::OutOfMemory(_))),
                    "{shape:?}"
                );
            }
        }
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
    let cache = LayerCache::allocate(levels()[0], with(2, 64, 80, 65, PLAIN.types)).unwrap();
    assert_eq!(cache.capacity(), 128);
    assert!(cache.bytes() >= 2 * 128 * (64 + 80) * 2);
}

#[test]
#[should_panic(expected = "do not fit")]
fn storing_past_the_end_is_refused() {
    let mut cache = empty(&Case { pos0: 63, ..PLAIN }, levels()[0]);
    let _ = StoreKvJob::new(&mut cache, 63, &[0.0; 128], &[0.0; 128]);
}

#[test]
fn a_cache_of_another_level_is_refused() {
    let all = levels();
    let data = Data::random(&PLAIN, &mut Rng(15));
    let cache = data.cache(&PLAIN, all[0]);
    for &kernels in &all[1..] {
        let attend = || {
            let (mut workspace, mut out) = (PLAIN.workspace(1), PLAIN.out());
            let input = PLAIN.input(&data.q, &cache);
            let _ = AttentionJob::<Repacked>::new(kernels, input, &mut workspace, &mut out);
        };
        std::panic::catch_unwind(attend).expect_err("another level's tiles");
    }
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
