//! Super-blocks on tiles.
//!
//! Weights times scales are taken apart into digits of eight bits ([`Digits`]), so that a
//! super-block's products add up in the tile unit, once for each digit. Minimums are one more
//! product: the sums of sixteen activations (in two digits of bfloat16) times the minimums of these
//! sixteen.
//!
//! # A step
//!
//! One group times `T` tiles of tokens (two, or one that is left over), through one super-block:
//!
//! ```text
//! tiles 0 to 3   sums of tokens 0 high, 0 low, 1 high, 1 low
//! tile 4         activations, of either tile of tokens in turn
//! tiles 5, 6     high and low digits of 64 values of k
//! tile 7         sums of minimums
//! ```
//!
//! Between its products stands the scale pass of the step before, whose sums are stored when this
//! step begins. (The minimums' sums are stored in the middle of their own step, so they have two
//! buffers.) Tiles are loaded one product ahead; a step ends by loading what the next begins with.

use super::super::{Acc, PANEL_BYTES, WideArgs};
use super::digits::{Digits, OnTiles};
use super::unpack::both_halves_bf16;
use super::{Ahead, F32, PAIR, Place, Places, TileBytes, end_streams, next_unpacked, vectors};
use crate::amx::Amx;
use crate::amx::tiles::{Config, Tiles};
use crate::format::Shape;
use crate::memory::{Plain, cast, cast_mut};
use crate::quantize::Data;
use crate::quantize::tiles::{TILE_TOKENS, Tile256};
use crate::simd::{Avx512, Simd};

/// A super-block of a group, unpacked.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Panel {
    /// High and low digits of 64 values of k each.
    digits: [[TileBytes; 4]; 2],
    /// In row `j` the minimums of values `16j..16j + 16`, as bfloat16, twice.
    mins: [[i32; 16]; 16],
    d: [f32; 16],
    m: [f32; 16],
}

/// Sums as the tile unit leaves them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Sums {
    /// High and low, of each tile of tokens.
    digits: [[[[i32; 16]; 16]; 2]; 2],
    /// Of minimums, of each tile of tokens; of steps in turn.
    mins: [[[[f32; 16]; 16]; 2]; 2],
}

/// What a lane works with.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Work {
    panels: [Panel; PAIR],
    sums: Sums,
    /// Where the scale pass of no step goes.
    sink: [Acc; 2 * TILE_TOKENS],
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
pub(super) unsafe fn wide<F: OnTiles>(args: WideArgs<'_>) {
    let WideArgs {
        weights,
        groups,
        x,
        acc,
        panel,
        out,
    } = args;
    let Data::Tiles256(x256) = x.data else {
        unreachable!("kind and tile were checked")
    };
    // SAFETY: the caller's obligations.
    let (s, amx) = unsafe { (vectors(), Amx::assume()) };
    // SAFETY: no other value of the type lives on this thread: products do not nest.
    let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
    let work = &mut cast_mut::<Work>(&mut panel[..size_of::<Work>()])[0];
    // Numbers that other formats left could be denormal, which is slow.
    work.sums.mins = [[[[0.0; 16]; 16]; 2]; 2];
    let bytes = weights;
    let weights = cast::<F::Block>(weights);
    let (n, n_tiles) = (x.k() / 256, x.tokens().div_ceil(TILE_TOKENS));
    let tokens = n_tiles * TILE_TOKENS;
    for block in 0..n {
        for first in (0..groups).step_by(PAIR) {
            let count = PAIR.min(groups - first);
            for g in 0..count {
                unpack::<F>(s, &weights[(first + g) * n + block], &mut work.panels[g]);
            }
            let (next, at) = next_unpacked(first, groups, block, n);
            let size = size_of::<F::Block>();
            let ahead = [next, (next + 1).min(groups - 1)].map(|g| {
                let steps = count * n_tiles.div_ceil(2);
                Ahead::of(&bytes[(g * n + at) * size..][..size], steps)
            });
            let pass = Pass {
                s,
                tiles: &tiles,
                work,
                x: x256,
                n,
                block,
                places: Places {
                    acc: acc[first * tokens..].as_mut_ptr(),
                    tokens,
                    out: out.group(first),
                    run: (block, n),
                },
                weights_ahead: ahead,
            };
            // SAFETY: the processor has the features, by the caller's word.
            unsafe { run_all::<F::Digits, F::Shape>(pass, count, n_tiles) };
        }
    }
    // What the last run could not leave where it belongs.
    let unit = TILE_TOKENS * (2 - n_tiles % 2);
    let written = x.tokens() / unit * unit;
    for (g, acc) in acc.chunks_exact(tokens).enumerate() {
        let out = out.group(g);
        let from = if out.have(0..written) { written } else { 0 };
        out.write(s, acc, tokens, from..x.tokens());
    }
    end_streams();
}

