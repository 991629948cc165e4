//! Activations: f32 rows to the 8-bit blocks that quantized weights are multiplied with.
//!
//! # Arithmetic
//!
//! Blocks of 32 ([`ActivationKind::Q8x32`], ggml's Q8_0 and Q8_1 in one), of values x:
//!
//! ```text
//! amax = max |x|, compared as unsigned integers with the sign bit cleared: no order matters,
//!        and a NaN is larger than infinity
//! d0   = amax / 127                      d = f16(d0)
//! id   = amax == 0 ? 0 : 127 / amax
//! q    = round_half_even(x * id) when that is within -127..=127, else (overflow, NaN) -127
//! s    = f16(d0 * Σ q)
//! ```
//!
//! Blocks of 256 ([`ActivationKind::Q8x256`], ggml's Q8_K up to a sign that cancels):
//!
//! ```text
//! is = amax == 0 ? 0 : 127 / amax        d = amax == 0 ? 0 : 1 / is        q as above, with is
//! ```
//!
//! with the sums of q over 16 and over 32 values. `f16()` is rounding to half precision, halves
//! to even. `Σ q` is an exact integer.
//!
//! # Layout
//!
//! Tokens are taken in tiles of 1, 4 or 8, as the matmul that follows takes them: for each block of
//! k, the tile's tokens lie side by side. So a matmul walks one pointer, not eight. Where the wide
//! route runs on AMX it takes sixteen tokens, in a form of their own ([`tiles`]). Tokens that the
//! last tile lacks are zero.

use crate::format::ActivationKind;
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::matmul::Tile;
use crate::memory::{AllocError, HugeBuffer, Plain, cast, cast_mut};
use crate::simd::Entry;
use std::marker::PhantomData;

mod kernels;
pub(crate) mod tiles;

pub(crate) use kernels::Table;
use kernels::{Quantize32, Quantize256, Rows};
use tiles::{QuantizeTiles32, QuantizeTiles256, TILE_TOKENS, Tile32, Tile256, TileRows};

/// Tokens that lie side by side for the wide route, where it does not run on AMX.
pub(crate) const WIDE_TOKENS: usize = 8;

/// 32 quantized values: eight words of four consecutive signed bytes, the first the lowest.
pub(crate) type Quads32 = [i32; 8];

/// 256 quantized values.
pub(crate) type Quads256 = [Quads32; 8];

/// What goes with 32 quantized values.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Head32 {
    /// The scale.
    pub(crate) d: f32,
    /// The scaled sum, which minimums are multiplied with.
    pub(crate) s: f32,
    /// The sum times -8, -16 and -128: what a product with offset weights starts from.
    pub(crate) minus: [i32; 3],
}

// SAFETY: five four-byte numbers without padding.
unsafe impl Plain for Head32 {}

impl Head32 {
    /// The start of a product with weights that are `offset` too large.
    #[inline(always)]
    pub(crate) fn start(&self, offset: i32) -> i32 {
        match offset {
            0 => 0,
            8 => self.minus[0],
            16 => self.minus[1],
            128 => self.minus[2],
            _ => unreachable!(),
        }
    }
}

/// What goes with 256 quantized values.
///
/// Sums are pairs of 16-bit numbers, in the order in which scales come out of packed words:
/// element `2i` is blocks `4i` (low half) and `4i + 2`, element `2i + 1` is `4i + 1` and
/// `4i + 3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Head256 {
    /// The scale.
    pub(crate) d: f32,
    /// Sums of 16 values (at most 16 * 127).
    pub(crate) sums16: [i32; 8],
    /// Sums of 32 values (at most 32 * 127).
    pub(crate) sums32: [i32; 4],
}

// SAFETY: thirteen four-byte numbers without padding.
unsafe impl Plain for Head256 {}

/// Buffers for one batch of quantized activations of either kind, reused from step to step.
#[derive(Debug)]
pub struct Activations {
    /// Quantized values, both kinds.
    q: HugeBuffer<Quads32>,
    head32: HugeBuffer<Head32>,
    head256: HugeBuffer<Head256>,
    /// Tiles of either kind; memory that is never touched at levels without.
    tiles: HugeBuffer,
    max_tokens: usize,
    max_k: usize,
    held: Option<Held>,
}

/// What the buffers hold.
#[derive(Clone, Copy, Debug)]
struct Held {
    kind: ActivationKind,
    tile: usize,
    tokens: usize,
    k: usize,
}

