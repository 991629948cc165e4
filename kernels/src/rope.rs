//! Rotary position embeddings (Su et al., 2021) on queries and keys.
//!
//! A pair `(x0, x1)` of a head at position `pos` turns by `pos * frequency`. Cosines and sines
//! come from a [`RopeTable`], filled once per position in `f64` by the `libm` crate and rounded
//! to `f32`, so they are the same bits on every machine. Each turned value is its partner's
//! product fused onto its own:
//!
//! ```text
//! x0' = fma(x1, -sin, x0 * cos)
//! x1' = fma(x0,  sin, x1 * cos)
//! ```

use std::ops::Range;

use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::memory::{AllocError, HugeBuffer};
use crate::simd::{Entry, Kernel, Simd, entry};

/// Which elements of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// Elements `2i` and `2i + 1` (ggml's "normal" rope; llama).
    Adjacent,
    /// Elements `i` and `i + n_rot / 2` (ggml's "neox" rope; qwen, gemma).
    Halves,
}

/// Why a [`RopeTable`] cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RopeError {
    /// No elements to turn.
    #[error("rope turns no elements; n_rot must be at least 2")]
    Empty,
    /// The frequency of pair `pair` is infinite or NaN.
    #[error("rope frequency of pair {pair} is {value}; check the base, the scale and the factors")]
    NotFinite {
        /// The pair's index.
        pair: usize,
        /// Its frequency.
        value: f64,
    },
    /// The system has no memory for the table.
    #[error("no memory for the rope table (ask for a smaller context): {0}")]
    OutOfMemory(#[from] AllocError),
}

/// The angle per position of each pair: `base^(-2i / n_rot) * scale / factors[i]`.
///
/// `scale` is 1 over the linear context extension (ggml's `freq_scale`); `factors`, when given,
/// are the `rope_freqs` of a model (Llama 3 scaling), one for each pair.
///
/// # Panics
///
/// When `n_rot` is odd, or `factors` is not `n_rot / 2` long.
pub fn rope_frequencies(n_rot: usize, base: f64, scale: f64, factors: Option<&[f32]>) -> Vec<f64> {
    assert_eq!(n_rot % 2, 0, "rope turns pairs");
    let pairs = n_rot / 2;
    assert!(
        factors.is_none_or(|f| f.len() == pairs),
        "one factor for each pair"
    );
    (0..pairs)
        .map(|i| {
            let power = libm::pow(base, -2.0 * i as f64 / n_rot as f64);
            power * scale / factors.map_or(1.0, |f| f64::from(f[i]))
        })
        .collect()
}

/// Cosines and sines of every pair at positions `0..n_ctx`, computed up to [`RopeTable::filled`].
///
/// A position's row is its cosines, then its sines, in the order the kernel reads them: for
/// [`RopePairs::Halves`] one a pair; for [`RopePairs::Adjacent`] one an element, the sine negated
/// on even elements.
pub struct RopeTable {
    pairs: RopePairs,
    frequencies: Vec<f64>,
    amplitude: f64,
    n_ctx: usize,
    filled: usize,
    /// `[n_ctx, row_len]`; memory pages past `filled` are untouched.
    rows: HugeBuffer<f32>,
}

impl RopeTable {
    /// A table for `n_ctx` positions with none computed; memory is reserved, not yet used.
    ///
    /// `frequencies` (see [`rope_frequencies`]) has the angle per position of each pair;
    /// `amplitude` multiplies every cosine and sine (1 unless a scaling method asks for more).
    ///
    /// # Errors
    ///
    /// [`RopeError`]: no pairs, a frequency that is not finite, or no memory.
    pub fn new(
        pairs: RopePairs,
        frequencies: Vec<f64>,
        amplitude: f64,
        n_ctx: usize,
    ) -> Result<RopeTable, RopeError> {
        if frequencies.is_empty() {
            return Err(RopeError::Empty);
        }
        if let Some(pair) = frequencies.iter().position(|f| !f.is_finite()) {
            return Err(RopeError::NotFinite {
                pair,
                value: frequencies[pair],
            });
        }
        let len = row_len(pairs, frequencies.len()).checked_mul(n_ctx);
        let rows = HugeBuffer::zeroed(len.unwrap_or(usize::MAX))?;
        Ok(RopeTable {
            pairs,
            frequencies,
            amplitude,
            n_ctx,
            filled: 0,
            rows,
        })
    }

