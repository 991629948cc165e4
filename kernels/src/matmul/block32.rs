//! Products with formats of 32-weight blocks.
//!
//! For each block, ascending, and each token:
//!
//! ```text
//! i   = Σ w * q over 32 values, exact        (eight dot-product instructions for sixteen rows)
//! acc = fma(dw * dx, i as f32, acc)
//! acc = fma(mw, s, acc)                       when the format has minimums
//! ```

use super::{Acc, GROUPS, K_RUN, MatmulOps, PANEL_BYTES, TileArgs, WideArgs, WideOps, dot, min};
use crate::format::block32::Block32;
use crate::format::{Pack, Shape, pack_group, unpack_row};
use crate::memory::{Plain, cast, cast_mut};
use crate::quantize::{ActivationView, Data, Head32, Q8x32, Quads32};
use crate::simd::{Kernel, Simd, entry};
use std::marker::PhantomData;

/// The operations of format `F` at level `S`.
pub(super) const fn ops<S: Simd, F>() -> MatmulOps
where
    F: Block32<Block = <F as Pack>::Packed> + Pack,
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

/// How far ahead of their use weights are asked for.
const AHEAD: usize = 2048;

/// A block unpacked: what the wide route keeps in cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Panel {
    w: [[u8; 64]; 8],
    d: [f32; 16],
    m: [f32; 16],
}

// SAFETY: numbers only, and their sizes fill the alignment: no padding.
unsafe impl Plain for Panel {}

const _: () = assert!(GROUPS * (K_RUN / 32) * size_of::<Panel>() <= PANEL_BYTES);

/// Blocks of shape `H` after unpacking.
struct Unpacked<H>(PhantomData<H>);

impl<H: Shape> Block32 for Unpacked<H> {
    type Block = Panel;
    type Shape = H;
    const STREAMED: bool = false;
    #[inline(always)]
    fn chunks<S: Simd>(s: S, block: &Panel) -> [S::Int; 8] {
        let mut out = [s.zero_i32(); 8];
        for c in 0..8 {
            out[c] = s.load_bytes(&block.w[c]);
        }
        out
    }
    #[inline(always)]
    fn scale<S: Simd>(s: S, block: &Panel) -> S::F32 {
        s.load(&block.d)
    }
    #[inline(always)]
    fn min<S: Simd>(s: S, block: &Panel) -> S::F32 {
        s.load(&block.m)
    }
}

/// The activations of a view.
#[inline(always)]
fn blocks<'a>(x: &ActivationView<'a>) -> Q8x32<'a> {
    match x.data {
        Data::Q8x32(x) => x,
        _ => unreachable!("kind and tile were checked"),
    }
}

/// Continues the accumulators of tokens `first..first + N` of a tile of `T` through `blocks`.
#[inline(always)]
fn run<S: Simd, F: Block32, const T: usize, const N: usize>(
    s: S,
    blocks: &[F::Block],
    q: &[[Quads32; T]],
    head: &[[Head32; T]],
    first: usize,
    acc: &mut [Acc],
) {
    let n = blocks.len();
    let (q, head, acc) = (&q[..n], &head[..n], &mut acc[first..first + N]);
    let mut f = [s.zero(); N];
    for t in 0..N {
        f[t] = s.load(&acc[t].0);
    }
    let offset = if F::Shape::SIGNED {
        S::I8_BIAS
    } else {
        F::Shape::OFFSET
    };
    for b in 0..n {
        let ahead = (&raw const blocks[b]).cast::<u8>().wrapping_add(AHEAD);
        if F::STREAMED {
            for line in (0..size_of::<F::Block>()).step_by(64) {
                s.prefetch(ahead.wrapping_add(line));
            }
        }
        let w = F::chunks(s, &blocks[b]);
        let d = F::scale(s, &blocks[b]);
        let m = F::min(s, &blocks[b]);
        let (q, head) = (&q[b], &head[b]);
        let mut i = [s.zero_i32(); N];
        for t in 0..N {
            i[t] = s.splat_i32(head[first + t].start(offset));
        }
        for c in 0..8 {
            for t in 0..N {
                i[t] = dot::<S, F::Shape>(s, i[t], w[c], q[first + t][c]);
            }
        }
        for t in 0..N {
            let head = &head[first + t];
            f[t] = s.fma(s.mul(d, s.splat(head.d)), s.i32_to_f32(i[t]), f[t]);
            if F::Shape::HAS_MIN {
                f[t] = s.fma(m, s.splat(head.s), f[t]);
            }
        }
    }
    for t in 0..N {
        s.store(f[t], &mut acc[t].0);
    }
}

