//! Caches that hold fewer positions than they count.

use super::*;

/// A window that begins and ends within blocks.
const WINDOWED: Case = Case {
    n_head: 4,
    n_kv: 2,
    window: Some(100),
    ..PLAIN
};

/// A cache for `case` that holds its window and a batch of `batch` tokens.
fn short(case: &Case, batch: usize, kernels: Kernels) -> LayerCache {
    let n_held = case.window.expect("a window") + batch;
    let shape = CacheShape {
        n_ctx: 1000,
        n_held,
        ..shape(case)
    };
    LayerCache::allocate(kernels, shape).unwrap()
}

#[test]
fn a_window_and_a_batch_are_enough() {
    for types in pairs() {
        for (batch, kernels) in [1, 7, 64, 150]
            .into_iter()
            .flat_map(|n| levels().into_iter().map(move |l| (n, l)))
        {
            let all = Case {
                pos0: 500,
                types,
                ..WINDOWED
            };
            let data = Data::random(&all, &mut Rng(21));
            let mut cache = short(&all, batch, kernels);
            let whole = data.cache(&all, kernels);
            assert!(cache.bytes() < whole.bytes() && cache.capacity() >= all.end());
            let (k_row, v_row) = (all.n_kv * all.dim_k, all.n_kv * all.dim_v);
            let mut pos0 = 0;
            while pos0 < all.end() {
                let tokens = batch.min(all.end() - pos0);
                let end = pos0 + tokens;
                let (k, v) = (
                    &data.k[pos0 * k_row..end * k_row],
                    &data.v[pos0 * v_row..end * v_row],
                );
                serial(&mut StoreKvJob::new(&mut cache, pos0, k, v));
                let case = Case {
                    pos0,
                    tokens,
                    ..all
                };
                let q = Rng(pos0 as u64 + 1).units(tokens * case.n_head * case.dim_k);
                let attend = |cache: &LayerCache| {
                    let (mut workspace, mut out) = (case.workspace(1), case.out());
                    let input = case.input(&q, cache);
                    serial(&mut AttentionJob::<Repacked>::new(
                        kernels,
                        input,
                        &mut workspace,
                        &mut out,
                    ));
                    out
                };
                assert_same("with less held", &attend(&cache), &attend(&whole));
                pos0 = end;
            }
            // The beginning is gone; what a window before the end sees is not.
            let first = cache.first_held(all.end());
            assert!(first > 0 && first <= all.end() - 100);
        }
    }
}

#[test]
#[should_panic(expected = "do not fit a cache that holds 101 at once")]
fn storing_more_than_is_held_is_refused() {
    let mut cache = short(&WINDOWED, 1, levels()[0]);
    let rows = vec![0.0; 200 * 2 * 64];
    let _ = StoreKvJob::new(&mut cache, 0, &rows, &rows);
}

#[test]
#[should_panic(expected = "look back to 121")]
fn attending_to_more_than_is_held_is_refused() {
    let case = Case {
        pos0: 220,
        tokens: 80,
        ..WINDOWED
    };
    let cache = short(&case, 1, levels()[0]);
    let q = vec![0.0; case.tokens * case.n_head * case.dim_k];
    let (mut workspace, mut out) = (case.workspace(1), case.out());
    let _ = AttentionJob::<Direct>::new(
        levels()[0],
        case.input(&q, &cache),
        &mut workspace,
        &mut out,
    );
}