/// All tiles of tokens: one function for all formats of a shape.
///
/// # Safety
///
/// - The processor has AVX-512's level; the pass's places are this lane's, for all its tokens.
#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
unsafe fn run_all<D: Digits, H: Shape>(mut pass: Pass<'_>, count: usize, n_tiles: usize) {
    if count == PAIR {
        pass.run::<D, H, 2, 2>(0, n_tiles / 2);
        pass.run::<D, H, 1, 2>(n_tiles / 2 * 2, n_tiles % 2);
    } else {
        pass.run::<D, H, 2, 1>(0, n_tiles / 2);
        pass.run::<D, H, 1, 1>(n_tiles / 2 * 2, n_tiles % 2);
    }
}

/// Unpacks a super-block.
#[inline(always)]
fn unpack<F: OnTiles>(s: Avx512, block: &F::Block, panel: &mut Panel) {
    let scales = F::scale_words(s, block);
    let scale = |j: usize| s.byte_i32(scales[j / 4], (j % 4) as u32);
    for p in 0..8 {
        let chunks = F::chunks(s, block, p);
        for half in 0..2 {
            let j = p * F::Shape::SCALES / 8 + half * (F::Shape::SCALES / 16);
            let factors = F::Digits::factors(s, scale(j));
            for c in 4 * half..4 * half + 4 {
                let digits = F::Digits::digits::<F::Shape>(s, chunks[c], factors);
                let (tile, row) = (p / 2, 8 * (p % 2) + c);
                s.store_bytes(digits[0], &mut panel.digits[0][tile][row]);
                if F::Digits::TWO {
                    s.store_bytes(digits[1], &mut panel.digits[1][tile][row]);
                }
            }
        }
    }
    s.store(F::scale(s, block), &mut panel.d);
    if F::Shape::HAS_MIN {
        let words = F::min_words(s, block);
        for row in 0..16 {
            let j = row * F::Shape::SCALES / 16;
            let min = s.byte_i32(words[j / 4], (j % 4) as u32);
            s.store_i32(both_halves_bf16(s, min), &mut panel.mins[row]);
        }
        s.store(F::min(s, block), &mut panel.m);
    }
}

/// A pair of groups times the batch, through one super-block.
struct Pass<'a> {
    s: Avx512,
    tiles: &'a Tiles,
    work: &'a mut Work,
    /// `[tiles, n]`.
    x: &'a [Tile256],
    n: usize,
    block: usize,
    places: Places<'a>,
    /// Weights that are unpacked next.
    weights_ahead: [Ahead; PAIR],
}

/// What one step multiplies.
#[derive(Clone, Copy)]
struct Operands<'a, const T: usize> {
    x: [&'a Tile256; T],
    panel: usize,
}

/// What the scale pass of a step needs, besides its sums.
#[derive(Clone, Copy)]
struct Behind<'a, const T: usize> {
    x: [&'a Tile256; T],
    d: F32,
    m: F32,
    place: Place,
}

