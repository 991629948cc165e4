//! The two products of attention on one block: queries with keys, weights with values.
//!
//! Both multiply pairs of sixteen-bit integers into exact sums of 32 bits, and keep a tile of these
//! in registers: some queries by some vectors. Layouts are those of [`super::kernels`].

use std::marker::PhantomData;

use super::element::{AsIntegers, STEPS, parts};
use super::integers::{Queries, halves};
use super::kernels::{Pairs, Row, Span};
use super::{BLOCK, QUERIES};
use crate::memory::cast;
use crate::simd::{Kernel, Simd};
use std::ops::Range;

/// Calls `$f` with the const parameter `N = $n`, which is 1 to [`QUERIES`].
macro_rules! with_count {
    ($n:expr, $f:ident::<$($generic:ty),*>($($arg:expr),*)) => {
        match $n {
            1 => $f::<$($generic),*, 1>($($arg),*),
            2 => $f::<$($generic),*, 2>($($arg),*),
            3 => $f::<$($generic),*, 3>($($arg),*),
            4 => $f::<$($generic),*, 4>($($arg),*),
            5 => $f::<$($generic),*, 5>($($arg),*),
            n => {
                assert_eq!(n, QUERIES);
                $f::<$($generic),*, QUERIES>($($arg),*)
            }
        }
    };
}
pub(super) use with_count;

/// A part of a block, to ask for while working on something else.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    start: *const u8,
    /// 64, or 0 when there is nothing to ask for: then every line is one that is near anyway.
    line: usize,
}

impl Ahead {
    /// Asks for the part's steps at once.
    #[inline(always)]
    pub(super) fn new<S: Simd, T>(s: S, ahead: &[u8], near: &[T]) -> Ahead {
        let ahead = if ahead.is_empty() {
            Ahead {
                start: near.as_ptr().cast(),
                line: 0,
            }
        } else {
            Ahead {
                start: ahead.as_ptr().cast(),
                line: 64,
            }
        };
        for line in 0..STEPS / 64 {
            s.prefetch_far(ahead.line(line));
        }
        Ahead {
            start: ahead.line(STEPS / 64),
            ..ahead
        }
    }

    /// Line `i`, which may lie past the end: asking for it does no harm.
    #[inline(always)]
    pub(super) fn line(self, i: usize) -> *const u8 {
        self.start.wrapping_add(i * self.line)
    }
}

// ---- where integers come from ----

/// How products find a block's integers.
pub(crate) trait Source: 'static {
    /// A head's part of a block.
    type View<'a>: Copy;
    /// What sixteen keys share over a run of pairs.
    type KeyScale<S: Simd>: Copy;
    /// What the block's values share over a run of vectors.
    type ValueScales: Copy;
    /// Pairs of a key's elements that share a scale.
    const RUN: usize;

    fn view<'a>(bytes: &'a [u8], inverses: &'a Row<f32>) -> Self::View<'a>;
    /// Pairs of integers, in vectors.
    fn vectors(view: Self::View<'_>) -> usize;

    fn key_scale<S: Simd>(
        s: S,
        view: Self::View<'_>,
        run: usize,
        vector: usize,
    ) -> Self::KeyScale<S>;
    /// Elements `2 pair` and `2 pair + 1` of the sixteen keys of a row's vector.
    fn key_pair<S: Simd>(
        s: S,
        view: Self::View<'_>,
        pair: usize,
        vector: usize,
        scale: Self::KeyScale<S>,
    ) -> S::Int;

    /// The scales that vector `vector` of a value has.
    fn value_scales<S: Simd>(s: S, view: Self::View<'_>, run: usize) -> Self::ValueScales;
    /// Which scales vector `vector` of a value has.
    fn run_of(vector: usize) -> usize;
    /// Vector `vector`, of `vectors`, of the values at positions `2 pair` and `2 pair + 1`.
    fn value_pair<S: Simd>(
        s: S,
        view: Self::View<'_>,
        vectors: usize,
        pair: usize,
        vector: usize,
        scales: &Self::ValueScales,
    ) -> S::Int;
}

/// A block as it is stored.
pub(crate) struct Stored<E>(PhantomData<E>);

/// [`Stored`]'s view.
pub(crate) struct StoredView<'a, E: AsIntegers> {
    numbers: &'a [[E::Of; 16]],
    scales: &'a [Row<u16>],
    /// Of the positions' steps.
    inverses: &'a Row<f32>,
}

