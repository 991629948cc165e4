//! Blocks of 32 on tiles.
//!
//! A block's scales apply to its 32 products alone, so every tile product is followed by a scale
//! pass over its sums, which is the larger half of the work: three operations on `f32` (convert,
//! multiply, add) for each sixteen sums, four where there are minimums. To spare the accumulators'
//! way to memory and back, the pass goes through up to [`VISIT`] blocks of each token at once.
//!
//! # A visit
//!
//! `G` groups (two, or one that is left over) times a tile of tokens, through `B` blocks:
//!
//! ```text
//! tiles 0 to 3   sums, of products in turn: block by block, the groups of each
//! tiles 4, 5     activations, of blocks in turn
//! tiles 6, 7     weights, of products in turn
//! ```
//!
//! Between the products of a visit stands the scale pass of the visit before; sums are stored one
//! product late, the last ones by the next visit, so there are two buffers.

use super::super::{Acc, PANEL_BYTES, WideArgs};
use super::unpack::{bytes, sub_i8};
use super::{Ahead, F32, PAIR, Place, Places, end_streams, next_unpacked, vectors};
use crate::amx::Amx;
use crate::amx::tiles::{Config, Tiles};
use crate::format::Shape;
use crate::format::block32::Block32;
use crate::memory::{Plain, cast, cast_mut};
use crate::quantize::Data;
use crate::quantize::tiles::{TILE_TOKENS, Tile32};
use crate::simd::{Avx512, Simd};

/// The most blocks that a scale pass goes through at once.
const VISIT: usize = 4;

/// The most blocks in a panel.
const RUN: usize = 16;

type Int = <Avx512 as Simd>::Int;

/// A block of a group, unpacked.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Panel {
    /// Signed bytes, 32 values of k.
    w: [[u8; 64]; 8],
    d: [f32; 16],
    m: [f32; 16],
}

/// Sums of a visit, by group and block.
type Sums = [[[[i32; 16]; TILE_TOKENS]; VISIT]; PAIR];

/// What a lane works with.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Work {
    panels: [[Panel; RUN]; PAIR],
    /// Of visits in turn.
    sums: [Sums; 2],
    /// Where the scale pass of no visit goes.
    sink: [Acc; TILE_TOKENS],
}

// SAFETY: numbers only; each field's size is a multiple of the alignment, so there is no padding.
unsafe impl Plain for Work {}

const _: () = assert!(size_of::<Work>() <= PANEL_BYTES);

/// Some groups times a batch.
///
/// # Safety
///
/// - The processor has AVX-512's level, and [`Amx::new`] gave out its proof.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) unsafe fn wide<F: Block32>(args: WideArgs<'_>) {
    let WideArgs {
        weights,
        groups,
        x,
        acc,
        panel,
        out,
    } = args;
    let Data::Tiles32(x32) = x.data else {
        unreachable!("kind and tile were checked")
    };
    // SAFETY: the caller's obligations.
    let (s, amx) = unsafe { (vectors(), Amx::assume()) };
    // SAFETY: no other value of the type lives on this thread: products do not nest.
    let tiles = unsafe { Tiles::configure(amx, &Config::K32) };
    let work = &mut cast_mut::<Work>(&mut panel[..size_of::<Work>()])[0];
    let bytes = weights;
    let weights = cast::<F::Block>(weights);
    let (n, tokens) = (x.k() / 32, x.tokens().next_multiple_of(TILE_TOKENS));
    let runs = n.div_ceil(RUN);
    // Runs of about the same length, of whole visits where possible.
    let len = n.div_ceil(VISIT).div_ceil(runs) * VISIT;
    let part = |run: usize| (run * len, len.min(n - run * len));
    for run in 0..runs {
        let (from, len) = part(run);
        for first in (0..groups).step_by(PAIR) {
            let count = PAIR.min(groups - first);
            for g in 0..count {
                let blocks = &weights[(first + g) * n + from..][..len];
                for (block, panel) in blocks.iter().zip(&mut work.panels[g]) {
                    unpack::<F>(s, block, panel);
                }
            }
            let (next, next_run) = next_unpacked(first, groups, run, runs);
            let size = size_of::<F::Block>();
            let ahead = [next, (next + 1).min(groups - 1)].map(|g| {
                let (from, len) = part(next_run);
                Ahead::of(
                    &bytes[(g * n + from) * size..][..len * size],
                    tokens / TILE_TOKENS,
                )
            });
            let pass = Pass {
                s,
                tiles: &tiles,
                work,
                x: x32,
                n,
                from,
                tiles_of_tokens: tokens / TILE_TOKENS,
                places: Places {
                    acc: acc[first * tokens..].as_mut_ptr(),
                    tokens,
                    out: out.group(first),
                    run: (run, runs),
                },
                weights_ahead: ahead,
            };
            // SAFETY: the processor has the features, by the caller's word.
            unsafe { run_all::<F::Shape>(pass, count, len) };
        }
    }
    // What the last run could not leave where it belongs.
    let written = x.tokens() / TILE_TOKENS * TILE_TOKENS;
    for (g, acc) in acc.chunks_exact(tokens).enumerate() {
        let out = out.group(g);
        let from = if out.have(0..written) { written } else { 0 };
        out.write(s, acc, tokens, from..x.tokens());
    }
    end_streams();
}