/// All tokens of a tile, `N` at a time.
#[inline(always)]
fn runs<S: Simd, F: Block32, const T: usize, const N: usize>(
    s: S,
    blocks: &[F::Block],
    q: &[[Quads32; T]],
    head: &[[Head32; T]],
    acc: &mut [Acc],
) {
    for first in (0..T).step_by(N) {
        run::<S, F, T, N>(s, blocks, q, head, first, acc);
    }
}

/// All tokens of a tile, as many at a time as the level has registers for.
#[inline(always)]
fn tile<S: Simd, F: Block32, const T: usize>(
    s: S,
    blocks: &[F::Block],
    q: &[[Quads32; T]],
    head: &[[Head32; T]],
    acc: &mut [Acc],
) {
    match min(T, S::TOKENS) {
        1 => runs::<S, F, T, 1>(s, blocks, q, head, acc),
        4 => runs::<S, F, T, 4>(s, blocks, q, head, acc),
        8 => runs::<S, F, T, 8>(s, blocks, q, head, acc),
        _ => unreachable!(),
    }
}

/// One group times a tile of exactly `T` tokens.
struct Small<F, const T: usize>(PhantomData<F>);

impl<F: Block32, const T: usize> Kernel for Small<F, T> {
    type Args<'a> = TileArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, TileArgs { weights, x, acc }: TileArgs<'_>) {
        let x = blocks(x);
        let (q, head) = (x.q.as_chunks::<T>().0, x.head.as_chunks::<T>().0);
        tile::<S, F, T>(s, cast::<F::Block>(weights), q, head, acc);
    }
}

/// Some groups times a batch.
struct Wide<F>(PhantomData<F>);

impl<F: Block32> Kernel for Wide<F> {
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
        const RUN: usize = K_RUN / 32;
        let n = x.k() / 32;
        let (n_tokens, x) = (x.tokens(), blocks(x));
        let (q, head) = (x.q.as_chunks::<8>().0, x.head.as_chunks::<8>().0);
        let weights = cast::<F::Block>(weights);
        let panels = &mut cast_mut::<Panel>(&mut panel[..GROUPS * RUN * size_of::<Panel>()])[..];
        let tiles = q.len() / n;
        acc.fill(Acc::ZERO);
        for from in (0..n).step_by(RUN) {
            let len = RUN.min(n - from);
            for g in 0..groups {
                unpack::<S, F>(
                    s,
                    &weights[g * n + from..][..len],
                    &mut panels[g * RUN..][..len],
                );
            }
            for t in 0..tiles {
                let (q, head) = (&q[t * n + from..][..len], &head[t * n + from..][..len]);
                for g in 0..groups {
                    let panel = &panels[g * RUN..][..len];
                    let acc = &mut acc[8 * (g * tiles + t)..][..8];
                    s.enter::<PanelTile<F::Shape>>((panel, q, head, acc));
                }
            }
        }
        out.write(s, acc, 8 * tiles, 0..n_tokens);
    }
}

/// A panel times a tile of eight tokens: one function for all formats of a shape.
struct PanelTile<H>(PhantomData<H>);

impl<H: Shape> Kernel for PanelTile<H> {
    type Args<'a> = (
        &'a [Panel],
        &'a [[Quads32; 8]],
        &'a [[Head32; 8]],
        &'a mut [Acc],
    );
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, (panel, q, head, acc): Self::Args<'_>) {
        tile::<S, Unpacked<H>, 8>(s, panel, q, head, acc);
    }
}

/// Unpacks blocks to a panel.
#[inline(always)]
fn unpack<S: Simd, F: Block32>(s: S, blocks: &[F::Block], panel: &mut [Panel]) {
    for (block, panel) in blocks.iter().zip(panel) {
        let w = F::chunks(s, block);
        for c in 0..8 {
            s.store_bytes(w[c], &mut panel.w[c]);
        }
        s.store(F::scale(s, block), &mut panel.d);
        s.store(F::min(s, block), &mut panel.m);
    }
}