impl<E: AsIntegers> Clone for StoredView<'_, E> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: AsIntegers> Copy for StoredView<'_, E> {}

impl<E: AsIntegers> Source for Stored<E> {
    type View<'a> = StoredView<'a, E>;
    type KeyScale<S: Simd> = (E::Scale<S>, S::F32);
    type ValueScales = E::Scales;
    const RUN: usize = E::RUN / 2;

    #[inline(always)]
    fn view<'a>(bytes: &'a [u8], inverses: &'a Row<f32>) -> StoredView<'a, E> {
        let (numbers, scales) = parts::<E>(bytes);
        StoredView {
            numbers,
            scales,
            inverses,
        }
    }
    #[inline(always)]
    fn vectors(view: StoredView<'_, E>) -> usize {
        view.numbers.len() / 2
    }
    #[inline(always)]
    fn key_scale<S: Simd>(
        s: S,
        view: StoredView<'_, E>,
        run: usize,
        vector: usize,
    ) -> (E::Scale<S>, S::F32) {
        (
            E::scale(s, view.scales, run, vector),
            s.load(&view.inverses[vector]),
        )
    }
    #[inline(always)]
    fn key_pair<S: Simd>(
        s: S,
        view: StoredView<'_, E>,
        pair: usize,
        vector: usize,
        (scale, inverse): (E::Scale<S>, S::F32),
    ) -> S::Int {
        const ROW: usize = BLOCK / 16;
        let rows: &[[E::Of; 16]; 2 * ROW] = view.numbers[2 * ROW * pair..]
            .first_chunk()
            .expect("two rows");
        let low = E::key(s, &rows[vector], scale);
        let high = E::key(s, &rows[ROW + vector], scale);
        s.pair_i16(halves(s, low, inverse), halves(s, high, inverse))
    }
    #[inline(always)]
    fn value_scales<S: Simd>(s: S, view: StoredView<'_, E>, run: usize) -> E::Scales {
        E::scales(s, view.scales, run)
    }
    #[inline(always)]
    fn run_of(vector: usize) -> usize {
        vector * 16 / E::RUN
    }
    #[inline(always)]
    fn value_pair<S: Simd>(
        s: S,
        view: StoredView<'_, E>,
        vectors: usize,
        pair: usize,
        vector: usize,
        scales: &E::Scales,
    ) -> S::Int {
        let inverses = &view.inverses.as_flattened()[2 * pair..][..2];
        let row = |i: usize| &view.numbers[(2 * pair + i) * vectors + vector];
        let low = E::value(s, row(0), scales, 2 * pair);
        let high = E::value(s, row(1), scales, 2 * pair + 1);
        s.pair_i16(
            halves(s, low, s.splat(inverses[0])),
            halves(s, high, s.splat(inverses[1])),
        )
    }
}

/// A block that was repacked as pairs: [`super::repack`].
pub(crate) struct Packed;

impl Source for Packed {
    type View<'a> = &'a [[i32; 16]];
    type KeyScale<S: Simd> = ();
    type ValueScales = ();
    const RUN: usize = usize::MAX;

    #[inline(always)]
    fn view<'a>(bytes: &'a [u8], _: &'a Row<f32>) -> &'a [[i32; 16]] {
        cast(bytes)
    }
    #[inline(always)]
    fn vectors(view: &[[i32; 16]]) -> usize {
        view.len()
    }
    #[inline(always)]
    fn key_scale<S: Simd>(_: S, _: &[[i32; 16]], _: usize, _: usize) {}
    #[inline(always)]
    fn key_pair<S: Simd>(s: S, view: &[[i32; 16]], pair: usize, vector: usize, (): ()) -> S::Int {
        let row: &[[i32; 16]; BLOCK / 16] = view[BLOCK / 16 * pair..].first_chunk().expect("a row");
        s.load_i32(&row[vector])
    }
    #[inline(always)]
    fn value_scales<S: Simd>(_: S, _: &[[i32; 16]], _: usize) {}
    #[inline(always)]
    fn run_of(_: usize) -> usize {
        0
    }
    #[inline(always)]
    fn value_pair<S: Simd>(
        s: S,
        view: &[[i32; 16]],
        vectors: usize,
        pair: usize,
        vector: usize,
        (): &(),
    ) -> S::Int {
        s.load_i32(&view[pair * vectors + vector])
    }
}

// ---- scores ----

