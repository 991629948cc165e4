//! Products with formats of 256-weight super-blocks.
//!
//! For each super-block, ascending, and each token (integers exact):
//!
//! ```text
//! total = Σ_j sc_j * Σ_{k in j} u * q
//! sums  = Σ_j (m_j or sc_j) * Σ_{k in j} q
//! acc   = fma(d * dx, total as f32, acc); acc = fma(-(dmin * dx), sums as f32, acc)   or
//! acc   = fma(d * dx, (total - offset * sums) as f32, acc)
//! ```

use super::{Acc, GROUPS, K_RUN, MatmulOps, PANEL_BYTES, TileArgs, WideArgs, WideOps, dot, min};
use crate::format::superblock::SuperBlock;
use crate::format::{Pack, Shape, pack_group, unpack_row};
use crate::memory::{Plain, cast, cast_mut};
use crate::quantize::{ActivationView, Data, Head256, Q8x256, Quads256};
use crate::simd::{Kernel, Simd, entry};
use std::marker::PhantomData;

/// The operations of format `F` at level `S`.
pub(super) const fn ops<S: Simd, F>() -> MatmulOps
where
    F: SuperBlock<Block = <F as Pack>::Packed> + Pack,
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
const AHEAD: usize = 4608;

/// A super-block as a product reads it: packed, or unpacked to a panel.
trait Source: 'static {
    /// What a product does with it.
    type Shape: Shape;
    /// Whether super-blocks come from memory (else from the first-level cache).
    const STREAMED: bool;
    /// One super-block of sixteen rows.
    type Block: Plain;
    /// What is made of a super-block's scales once.
    type Scales<S: Simd>: Copy;
    fn scales<S: Simd>(s: S, block: &Self::Block) -> Self::Scales<S>;
    /// The scale of sub-block `j`.
    fn sub_scale<S: Simd>(s: S, block: &Self::Block, scales: &Self::Scales<S>, j: usize) -> S::Int;
    /// The factors of the activations' pair of sums `i`: minimums or, without these, scales.
    fn pair<S: Simd>(s: S, block: &Self::Block, scales: &Self::Scales<S>, i: usize) -> S::Int;
    fn chunks<S: Simd>(s: S, block: &Self::Block, p: usize) -> [S::Int; 8];
    fn scale<S: Simd>(s: S, block: &Self::Block) -> S::F32;
    fn min<S: Simd>(s: S, block: &Self::Block) -> S::F32;
}

/// Super-blocks as they are packed.
struct Direct<F>(PhantomData<F>);

/// The scales of a packed super-block, taken apart.
#[derive(Clone, Copy)]
struct Apart<S: Simd> {
    scales: [S::Int; 16],
    pairs: [S::Int; 8],
}

impl<F: SuperBlock> Source for Direct<F> {
    type Shape = F::Shape;
    const STREAMED: bool = true;
    type Block = F::Block;
    type Scales<S: Simd> = Apart<S>;
    #[inline(always)]
    fn scales<S: Simd>(s: S, block: &F::Block) -> Apart<S> {
        let words = F::scale_words(s, block);
        let factors = if F::Shape::HAS_MIN {
            F::min_words(s, block)
        } else {
            words
        };
        let mut apart = Apart {
            scales: [s.zero_i32(); 16],
            pairs: [s.zero_i32(); 8],
        };
        for i in 0..F::Shape::SCALES / 4 {
            for b in 0..4 {
                apart.scales[4 * i + b] = s.byte_i32(words[i], b as u32);
            }
            apart.pairs[2 * i] = s.even_bytes_i16(factors[i]);
            apart.pairs[2 * i + 1] = s.odd_bytes_i16(factors[i]);
        }
        apart
    }
    #[inline(always)]
    fn sub_scale<S: Simd>(_: S, _: &F::Block, apart: &Apart<S>, j: usize) -> S::Int {
        apart.scales[j]
    }
    #[inline(always)]
    fn pair<S: Simd>(_: S, _: &F::Block, apart: &Apart<S>, i: usize) -> S::Int {
        apart.pairs[i]
    }
    #[inline(always)]
    fn chunks<S: Simd>(s: S, block: &F::Block, p: usize) -> [S::Int; 8] {
        F::chunks(s, block, p)
    }
    #[inline(always)]
    fn scale<S: Simd>(s: S, block: &F::Block) -> S::F32 {
        F::scale(s, block)
    }
    #[inline(always)]
    fn min<S: Simd>(s: S, block: &F::Block) -> S::F32 {
        F::min(s, block)
    }
}