    /// Which elements turn together.
    pub fn pairs(&self) -> RopePairs {
        self.pairs
    }

    /// How many elements at the start of each head turn.
    pub fn n_rot(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// The number of positions the table has room for.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Positions below this one are computed.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// The memory of the whole table, in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    fn row_len(&self) -> usize {
        row_len(self.pairs, self.frequencies.len())
    }

    /// One position's cosines and sines.
    fn row(&self, pos: usize) -> (&[f32], &[f32]) {
        let n = self.row_len();
        self.rows[pos * n..][..n].split_at(n / 2)
    }
}

fn row_len(pairs: RopePairs, n: usize) -> usize {
    match pairs {
        RopePairs::Adjacent => 4 * n,
        RopePairs::Halves => 2 * n,
    }
}

/// Computes a table's rows up to a position.
pub struct RopeFillJob<'a> {
    pairs: RopePairs,
    frequencies: &'a [f64],
    amplitude: f64,
    /// The rows to compute.
    rows: Disjoint<'a, f32>,
    row_len: usize,
    positions: Range<usize>,
}

impl<'a> RopeFillJob<'a> {
    /// Computes what is missing of positions `0..end`; nothing when all are there. The table
    /// counts them as filled from now on, so run the job.
    ///
    /// # Panics
    ///
    /// When `end` is beyond the table's `n_ctx`.
    pub fn new(table: &'a mut RopeTable, end: usize) -> Self {
        assert!(
            end <= table.n_ctx,
            "position {end} is beyond the table's {}",
            table.n_ctx
        );
        let row_len = table.row_len();
        let positions = table.filled..end.max(table.filled);
        table.filled = positions.end;
        RopeFillJob {
            pairs: table.pairs,
            frequencies: &table.frequencies,
            amplitude: table.amplitude,
            rows: Disjoint::new(
                &mut table.rows[positions.start * row_len..positions.end * row_len],
            ),
            row_len,
            positions,
        }
    }
}

impl Job for RopeFillJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(i) = part.claim_one(self.positions.len()) {
            // SAFETY: claimed rows are disjoint.
            let row = unsafe { self.rows.slice(i * self.row_len..(i + 1) * self.row_len) };
            let (cosines, sines) = row.split_at_mut(self.row_len / 2);
            let pos = (self.positions.start + i) as f64;
            for (pair, frequency) in self.frequencies.iter().enumerate() {
                let (sin, cos) = libm::sincos(pos * frequency);
                let sin = (sin * self.amplitude) as f32;
                let cos = (cos * self.amplitude) as f32;
                match self.pairs {
                    RopePairs::Halves => {
                        cosines[pair] = cos;
                        sines[pair] = sin;
                    }
                    RopePairs::Adjacent => {
                        cosines[2 * pair..][..2].copy_from_slice(&[cos, cos]);
                        sines[2 * pair..][..2].copy_from_slice(&[-sin, sin]);
                    }
                }
            }
        }
    }
}

/// The heads of one token, and its position's row of the table.
pub(crate) struct TurnArgs<'a> {
    heads: &'a mut [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
}

/// [`RopePairs::Adjacent`].
pub(crate) struct TurnAdjacent;

impl Kernel for TurnAdjacent {
    type Args<'a> = TurnArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: TurnArgs<'_>) {
        let (cos, cos_tail) = args.cos.as_chunks::<16>();
        let (sin, sin_tail) = args.sin.as_chunks::<16>();
        for head in args.heads.chunks_exact_mut(args.head_dim) {
            let (x, x_tail) = head[..args.cos.len()].as_chunks_mut::<16>();
            for i in 0..x.len() {
                let v = s.load(&x[i]);
                let own = s.mul(v, s.load(&cos[i]));
                s.store(s.fma(s.swap_pairs(v), s.load(&sin[i]), own), &mut x[i]);
            }
            if !x_tail.is_empty() {
                let v = s.load_partial(x_tail);
                let own = s.mul(v, s.load_partial(cos_tail));
                s.store_partial(
                    s.fma(s.swap_pairs(v), s.load_partial(sin_tail), own),
                    x_tail,
                );
            }
        }
    }
}