/// Dots of a panel's queries with a block's 64 keys.
pub(crate) struct ScoresArgs<'a> {
    /// Pairs of integers, `[head_dim / 2][n]`.
    pub(super) panel: &'a [i32],
    /// What they were made of.
    pub(super) queries: Queries<'a>,
    /// The head's keys, as the source has them.
    pub(super) k: &'a [u8],
    /// Of the positions' steps.
    pub(super) inverses: &'a Row<f32>,
    pub(super) steps: &'a Row<f32>,
    /// Sums times steps, `[n]`.
    pub(super) scores: &'a mut [Row<f32>],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u8],
}

impl ScoresArgs<'_> {
    /// The same once more.
    #[inline(always)]
    pub(super) fn again(&mut self) -> ScoresArgs<'_> {
        ScoresArgs {
            scores: self.scores,
            ..*self
        }
    }
}

/// [`ScoresArgs`]' kernel.
pub(crate) struct Scores<K>(PhantomData<K>);

/// Scores of the panel's `N` queries from `query` on, `P` of the row's vectors at a time.
#[inline(always)]
fn scores_tile<S: Simd, K: Source, const N: usize, const P: usize>(
    s: S,
    args: ScoresArgs<'_>,
    query: usize,
) {
    let n = args.scores.len();
    let keys = K::view(args.k, args.inverses);
    let pairs = K::vectors(keys) / (BLOCK / 16);
    let lines = args.ahead.len().saturating_sub(STEPS) / (64 * pairs);
    let scores: &mut [Row<f32>; N] = args.scores[query..].first_chunk_mut().expect("N scores");
    let ahead = Ahead::new(s, args.ahead, args.panel);
    for first in (0..BLOCK / 16).step_by(P) {
        let mut acc = [[s.zero_i32(); P]; N];
        // A plain loop: where an iterator's `next` is not inlined, the call spills all tiles.
        let (mut pair, mut run) = (0, 0);
        while pair < pairs {
            let mut scale = [K::key_scale(s, keys, run, first); P];
            for j in 1..P {
                scale[j] = K::key_scale(s, keys, run, first + j);
            }
            let end = pairs.min(pair.saturating_add(K::RUN));
            while pair < end {
                for line in 0..lines {
                    s.prefetch_far(ahead.line(lines * pair + line));
                }
                let q: &[i32; N] = args.panel[pair * n + query..]
                    .first_chunk()
                    .expect("N queries");
                let mut k = [s.zero_i32(); P];
                for j in 0..P {
                    k[j] = K::key_pair(s, keys, pair, first + j, scale[j]);
                }
                for i in 0..N {
                    let q = s.splat_i32(q[i]);
                    for j in 0..P {
                        acc[i][j] = s.dot_i16(acc[i][j], k[j], q);
                    }
                }
                pair += 1;
            }
            run += 1;
        }
        for j in 0..P {
            let step = s.load(&args.steps[first + j]);
            for i in 0..N {
                let score = s.mul(s.i32_to_f32(acc[i][j]), step);
                s.store(score, &mut scores[i][first + j]);
            }
        }
    }
}

/// The width of a tile of `n` queries, by the registers there are: `n` times as many accumulators (of
/// one register with 512 bits, of two with 256), so many keys, one query.
#[inline(always)]
pub(super) const fn width<S: Simd>(n: usize) -> usize {
    if S::ONE_BY_ONE {
        1
    } else if S::MANY_REGISTERS || n == 1 {
        4
    } else if n == 2 {
        2
    } else {
        1
    }
}

/// Scores of all `N` queries.
#[inline(always)]
fn scores_of<S: Simd, K: Source, const N: usize>(s: S, args: ScoresArgs<'_>) {
    assert_eq!(args.scores.len(), N);
    match width::<S>(N) {
        4 => scores_tile::<S, K, N, 4>(s, args, 0),
        2 => scores_tile::<S, K, N, 2>(s, args, 0),
        _ => scores_tile::<S, K, N, 1>(s, args, 0),
    }
}

impl<K: Source> Kernel for Scores<K> {
    type Args<'a> = ScoresArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Self::Args<'_>) {
        let n = args.scores.len();
        let pairs = K::vectors(K::view(args.k, args.inverses)) / (BLOCK / 16);
        assert_eq!(args.panel.len(), pairs * n);
        if S::ONE_BY_ONE {
            for i in 0..n {
                scores_tile::<S, K, 1, 1>(s, args.again(), i);
            }
        } else {
            with_count!(n, scores_of::<S, K>(s, args));
        }
    }
}