/// A super-block unpacked: what the wide route keeps in cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Panel {
    w: [[[u8; 64]; 8]; 8],
    scales: [[i32; 16]; 16],
    pairs: [[i32; 16]; 8],
    d: [f32; 16],
    m: [f32; 16],
}

// SAFETY: numbers only, and their sizes fill the alignment: no padding.
unsafe impl Plain for Panel {}

const _: () = assert!(GROUPS * (K_RUN / 256) * size_of::<Panel>() <= PANEL_BYTES);

/// Super-blocks of shape `H` after unpacking.
struct Unpacked<H>(PhantomData<H>);

impl<H: Shape> Source for Unpacked<H> {
    type Shape = H;
    const STREAMED: bool = false;
    type Block = Panel;
    type Scales<S: Simd> = ();
    #[inline(always)]
    fn scales<S: Simd>(_: S, _: &Panel) {}
    #[inline(always)]
    fn sub_scale<S: Simd>(s: S, panel: &Panel, (): &(), j: usize) -> S::Int {
        s.load_i32(&panel.scales[j])
    }
    #[inline(always)]
    fn pair<S: Simd>(s: S, panel: &Panel, (): &(), i: usize) -> S::Int {
        s.load_i32(&panel.pairs[i])
    }
    #[inline(always)]
    fn chunks<S: Simd>(s: S, panel: &Panel, p: usize) -> [S::Int; 8] {
        let mut out = [s.zero_i32(); 8];
        for c in 0..8 {
            out[c] = s.load_bytes(&panel.w[p][c]);
        }
        out
    }
    #[inline(always)]
    fn scale<S: Simd>(s: S, panel: &Panel) -> S::F32 {
        s.load(&panel.d)
    }
    #[inline(always)]
    fn min<S: Simd>(s: S, panel: &Panel) -> S::F32 {
        s.load(&panel.m)
    }
}

/// The activations of a view.
#[inline(always)]
fn blocks<'a>(x: &ActivationView<'a>) -> Q8x256<'a> {
    match x.data {
        Data::Q8x256(x) => x,
        _ => unreachable!("kind and tile were checked"),
    }
}

/// `Σ w * q` over chunks `from..to` of piece `p`, for each token from `first` on.
#[inline(always)]
fn dots<S: Simd, H: Shape, const T: usize, const N: usize>(
    s: S,
    w: &[S::Int; 8],
    (q, first, p): (&[Quads256; T], usize, usize),
    (from, to): (usize, usize),
) -> [S::Int; N] {
    let mut i = [s.zero_i32(); N];
    for c in from..to {
        for t in 0..N {
            i[t] = dot::<S, H>(s, i[t], w[c], q[first + t][p][c]);
        }
    }
    i
}

/// Continues the accumulators of tokens `first..first + N` of a tile of `T` through `blocks`.
#[inline(always)]
fn run<S: Simd, W: Source, const T: usize, const N: usize>(
    s: S,
    blocks: &[W::Block],
    q: &[[Quads256; T]],
    head: &[[Head256; T]],
    first: usize,
    acc: &mut [Acc],
) {
    let n = blocks.len();
    let (q, head, acc) = (&q[..n], &head[..n], &mut acc[first..first + N]);
    let mut f = [s.zero(); N];
    for t in 0..N {
        f[t] = s.load(&acc[t].0);
    }
    for b in 0..n {
        let block = &blocks[b];
        let scales = W::scales(s, block);
        let mut total = [s.zero_i32(); N];
        for p in 0..8 {
            if W::STREAMED {
                // An eighth of a super-block's lines a piece: a burst would fill the line buffers.
                let lines = size_of::<W::Block>().div_ceil(8 * 64);
                let ahead = (&raw const *block)
                    .cast::<u8>()
                    .wrapping_add(AHEAD + 64 * lines * p);
                for line in 0..lines {
                    s.prefetch(ahead.wrapping_add(64 * line));
                }
            }
            let w = W::chunks(s, block, p);
            if W::Shape::SCALES == 8 {
                let scale = W::sub_scale(s, block, &scales, p);
                let i: [_; N] = dots::<S, W::Shape, T, N>(s, &w, (&q[b], first, p), (0, 8));
                for t in 0..N {
                    total[t] = s.add_i32(total[t], s.mul_i32(i[t], scale));
                }
            } else {
                for half in 0..2 {
                    let scale = W::sub_scale(s, block, &scales, 2 * p + half);
                    let chunks = (4 * half, 4 * half + 4);
                    let i: [_; N] = dots::<S, W::Shape, T, N>(s, &w, (&q[b], first, p), chunks);
                    for t in 0..N {
                        total[t] = s.add_i32(total[t], s.mul_i32(i[t], scale));
                    }
                }
            }
        }
        let offset = if W::Shape::SIGNED {
            S::I8_BIAS
        } else {
            W::Shape::OFFSET
        };
        let d = W::scale(s, block);
        for t in 0..N {
            let head = &head[b][first + t];
            let dx = s.splat(head.d);
            let mut sums = s.zero_i32();
            if W::Shape::HAS_MIN || offset != 0 {
                let of: &[i32] = if W::Shape::SCALES == 8 {
                    &head.sums32
                } else {
                    &head.sums16
                };
                for i in 0..W::Shape::SCALES / 2 {
                    let pair = W::pair(s, block, &scales, i);
                    sums = s.dot_i16(sums, pair, s.splat_i32(of[i]));
                }
            }
            if W::Shape::HAS_MIN {
                f[t] = s.fma(s.mul(d, dx), s.i32_to_f32(total[t]), f[t]);
                let m = s.mul(W::min(s, block), dx);
                f[t] = s.fnma(m, s.i32_to_f32(sums), f[t]);
            } else {
                let product = s.sub_i32(total[t], s.mul_i32(sums, s.splat_i32(offset)));
                f[t] = s.fma(s.mul(d, dx), s.i32_to_f32(product), f[t]);
            }
        }
    }
    for t in 0..N {
        s.store(f[t], &mut acc[t].0);
    }
}

