//! From accumulators to outputs.

use super::Acc;
use crate::format::GROUP_ROWS;
use crate::lanes::Disjoint;
use crate::simd::Simd;
use std::ops::Range;

/// Tokens whose rows are written together.
const TOKENS: usize = 8;

/// The outputs of some adjacent groups, which this lane has claimed.
#[derive(Clone, Copy)]
pub(crate) struct Outputs<'a> {
    /// `[tokens, rows]`.
    out: &'a Disjoint<'a, f32>,
    rows: usize,
    /// The first group.
    first: usize,
}

impl<'a> Outputs<'a> {
    /// The outputs of the groups from `first` on in `out`, `[tokens, rows]`.
    ///
    /// # Safety
    ///
    /// - This lane has claimed the groups, and nobody else writes their columns meanwhile.
    pub(super) unsafe fn new(out: &'a Disjoint<'a, f32>, rows: usize, first: usize) -> Outputs<'a> {
        Outputs { out, rows, first }
    }

    /// Copies the products of `tokens` to their rows, `acc` being `[groups, stride]`.
    ///
    /// A group's products are one line of each token's row, and a token's row is many pages from
    /// the next one's. So the groups' lines of a few tokens are written together.
    #[inline(always)]
    pub(super) fn write<S: Simd>(self, s: S, acc: &[Acc], stride: usize, tokens: Range<usize>) {
        for from in tokens.clone().step_by(TOKENS) {
            let to = tokens.end.min(from + TOKENS);
            for (g, acc) in acc.chunks_exact(stride).enumerate() {
                let first = (self.first + g) * GROUP_ROWS;
                let n = GROUP_ROWS.min(self.rows - first);
                for (t, Acc(values)) in (from..to).zip(&acc[from..to]) {
                    let at = t * self.rows + first;
                    // SAFETY: these columns are a claimed group's, which only this lane writes.
                    let out = unsafe { self.out.slice(at..at + n) };
                    match out.first_chunk_mut::<GROUP_ROWS>() {
                        Some(out) => s.store(s.load(values), out),
                        None => out.copy_from_slice(&values[..n]),
                    }
                }
            }
        }
    }

    /// The outputs from the `g`th of these groups on.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn group(self, g: usize) -> Outputs<'a> {
        Outputs {
            first: self.first + g,
            ..self
        }
    }

    /// Where the first group's products with token `token` go.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn place(self, token: usize) -> *mut f32 {
        self.out.place(token * self.rows + self.first * GROUP_ROWS)
    }

    /// Whether there are outputs for all rows of the first group and all of `tokens`.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn have(self, tokens: Range<usize>) -> bool {
        let all_rows = (self.first + 1) * GROUP_ROWS <= self.rows;
        all_rows && tokens.end * self.rows <= self.out.len()
    }

    /// Whether all outputs take as much memory as a core's second-level cache, so that whoever reads
    /// them finds few of them there.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn are_large(self) -> bool {
        const CACHE: usize = 2 << 20;
        size_of::<f32>() * self.out.len() >= CACHE
    }

    /// Values from one token's place to the next one's.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline(always)]
    pub(super) fn stride(self) -> usize {
        self.rows
    }
}