/// All visits of a run: one function for all formats with minimums, and one for those without.
///
/// # Safety
///
/// - The processor has AVX-512's level; the pass's places are this lane's, for all its tokens.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run_all<H: Shape>(pass: Pass<'_>, groups: usize, len: usize) {
    match (H::HAS_MIN, groups) {
        (false, PAIR) => pass.run::<false, 2>(len),
        (false, _) => pass.run::<false, 1>(len),
        (true, PAIR) => pass.run::<true, 2>(len),
        (true, _) => pass.run::<true, 1>(len),
    }
}

/// Unpacks a block.
#[inline(always)]
fn unpack<F: Block32>(s: Avx512, block: &F::Block, panel: &mut Panel) {
    let chunks = F::chunks(s, block);
    for c in 0..8 {
        let w = if F::Shape::SIGNED {
            s.i8_operand(chunks[c])
        } else {
            sub_i8(s, chunks[c], s.splat_i32(bytes(F::Shape::OFFSET)))
        };
        s.store_bytes(w, &mut panel.w[c]);
    }
    s.store(F::scale(s, block), &mut panel.d);
    if F::Shape::HAS_MIN {
        s.store(F::min(s, block), &mut panel.m);
    }
}

/// A pair of groups times the batch, through a run of blocks.
struct Pass<'a> {
    s: Avx512,
    tiles: &'a Tiles,
    work: &'a mut Work,
    /// `[tiles, n]`.
    x: &'a [Tile32],
    n: usize,
    /// The run's first block.
    from: usize,
    tiles_of_tokens: usize,
    places: Places<'a>,
    /// Weights that are unpacked next.
    weights_ahead: [Ahead; PAIR],
}

/// The visit whose sums are scaled.
#[derive(Clone, Copy)]
struct Behind<'a> {
    x: &'a [Tile32],
    /// Its first block in the panel.
    block: usize,
    /// Of each group.
    places: [Place; PAIR],
}

/// Tokens whose scale pass stands behind the `i`th of `of` products: none behind the first, whose
/// visit begins by storing the last sums that the pass needs.
const fn share(i: usize, of: usize) -> (usize, usize) {
    match (i, of) {
        (_, 1) => (0, TILE_TOKENS),
        (0, _) => (0, 0),
        _ => (TILE_TOKENS * (i - 1) / (of - 1), TILE_TOKENS * i / (of - 1)),
    }
}

impl<'a> Pass<'a> {
    /// The run's `len` blocks for all tokens.
    #[inline(always)]
    fn run<const MIN: bool, const G: usize>(mut self, len: usize) {
        let full = len / VISIT;
        self.visits::<MIN, G, 4>(len, 0, full);
        self.visits::<MIN, G, 2>(len, VISIT * full, len % VISIT / 2);
        self.visits::<MIN, G, 1>(len, len - len % 2, len % 2);
    }