impl<'a> Pass<'a> {
    /// `G` groups times `units` times `T` tiles of tokens from tile `first` on.
    #[inline(always)]
    fn run<D: Digits, H: Shape, const T: usize, const G: usize>(
        &mut self,
        first: usize,
        units: usize,
    ) {
        if units == 0 {
            return;
        }
        let s = self.s;
        let (x, n, block) = (self.x, self.n, self.block);
        let operands = |unit: usize| -> Operands<'a, T> {
            let mut tiles = [&x[0]; T];
            for t in 0..T {
                tiles[t] = &x[(first + T * unit + t) * n + block];
            }
            Operands { x: tiles, panel: 0 }
        };
        let mut now = operands(0);
        let mut behind = Behind {
            x: now.x,
            d: s.zero(),
            m: s.zero(),
            place: Place::sink(&mut self.work.sink),
        };
        self.begin::<D, H, T>(now);
        for unit in 0..units {
            for g in 0..G {
                let tokens = TILE_TOKENS * (first + T * unit);
                let tokens = tokens..tokens + TILE_TOKENS * T;
                for weights in self.weights_ahead {
                    weights.ask(G * (first / 2 + unit) + g);
                }
                let place = self.places.of(g, tokens, (true, true));
                // The last step loads for one that does not come.
                let next = if g + 1 < G {
                    Operands {
                        panel: g + 1,
                        ..now
                    }
                } else {
                    operands((unit + 1).min(units - 1))
                };
                self.step::<D, H, T>(now, next, (G * unit + g) % 2, &behind);
                let panel = &self.work.panels[g];
                behind = Behind {
                    x: now.x,
                    d: s.load(&panel.d),
                    m: s.load(&panel.m),
                    place,
                };
                now = next;
            }
        }
        self.end::<D, H, T>((G * units - 1) % 2, &behind);
    }

    /// Loads what the first step begins with.
    #[inline(always)]
    fn begin<D: Digits, H: Shape, const T: usize>(&self, first: Operands<'_, T>) {
        let panel = &self.work.panels[first.panel];
        // SAFETY: full tiles from sixteen rows of 64 bytes.
        unsafe {
            self.tiles.load::<4>(first.x[0].q[0].as_ptr().cast(), 64);
            self.tiles.load::<5>(panel.digits[0][0].as_ptr().cast(), 64);
            if D::TWO {
                self.tiles.load::<6>(panel.digits[1][0].as_ptr().cast(), 64);
            }
        }
    }

    /// Stores the last step's sums and scales them.
    #[inline(always)]
    fn end<D: Digits, H: Shape, const T: usize>(&mut self, parity: usize, behind: &Behind<'_, T>) {
        let to = &mut self.work.sums.digits;
        // SAFETY: full tiles to sixteen rows of 64 bytes.
        unsafe {
            self.tiles.store::<0>(to[0][0].as_mut_ptr().cast(), 64);
            self.tiles.store::<1>(to[0][1].as_mut_ptr().cast(), 64);
            self.tiles.store::<2>(to[1][0].as_mut_ptr().cast(), 64);
            self.tiles.store::<3>(to[1][1].as_mut_ptr().cast(), 64);
        }
        for token in 0..T * TILE_TOKENS {
            // SAFETY: the place is of so many tokens.
            unsafe { scale::<D, H, T>(self.s, &self.work.sums, parity, behind, token) };
        }
    }

    /// Multiplies `now` while `behind`, the step before, is scaled.
    #[inline(always)]
    fn step<D: Digits, H: Shape, const T: usize>(
        &mut self,
        now: Operands<'_, T>,
        next: Operands<'_, T>,
        parity: usize,
        behind: &Behind<'_, T>,
    ) {
        const { assert!(T == 1 || T == 2) };
        let (s, tiles) = (self.s, self.tiles);
        // (Places point into the rest of it.)
        let (panels, sums) = (&self.work.panels, &mut self.work.sums);
        let (panel, panel_next) = (&panels[now.panel], &panels[next.panel]);
        let (x0, x1) = (now.x[0], now.x[T - 1]);
        let two = D::TWO;
        let mins = H::HAS_MIN;
        // One sixteenth of the scale pass of the step before.
        macro_rules! scale {
            ($($i:expr),*) => {$(
                for token in T * $i..T * ($i + 1) {
                    scale::<D, H, T>(s, sums, 1 - parity, behind, token);
                }
            )*};
        }
        macro_rules! load {
            ($tile:literal, $from:expr) => {
                tiles.load::<$tile>($from.as_ptr().cast(), 64)
            };
        }
        macro_rules! store {
            ($tile:literal, $to:expr) => {
                tiles.store::<$tile>($to.as_mut_ptr().cast(), 64)
            };
        }
        macro_rules! high {
            ($c:literal) => {
                if D::SIGNED {
                    tiles.dot_i8::<$c, 4, 5>()
                } else {
                    tiles.dot_u8::<$c, 4, 5>()
                }
            };
        }
        // All products of 64 values of k; at their end tiles 5 and 6 have the next digits.
        macro_rules! products {
            ($k:literal, $next_panel:expr, $next_k:literal, $next_x:expr,
                [$($a:expr),*], [$($b:expr),*], [$($c:expr),*], [$($d:expr),*]) => {
                high!(0);
                scale!($($a),*);
                if two {
                    tiles.dot_u8::<1, 4, 6>();
                }
                scale!($($b),*);
                if T == 2 {
                    load!(4, x1.q[$k]);
                    high!(2);
                }
                load!(5, $next_panel.digits[0][$next_k]);
                scale!($($c),*);
                if two {
                    if T == 2 {
                        tiles.dot_u8::<3, 4, 6>();
                    }
                    load!(6, $next_panel.digits[1][$next_k]);
                }
                load!(4, $next_x.q[$next_k]);
                scale!($($d),*);
            };
        }
        // SAFETY: full tiles, from and to sixteen rows of 64 bytes; the place is of as many tokens
        // as are scaled.
        unsafe {
            store!(0, sums.digits[0][0]);
            tiles.zero::<0>();
            high!(0);
            if two {
                store!(1, sums.digits[0][1]);
                tiles.zero::<1>();
                tiles.dot_u8::<1, 4, 6>();
            }
            if T == 2 {
                load!(4, x1.q[0]);
                store!(2, sums.digits[1][0]);
                tiles.zero::<2>();
                high!(2);
            }
            if mins {
                load!(5, panel.mins);
            } else {
                load!(5, panel.digits[0][1]);
            }
            if two && T == 2 {
                store!(3, sums.digits[1][1]);
                tiles.zero::<3>();
                tiles.dot_u8::<3, 4, 6>();
            }
            if mins {
                load!(4, x0.sums);
                if T == 2 {
                    load!(6, x1.sums);
                }
                tiles.zero::<7>();
                tiles.dot_bf16::<7, 4, 5>();
                load!(4, x0.q[1]);
                scale!(0);
                store!(7, sums.mins[parity][0]);
                if T == 2 {
                    tiles.zero::<7>();
                    tiles.dot_bf16::<7, 6, 5>();
                }
                load!(5, panel.digits[0][1]);
            } else {
                load!(4, x0.q[1]);
                scale!(0);
            }
            if two {
                load!(6, panel.digits[1][1]);
            }
            scale!(1);
            products!(1, panel, 2, x0, [2], [3], [4], [5]);
            if mins && T == 2 {
                store!(7, sums.mins[parity][1]);
            }
            products!(2, panel, 3, x0, [6], [7], [8], [9]);
            products!(3, panel_next, 0, next.x[0], [10, 11], [12, 13], [14], [15]);
        }
    }
}

