//! Products with float weights: one accumulator an output, ascending k, fused.

use super::{Acc, GROUPS, MatmulOps, PANEL_BYTES, TileArgs, WideArgs, WideOps, min};
use crate::format::float::{F32, FloatFormat};
use crate::format::{Pack, pack_group, unpack_row};
use crate::memory::{cast, cast_mut};
use crate::quantize::{ActivationView, Data};
use crate::simd::{Kernel, Simd, entry};
use std::marker::PhantomData;

/// The operations of format `F` at level `S`.
pub(super) const fn ops<S: Simd, F>() -> MatmulOps
where
    F: FloatFormat<Column = <F as Pack>::Packed> + Pack,
{
    MatmulOps {
        t1: entry::<S, Small<F, 1>>,
        t4: entry::<S, Small<F, 4>>,
        t8: entry::<S, Small<F, 8>>,
        wide: WideOps::narrow(entry::<S, Wide<F>>),
        pack: pack_group::<F>,
        unpack: unpack_row::<F>,
    }
}

/// Columns that are loaded to registers before the tokens pass them.
const COLUMNS: usize = 8;

/// How far ahead of their use weights are asked for.
const AHEAD: usize = 2048;

/// Columns in a panel: sixteen f32 each, 16 KiB a group.
const RUN: usize = 256;

const _: () = assert!(GROUPS * RUN * size_of::<[f32; 16]>() <= PANEL_BYTES);

/// The activations of a view: `[tokens, k]`.
#[inline(always)]
fn rows<'a>(x: &ActivationView<'a>) -> &'a [f32] {
    match x.data {
        Data::F32(x) => x,
        _ => unreachable!("kind and tile were checked"),
    }
}

/// Continues the accumulators of `N` tokens through columns `columns`, `x` being the tokens'
/// activations for these.
#[inline(always)]
fn run<S: Simd, F: FloatFormat, const N: usize>(
    s: S,
    columns: &[F::Column],
    x: &[&[f32]],
    acc: &mut [Acc],
) {
    let (x, acc) = (&x[..N], &mut acc[..N]);
    let (columns8, rest) = columns.as_chunks::<COLUMNS>();
    let mut f = [s.zero(); N];
    for t in 0..N {
        f[t] = s.load(&acc[t].0);
    }
    for (i, columns) in columns8.iter().enumerate() {
        let ahead = columns.as_ptr().cast::<u8>().wrapping_add(AHEAD);
        for line in (0..size_of::<F::Column>() * COLUMNS).step_by(64) {
            s.prefetch(ahead.wrapping_add(line));
        }
        let mut w = [s.zero(); COLUMNS];
        for c in 0..COLUMNS {
            w[c] = F::load(s, &columns[c]);
        }
        for t in 0..N {
            let x = &x[t][COLUMNS * i..][..COLUMNS];
            for c in 0..COLUMNS {
                f[t] = s.fma(w[c], s.splat(x[c]), f[t]);
            }
        }
    }
    for (i, column) in rest.iter().enumerate() {
        let w = F::load(s, column);
        for t in 0..N {
            f[t] = s.fma(w, s.splat(x[t][COLUMNS * columns8.len() + i]), f[t]);
        }
    }
    for t in 0..N {
        s.store(f[t], &mut acc[t].0);
    }
}

/// All tokens of a tile, `N` at a time.
#[inline(always)]
fn runs<S: Simd, F: FloatFormat, const T: usize, const N: usize>(
    s: S,
    columns: &[F::Column],
    x: &[&[f32]; T],
    acc: &mut [Acc],
) {
    for (x, acc) in x.chunks_exact(N).zip(acc.chunks_exact_mut(N)) {
        run::<S, F, N>(s, columns, x, acc);
    }
}

/// All tokens of a tile, as many at a time as the level has registers for.
#[inline(always)]
fn tile<S: Simd, F: FloatFormat, const T: usize>(
    s: S,
    columns: &[F::Column],
    x: &[&[f32]; T],
    acc: &mut [Acc],
) {
    match min(T, S::TOKENS) {
        1 => runs::<S, F, T, 1>(s, columns, x, acc),
        4 => runs::<S, F, T, 4>(s, columns, x, acc),
        8 => runs::<S, F, T, 8>(s, columns, x, acc),
        _ => unreachable!(),
    }
}

/// One group times a tile of exactly `T` tokens.
struct Small<F, const T: usize>(PhantomData<F>);

impl<F: FloatFormat, const T: usize> Kernel for Small<F, T> {
    type Args<'a> = TileArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, TileArgs { weights, x, acc }: TileArgs<'_>) {
        let (k, x) = (x.k(), rows(x));
        let mut tokens: [&[f32]; T] = [&[]; T];
        for t in 0..T {
            tokens[t] = &x[t * k..][..k];
        }
        tile::<S, F, T>(s, cast::<F::Column>(weights), &tokens, acc);
    }
}

/// Some groups times a batch.
struct Wide<F>(PhantomData<F>);

impl<F: FloatFormat> Kernel for Wide<F> {
    type Args<'a> = WideArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(
        s: S,
        WideArgs {
            weights,
            groups,
            x,
            acc,
            panel,
            out,
        }: WideArgs<'_>,
    ) {
        let (k, n_tokens, x) = (x.k(), x.tokens(), rows(x));
        let weights = cast::<F::Column>(weights);
        let panels = &mut cast_mut::<[f32; 16]>(&mut panel[..GROUPS * RUN * 64])[..];
        let tiles = n_tokens.div_ceil(8);
        acc.fill(Acc::ZERO);
        for from in (0..k).step_by(RUN) {
            let len = RUN.min(k - from);
            for g in 0..groups {
                for (column, to) in weights[g * k + from..][..len]
                    .iter()
                    .zip(&mut panels[g * RUN..])
                {
                    s.store(F::load(s, column), to);
                }
            }
            for t in 0..tiles {
                // Where the last tile lacks tokens the last one stands in; its copies are dropped.
                let mut tokens: [&[f32]; 8] = [&[]; 8];
                for i in 0..8 {
                    tokens[i] = &x[(8 * t + i).min(n_tokens - 1) * k + from..][..len];
                }
                for g in 0..groups {
                    let acc = &mut acc[8 * (g * tiles + t)..][..8];
                    s.enter::<PanelTile>((&panels[g * RUN..][..len], &tokens, acc));
                }
            }
        }
        out.write(s, acc, 8 * tiles, 0..n_tokens);
    }
}

/// A panel times a tile of eight tokens: one function for all formats.
struct PanelTile;

impl Kernel for PanelTile {
    type Args<'a> = (&'a [[f32; 16]], &'a [&'a [f32]; 8], &'a mut [Acc]);
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, (panel, x, acc): Self::Args<'_>) {
        tile::<S, F32, 8>(s, panel, x, acc);
    }
}