/// All tokens of a tile, `N` at a time.
#[inline(always)]
fn runs<S: Simd, W: Source, const T: usize, const N: usize>(
    s: S,
    blocks: &[W::Block],
    q: &[[Quads256; T]],
    head: &[[Head256; T]],
    acc: &mut [Acc],
) {
    for first in (0..T).step_by(N) {
        run::<S, W, T, N>(s, blocks, q, head, first, acc);
    }
}

/// All tokens of a tile, as many at a time as the level has registers for.
#[inline(always)]
fn tile<S: Simd, W: Source, const T: usize>(
    s: S,
    blocks: &[W::Block],
    q: &[[Quads256; T]],
    head: &[[Head256; T]],
    acc: &mut [Acc],
) {
    match min(T, S::TOKENS) {
        1 => runs::<S, W, T, 1>(s, blocks, q, head, acc),
        4 => runs::<S, W, T, 4>(s, blocks, q, head, acc),
        8 => runs::<S, W, T, 8>(s, blocks, q, head, acc),
        _ => unreachable!(),
    }
}

/// One group times a tile of exactly `T` tokens.
struct Small<F, const T: usize>(PhantomData<F>);

impl<F: SuperBlock, const T: usize> Kernel for Small<F, T> {
    type Args<'a> = TileArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, TileArgs { weights, x, acc }: TileArgs<'_>) {
        let x = blocks(x);
        let (q, head) = (x.q.as_chunks::<T>().0, x.head.as_chunks::<T>().0);
        tile::<S, Direct<F>, T>(s, cast::<F::Block>(weights), q, head, acc);
    }
}

/// Some groups times a batch.
struct Wide<F>(PhantomData<F>);

impl<F: SuperBlock> Kernel for Wide<F> {
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
        const RUN: usize = K_RUN / 256;
        let n = x.k() / 256;
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
        &'a [[Quads256; 8]],
        &'a [[Head256; 8]],
        &'a mut [Acc],
    );
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, (panel, q, head, acc): Self::Args<'_>) {
        tile::<S, Unpacked<H>, 8>(s, panel, q, head, acc);
    }
}

/// Unpacks super-blocks to a panel.
#[inline(always)]
fn unpack<S: Simd, F: SuperBlock>(s: S, blocks: &[F::Block], panel: &mut [Panel]) {
    for (block, panel) in blocks.iter().zip(panel) {
        for p in 0..8 {
            let w = F::chunks(s, block, p);
            for c in 0..8 {
                s.store_bytes(w[c], &mut panel.w[p][c]);
            }
        }
        let apart = Direct::<F>::scales(s, block);
        for j in 0..F::Shape::SCALES {
            s.store_i32(apart.scales[j], &mut panel.scales[j]);
        }
        for i in 0..F::Shape::SCALES / 2 {
            s.store_i32(apart.pairs[i], &mut panel.pairs[i]);
        }
        s.store(F::scale(s, block), &mut panel.d);
        s.store(F::min(s, block), &mut panel.m);
    }
}