    /// For all tokens, `count` visits of `B` blocks from the panel's block `block` of `len` on.
    #[inline(always)]
    fn visits<const MIN: bool, const G: usize, const B: usize>(
        &mut self,
        len: usize,
        block: usize,
        count: usize,
    ) {
        if count == 0 {
            return;
        }
        let (x, n, from, n_tiles) = (self.x, self.n, self.from, self.tiles_of_tokens);
        let operands = |tile: usize, visit: usize| {
            let block = block + B * visit;
            (&x[tile * n + from + block..][..B], block)
        };
        let mut now = operands(0, 0);
        let mut behind = Behind {
            x: now.0,
            block: now.1,
            places: [Place::sink(&mut self.work.sink); PAIR],
        };
        // SAFETY: sixteen rows of 32 bytes, and eight of 64.
        unsafe {
            self.tiles.load::<4>(now.0[0].q.as_ptr().cast(), 32);
            let w = &self.work.panels[0][block].w;
            self.tiles.load::<6>(w.as_ptr().cast(), 64);
        }
        let mut parity = 0;
        for tile in 0..n_tiles {
            for weights in self.weights_ahead {
                weights.ask(tile);
            }
            for visit in 0..count {
                let tokens = TILE_TOKENS * tile..TILE_TOKENS * (tile + 1);
                let whole = (now.1 == 0, now.1 + B == len);
                let places = [
                    self.places.of(0, tokens.clone(), whole),
                    self.places.of(G - 1, tokens, whole),
                ];
                // The last visit loads for one that does not come.
                let next = if visit + 1 < count {
                    operands(tile, visit + 1)
                } else {
                    operands((tile + 1).min(n_tiles - 1), 0)
                };
                self.visit::<MIN, G, B>(now, next, parity, &behind);
                behind = Behind {
                    x: now.0,
                    block: now.1,
                    places,
                };
                now = next;
                parity = 1 - parity;
            }
        }
        self.end::<MIN, G, B>(1 - parity, &behind);
    }

    /// Stores the last visit's last sums and scales them all.
    #[inline(always)]
    fn end<const MIN: bool, const G: usize, const B: usize>(
        &mut self,
        parity: usize,
        behind: &Behind<'_>,
    ) {
        let (s, tiles) = (self.s, self.tiles);
        // (Places point into the rest of it.)
        let (panels, sums) = (&self.work.panels, &mut self.work.sums);
        let sums = &mut sums[parity];
        // SAFETY: a full tile to sixteen rows of 64 bytes.
        unsafe { store_last::<G, B>(tiles, sums) };
        let scales = Scales::<G, B>::of::<MIN>(s, panels, behind);
        for token in 0..TILE_TOKENS {
            // SAFETY: the places are of so many tokens.
            unsafe { scales.apply::<MIN>(s, sums, token) };
        }
    }

    /// Multiplies `now` while `behind`, the visit before, is scaled.
    #[inline(always)]
    fn visit<const MIN: bool, const G: usize, const B: usize>(
        &mut self,
        now: (&[Tile32], usize),
        next: (&[Tile32], usize),
        parity: usize,
        behind: &Behind<'_>,
    ) {
        const { assert!(matches!(G, 1 | 2) && matches!(B, 1 | 2 | 4)) };
        let (s, tiles) = (self.s, self.tiles);
        // (Places point into the rest of it.)
        let (panels, sums) = (&self.work.panels, &mut self.work.sums);
        let [even, odd] = sums;
        let (sums, sums_behind) = if parity == 0 {
            (even, odd)
        } else {
            (odd, even)
        };
        let scales = Scales::<G, B>::of::<MIN>(s, panels, behind);
        let of = G * B;
        // The `i`th product, with the tiles of the next one and the sums of the one before.
        macro_rules! product {
            ($i:literal, $c:literal, $a:literal, $b:literal, $last:literal, $next_a:literal,
                $next_b:literal) => {
                if $i < of {
                    tiles.zero::<$c>();
                    tiles.dot_i8::<$c, $a, $b>();
                    if $i > 0 {
                        let (block, g) = (($i + of - 1) % of / G, ($i + of - 1) % G);
                        tiles.store::<$last>(sums[g][block].as_mut_ptr().cast(), 64);
                    }
                    let (block, g) = (($i + 1) / G, ($i + 1) % G);
                    let ((x, first), block) = if block < B { (now, block) } else { (next, 0) };
                    let w = &panels[g][first + block].w;
                    if $i + 1 == of {
                        tiles.load::<6>(w.as_ptr().cast(), 64);
                        tiles.load::<4>(x[block].q.as_ptr().cast(), 32);
                    } else {
                        tiles.load::<$next_b>(w.as_ptr().cast(), 64);
                        if g == 0 {
                            tiles.load::<$next_a>(x[block].q.as_ptr().cast(), 32);
                        }
                    }
                    let (from, to) = const { share($i, G * B) };
                    for token in from..to {
                        scales.apply::<MIN>(s, sums_behind, token);
                    }
                }
            };
        }
        // SAFETY: tiles as configured: sums of sixteen rows of 64 bytes, activations of sixteen
        // rows of 32, weights of eight rows of 64; places of as many tokens as are scaled.
        unsafe {
            store_last::<G, B>(tiles, sums_behind);
            product!(0, 0, 4, 6, 3, 4, 7);
            product!(1, 1, 4, 7, 0, 5, 6);
            product!(2, 2, 5, 6, 1, 5, 7);
            product!(3, 3, 5, 7, 2, 4, 6);
            product!(4, 0, 4, 6, 3, 4, 7);
            product!(5, 1, 4, 7, 0, 5, 6);
            product!(6, 2, 5, 6, 1, 5, 7);
            product!(7, 3, 5, 7, 2, 4, 6);
        }
    }
}