// ---- values ----

/// The weighted sums of a block's value rows.
pub(crate) struct ValuesArgs<'a> {
    /// `[n]`
    pub(super) weights: &'a [Pairs],
    /// The weights' steps, `[n]`.
    pub(super) steps: &'a [f32],
    /// What the integers were made of, `[n]`, and where of each query they are.
    pub(super) weighted: &'a [Row<f32>],
    pub(super) spans: &'a [Span],
    /// Pairs of positions: all others have no weight.
    pub(super) pairs: Range<usize>,
    /// The head's values, as the source has them.
    pub(super) v: &'a [u8],
    /// Of the positions' steps.
    pub(super) inverses: &'a Row<f32>,
    /// `[n][vectors]`
    pub(super) o: &'a mut [[f32; 16]],
    /// Memory that will be read next.
    pub(super) ahead: &'a [u8],
}

/// [`ValuesArgs`]' kernel.
pub(crate) struct Values<V>(PhantomData<V>);

/// The sums for the `P` vectors from `first` on, of the `N` queries from `query` on.
#[inline(always)]
fn values_tile<S: Simd, V: Source, const N: usize, const P: usize>(
    s: S,
    args: &mut ValuesArgs<'_>,
    query: usize,
    vectors: usize,
    first: usize,
) {
    let v = V::view(args.v, args.inverses);
    let ahead = Ahead::new(s, args.ahead, args.weights);
    let mut scales = [V::value_scales(s, v, V::run_of(first)); P];
    for j in 1..P {
        scales[j] = V::value_scales(s, v, V::run_of(first + j));
    }
    let weights: &[Pairs; N] = args.weights[query..].first_chunk().expect("N weights");
    let mut acc = [[s.zero_i32(); P]; N];
    // Spread over the tiles of a block.
    let lines = args.ahead.len().saturating_sub(STEPS) / 64 * P / (vectors * BLOCK / 2);
    let mut pair = args.pairs.start;
    while pair < args.pairs.end.min(BLOCK / 2) {
        for line in 0..lines {
            s.prefetch_far(ahead.line((first / P * (BLOCK / 2) + pair) * lines + line));
        }
        let mut values = [s.zero_i32(); P];
        for j in 0..P {
            values[j] = V::value_pair(s, v, vectors, pair, first + j, &scales[j]);
        }
        for i in 0..N {
            let w = s.splat_i32(weights[i][pair]);
            for j in 0..P {
                acc[i][j] = s.dot_i16(acc[i][j], values[j], w);
            }
        }
        pair += 1;
    }
    for i in 0..N {
        let step = s.splat(args.steps[query + i]);
        let o: &mut [[f32; 16]; P] = args.o[(query + i) * vectors + first..]
            .first_chunk_mut()
            .expect("P vectors");
        for j in 0..P {
            s.store(s.mul(s.i32_to_f32(acc[i][j]), step), &mut o[j]);
        }
    }
}

/// All vectors of `N` queries.
#[inline(always)]
fn values_of<S: Simd, V: Source, const N: usize>(
    s: S,
    args: &mut ValuesArgs<'_>,
    query: usize,
    vectors: usize,
) {
    let mut first = 0;
    if width::<S>(N) == 4 {
        while first + 4 <= vectors {
            values_tile::<S, V, N, 4>(s, args, query, vectors, first);
            first += 4;
        }
    } else if width::<S>(N) == 2 {
        while first + 2 <= vectors {
            values_tile::<S, V, N, 2>(s, args, query, vectors, first);
            first += 2;
        }
    }
    while first < vectors {
        values_tile::<S, V, N, 1>(s, args, query, vectors, first);
        first += 1;
    }
}

impl<V: Source> Kernel for Values<V> {
    type Args<'a> = ValuesArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, mut args: Self::Args<'_>) {
        let n = args.weights.len();
        let vectors = V::vectors(V::view(args.v, args.inverses)) / (BLOCK / 2);
        assert!(args.steps.len() == n && args.o.len() == n * vectors);
        if S::ONE_BY_ONE {
            for i in 0..n {
                values_of::<S, V, 1>(s, &mut args, i, vectors);
            }
        } else {
            with_count!(n, values_of::<S, V>(s, &mut args, 0, vectors));
        }
    }
}