/// [`RopePairs::Halves`].
pub(crate) struct TurnHalves;

/// A pair of vectors turned.
#[inline(always)]
fn turn<S: Simd>(s: S, x0: S::F32, x1: S::F32, cos: S::F32, sin: S::F32) -> (S::F32, S::F32) {
    (
        s.fnma(x1, sin, s.mul(x0, cos)),
        s.fma(x0, sin, s.mul(x1, cos)),
    )
}

impl Kernel for TurnHalves {
    type Args<'a> = TurnArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: TurnArgs<'_>) {
        let half = args.cos.len();
        let (cos, cos_tail) = args.cos.as_chunks::<16>();
        let (sin, sin_tail) = args.sin.as_chunks::<16>();
        for head in args.heads.chunks_exact_mut(args.head_dim) {
            let (x0, x1) = head[..2 * half].split_at_mut(half);
            let (x0, x0_tail) = x0.as_chunks_mut::<16>();
            let (x1, x1_tail) = x1.as_chunks_mut::<16>();
            for i in 0..x0.len() {
                let (c, n) = (s.load(&cos[i]), s.load(&sin[i]));
                let (y0, y1) = turn(s, s.load(&x0[i]), s.load(&x1[i]), c, n);
                s.store(y0, &mut x0[i]);
                s.store(y1, &mut x1[i]);
            }
            if !x0_tail.is_empty() {
                let (c, n) = (s.load_partial(cos_tail), s.load_partial(sin_tail));
                let (y0, y1) = turn(s, s.load_partial(x0_tail), s.load_partial(x1_tail), c, n);
                s.store_partial(y0, x0_tail);
                s.store_partial(y1, x1_tail);
            }
        }
    }
}

/// One level's rope kernels.
pub(crate) struct Table {
    adjacent: Entry<TurnAdjacent>,
    halves: Entry<TurnHalves>,
}

impl Table {
    pub(crate) const fn of<S: Simd>() -> Table {
        Table {
            adjacent: entry::<S, TurnAdjacent>,
            halves: entry::<S, TurnHalves>,
        }
    }
}

/// Turns queries or keys in place.
pub struct RopeJob<'a> {
    /// From the table of a level that the processor has.
    run: unsafe fn(TurnArgs<'_>),
    table: &'a RopeTable,
    pos0: usize,
    x: Disjoint<'a, f32>,
    tokens: usize,
    width: usize,
    head_dim: usize,
}

impl<'a> RopeJob<'a> {
    /// For `x` `[tokens, n_head, head_dim]`, token `t` being at position `pos0 + t`. Elements
    /// past the table's `n_rot` in each head stay as they are.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, or the table is not filled up to the last position.
    pub fn new(
        kernels: Kernels,
        table: &'a RopeTable,
        pos0: usize,
        x: &'a mut [f32],
        n_head: usize,
        head_dim: usize,
    ) -> Self {
        let width = n_head * head_dim;
        assert!(
            width > 0 && x.len().is_multiple_of(width),
            "x is not [tokens, n_head, head_dim]"
        );
        assert!(
            table.n_rot() <= head_dim,
            "n_rot {} over {head_dim}",
            table.n_rot()
        );
        let tokens = x.len() / width;
        assert!(
            pos0.checked_add(tokens)
                .is_some_and(|end| end <= table.filled),
            "rope table filled to {} of {tokens} tokens from {pos0}",
            table.filled
        );
        let run = match table.pairs {
            RopePairs::Adjacent => kernels.0.rope.adjacent,
            RopePairs::Halves => kernels.0.rope.halves,
        };
        RopeJob {
            run,
            table,
            pos0,
            x: Disjoint::new(x),
            tokens,
            width,
            head_dim,
        }
    }
}

impl Job for RopeJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(t) = part.claim_one(self.tokens) {
            // SAFETY: claimed rows are disjoint.
            let heads = unsafe { self.x.slice(t * self.width..(t + 1) * self.width) };
            let (cos, sin) = self.table.row(self.pos0 + t);
            // SAFETY: `run` is from a `Kernels`' table.
            unsafe {
                (self.run)(TurnArgs {
                    heads,
                    head_dim: self.head_dim,
                    cos,
                    sin,
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