impl Activations {
    /// Buffers for up to `max_tokens` rows of up to `max_k` values.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(max_tokens: usize, max_k: usize) -> Result<Activations, AllocError> {
        let too_many = AllocError { bytes: usize::MAX };
        // Every tile size of these layouts divides 8, so this holds the padded tiles of each.
        let padded = max_tokens.checked_next_multiple_of(8).ok_or(too_many)?;
        let blocks = |len: usize| max_k.div_ceil(len).checked_mul(padded).ok_or(too_many);
        let tiles = max_tokens.div_ceil(TILE_TOKENS);
        let bytes = |len: usize, of_one: usize| {
            let blocks = max_k.div_ceil(len).checked_mul(tiles);
            blocks.and_then(|n| n.checked_mul(of_one)).ok_or(too_many)
        };
        let bytes32 = bytes(32, size_of::<Tile32>())?;
        let bytes256 = bytes(256, size_of::<Tile256>())?;
        Ok(Activations {
            q: HugeBuffer::zeroed(blocks(256)?.checked_mul(8).ok_or(too_many)?)?,
            head32: HugeBuffer::zeroed(blocks(32)?)?,
            head256: HugeBuffer::zeroed(blocks(256)?)?,
            tiles: HugeBuffer::zeroed(bytes32.max(bytes256))?,
            max_tokens,
            max_k,
            held: None,
        })
    }

    /// What the last [`QuantizeJob`] made.
    ///
    /// # Panics
    ///
    /// When there was none.
    pub fn view(&self) -> ActivationView<'_> {
        let Held {
            kind,
            tile,
            tokens,
            k,
        } = self.held.expect("nothing is quantized yet");
        let blocks = k / kind.block_len() * tokens.next_multiple_of(tile);
        let tiles = blocks / TILE_TOKENS;
        let data = match kind {
            ActivationKind::F32 => unreachable!("a QuantizeJob quantizes"),
            ActivationKind::Q8x32 if tile == TILE_TOKENS => {
                Data::Tiles32(cast(&self.tiles[..tiles * size_of::<Tile32>()]))
            }
            ActivationKind::Q8x256 if tile == TILE_TOKENS => {
                Data::Tiles256(cast(&self.tiles[..tiles * size_of::<Tile256>()]))
            }
            ActivationKind::Q8x32 => Data::Q8x32(Q8x32 {
                q: &self.q[..blocks],
                head: &self.head32[..blocks],
            }),
            ActivationKind::Q8x256 => {
                let q = self.q[..8 * blocks].as_chunks().0;
                Data::Q8x256(Q8x256 {
                    q,
                    head: &self.head256[..blocks],
                })
            }
        };
        ActivationView {
            tokens,
            k,
            tile,
            data,
        }
    }
}

/// A batch of activations in the form that some matmul takes, `[tokens, k]`.
#[derive(Clone, Copy)]
pub struct ActivationView<'a> {
    pub(crate) tokens: usize,
    pub(crate) k: usize,
    /// Tokens side by side; 0 for unquantized rows, which fit every tile.
    pub(crate) tile: usize,
    pub(crate) data: Data<'a>,
}