/// Scales the sums of one token of the step `behind` and adds them to its accumulators.
///
/// # Safety
///
/// - The step's place has such a token.
#[inline(always)]
unsafe fn scale<D: Digits, H: Shape, const T: usize>(
    s: Avx512,
    sums: &Sums,
    parity: usize,
    behind: &Behind<'_, T>,
    token: usize,
) {
    let (t, i) = (token / TILE_TOKENS, token % TILE_TOKENS);
    let mut total = s.load_i32(&sums.digits[t][0][i]);
    if D::TWO {
        let low = s.load_i32(&sums.digits[t][1][i]);
        total = s.add_i32(s.shl(total, D::SHIFT), low);
    }
    let dx = s.splat(behind.x[t].d[i]);
    let (product, total) = (s.mul(behind.d, dx), s.i32_to_f32(total));
    // SAFETY: the caller's obligation.
    let mut f = unsafe { behind.place.load(s, token) };
    f = if D::NEGATED {
        s.fnma(product, total, f)
    } else {
        s.fma(product, total, f)
    };
    if H::HAS_MIN {
        let min = s.mul(behind.m, dx);
        f = s.fnma(min, s.load(&sums.mins[parity][t][i]), f);
    }
    // SAFETY: the caller's obligation.
    unsafe { behind.place.store(s, token, f) };
}