/// Stores the sums of a visit's last product.
///
/// # Safety
///
/// - Tiles of sums are configured with sixteen rows of 64 bytes.
#[inline(always)]
unsafe fn store_last<const G: usize, const B: usize>(tiles: &Tiles, sums: &mut Sums) {
    let to = sums[G - 1][B - 1].as_mut_ptr().cast();
    // SAFETY: sixteen rows of 64 bytes.
    unsafe {
        match const { (G * B - 1) % 4 } {
            0 => tiles.store::<0>(to, 64),
            1 => tiles.store::<1>(to, 64),
            _ => tiles.store::<3>(to, 64),
        }
    }
}

/// The scales of a visit, in registers.
struct Scales<'a, const G: usize, const B: usize> {
    x: &'a [Tile32],
    places: [Place; PAIR],
    d: [[F32; B]; G],
    m: [[F32; B]; G],
}

impl<'a, const G: usize, const B: usize> Scales<'a, G, B> {
    #[inline(always)]
    fn of<const MIN: bool>(
        s: Avx512,
        panels: &[[Panel; RUN]; PAIR],
        behind: &Behind<'a>,
    ) -> Scales<'a, G, B> {
        let mut scales = Scales {
            x: &behind.x[..B],
            places: behind.places,
            d: [[s.zero(); B]; G],
            m: [[s.zero(); B]; G],
        };
        for g in 0..G {
            let panels = &panels[g][behind.block..][..B];
            for b in 0..B {
                scales.d[g][b] = s.load(&panels[b].d);
                if MIN {
                    scales.m[g][b] = s.load(&panels[b].m);
                }
            }
        }
        scales
    }

    /// Scales the sums of one token and adds them to its accumulators.
    ///
    /// # Safety
    ///
    /// - The visit's places have such a token.
    #[inline(always)]
    unsafe fn apply<const MIN: bool>(&self, s: Avx512, sums: &Sums, token: usize) {
        let mut f = [s.zero(); G];
        for g in 0..G {
            // SAFETY: the caller's obligation.
            f[g] = unsafe { self.places[g].load(s, token) };
        }
        for b in 0..B {
            let dx = s.splat(self.x[b].d[token]);
            for g in 0..G {
                let sum = s.load_i32(&sums[g][b][token]);
                // With minimums there is more for the multipliers to do.
                let i = if MIN {
                    small_i32_to_f32(s, sum)
                } else {
                    s.i32_to_f32(sum)
                };
                f[g] = s.fma(s.mul(self.d[g][b], dx), i, f[g]);
            }
            if MIN {
                let sum = s.splat(self.x[b].s[token]);
                for g in 0..G {
                    f[g] = s.fma(self.m[g][b], sum, f[g]);
                }
            }
        }
        for g in 0..G {
            // SAFETY: the caller's obligation.
            unsafe { self.places[g].store(s, token, f[g]) };
        }
    }
}

/// Integers below 2^22, of either sign, as `f32`: exactly what [`Simd::i32_to_f32`] makes of them.
///
/// A conversion is work for the unit that the products of tiles keep busy; the sums here are not. In
/// `f32` from 2^23 up to 2^24 the last bit is worth one, so that an integer added to the bits of
/// 1.5 * 2^23 is added to its value.
#[inline(always)]
fn small_i32_to_f32(s: Avx512, i: Int) -> F32 {
    const BASE: f32 = 12_582_912.0;
    let shifted = s.add_i32(i, s.splat_i32(BASE.to_bits() as i32));
    s.sub(s.f32_from_bits(shifted), s.splat(BASE))
}