/// The values of a view.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a> {
    /// `[tokens, k]`, row-major.
    F32(&'a [f32]),
    Q8x32(Q8x32<'a>),
    Q8x256(Q8x256<'a>),
    /// `[tiles, k / 32]`.
    Tiles32(&'a [Tile32]),
    /// `[tiles, k / 256]`.
    Tiles256(&'a [Tile256]),
}

/// `[tiles, k / 32, tile]` blocks.
#[derive(Clone, Copy)]
pub(crate) struct Q8x32<'a> {
    pub(crate) q: &'a [Quads32],
    pub(crate) head: &'a [Head32],
}

/// `[tiles, k / 256, tile]` blocks.
#[derive(Clone, Copy)]
pub(crate) struct Q8x256<'a> {
    pub(crate) q: &'a [Quads256],
    pub(crate) head: &'a [Head256],
}

impl<'a> ActivationView<'a> {
    /// Unquantized rows `[tokens, k]`, row-major: for matrices of F32, F16 and BF16.
    ///
    /// # Panics
    ///
    /// When `x` is not `tokens * k` values.
    pub fn f32(x: &'a [f32], tokens: usize, k: usize) -> ActivationView<'a> {
        assert_eq!(Some(x.len()), tokens.checked_mul(k), "x is not [tokens, k]");
        ActivationView {
            tokens,
            k,
            tile: 0,
            data: Data::F32(x),
        }
    }

    /// Rows of activations.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The length of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The kind of matrices that take this.
    pub fn kind(&self) -> ActivationKind {
        match self.data {
            Data::F32(_) => ActivationKind::F32,
            Data::Q8x32(_) | Data::Tiles32(_) => ActivationKind::Q8x32,
            Data::Q8x256(_) | Data::Tiles256(_) => ActivationKind::Q8x256,
        }
    }
}

/// Quantizes rows of activations for a [`crate::MatmulJob`] of the same tile `T`.
pub struct QuantizeJob<'a, T: Tile> {
    x: &'a [f32],
    k: usize,
    /// Tokens side by side.
    tile: usize,
    out: Out<'a>,
    matmul: PhantomData<T>,
}

enum Out<'a> {
    Q8x32 {
        run: Entry<Quantize32>,
        q: Disjoint<'a, Quads32>,
        head: Disjoint<'a, Head32>,
    },
    Q8x256 {
        run: Entry<Quantize256>,
        q: Disjoint<'a, Quads256>,
        head: Disjoint<'a, Head256>,
    },
    Tiles32 {
        run: Entry<QuantizeTiles32>,
        out: Disjoint<'a, Tile32>,
    },
    Tiles256 {
        run: Entry<QuantizeTiles256>,
        out: Disjoint<'a, Tile256>,
    },
}

impl<'a, T: Tile> QuantizeJob<'a, T> {
    /// Quantizes `x`, `[tokens, k]` row-major, into `to`, replacing what that held. Run the job,
    /// then take [`Activations::view`].
    ///
    /// # Panics
    ///
    /// When `kind` is [`ActivationKind::F32`], when `x` is not `[tokens, k]` or larger than `to`
    /// was made for, or when `k` is not a multiple of the block length.
    pub fn new(
        kernels: Kernels,
        to: &'a mut Activations,
        kind: ActivationKind,
        x: &'a [f32],
        tokens: usize,
    ) -> Self {
        assert!(
            tokens > 0 && tokens <= to.max_tokens,
            "{tokens} tokens do not fit"
        );
        assert!(x.len().is_multiple_of(tokens), "x is not [tokens, k]");
        let k = x.len() / tokens;
        assert!(
            k <= to.max_k && k.is_multiple_of(kind.block_len()),
            "rows of {k} do not fit"
        );
        let table = &kernels.0.quantize;
        let tile = T::side_by_side(table.wide_tokens());
        let blocks = k / kind.block_len() * tokens.next_multiple_of(tile);
        to.held = Some(Held {
            kind,
            tile,
            tokens,
            k,
        });
        let tiles = table.tiles.as_ref().filter(|_| tile == TILE_TOKENS);
        let out = match (kind, tiles) {
            (ActivationKind::F32, _) => panic!("F32 activations are not quantized"),
            (ActivationKind::Q8x32, Some(table)) => Out::Tiles32 {
                run: table.q8x32,
                out: Disjoint::new(tiles_mut(&mut to.tiles, blocks)),
            },
            (ActivationKind::Q8x256, Some(table)) => Out::Tiles256 {
                run: table.q8x256,
                out: Disjoint::new(tiles_mut(&mut to.tiles, blocks)),
            },
            (ActivationKind::Q8x32, None) => Out::Q8x32 {
                run: table.q8x32,
                q: Disjoint::new(&mut to.q[..blocks]),
                head: Disjoint::new(&mut to.head32[..blocks]),
            },
            (ActivationKind::Q8x256, None) => Out::Q8x256 {
                run: table.q8x256,
                q: Disjoint::new(to.q[..8 * blocks].as_chunks_mut().0),
                head: Disjoint::new(&mut to.head256[..blocks]),
            },
        };
        QuantizeJob {
            x,
            k,
            tile,
            out,
            matmul: PhantomData,
        }
    }
}

impl<T: Tile> Job for QuantizeJob<'_, T> {
    fn part(&self, part: &Part<'_, Self>) {
        if self.k == 0 {
            return;
        }
        let (k, tile) = (self.k, self.tile);
        while let Some(i) = part.claim_one(self.x.len().div_ceil(k * tile)) {
            let x = &self.x[i * k * tile..self.x.len().min((i + 1) * k * tile)];
            let range = |per_tile: usize| i * per_tile..(i + 1) * per_tile;
            // SAFETY: slices: this job's only use of claims, and each tile has its own range.
            // Entries: they are from a `Kernels`' table.
            unsafe {
                match &self.out {
                    Out::Q8x32 { run, q, head } => {
                        let range = range(k / 32 * tile);
                        let (q, head) = (q.slice(range.clone()), head.slice(range));
                        run(Rows {
                            x,
                            k,
                            tile,
                            q,
                            head,
                        })
                    }
                    Out::Q8x256 { run, q, head } => {
                        let range = range(k / 256 * tile);
                        let (q, head) = (q.slice(range.clone()), head.slice(range));
                        run(Rows {
                            x,
                            k,
                            tile,
                            q,
                            head,
                        })
                    }
                    Out::Tiles32 { run, out } => {
                        let out = out.slice(range(k / 32));
                        run(TileRows { x, k, out })
                    }
                    Out::Tiles256 { run, out } => {
                        let out = out.slice(range(k / 256));
                        run(TileRows { x, k, out })
                    }
                }
            }
        }
    }
}

/// The first tiles of a buffer, for `blocks` blocks of a token.
fn tiles_mut<T: Plain>(buffer: &mut [u8], blocks: usize) -> &mut [T] {
    cast_mut(&mut buffer[..blocks / TILE_TOKENS * size_of::<T>()])
}

#[cfg(test)]
mod tests;
