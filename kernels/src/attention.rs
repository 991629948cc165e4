//! Attention over a key-value cache of 64-position blocks.
//!
//! # What is computed
//!
//! For one query `q` `[head_dim]` of a token at position `pos`, over the cached positions
//! `lo..=pos` (`lo` is 0, or the start of the sliding window):
//!
//! ```text
//! for each block of 64 absolute positions that meets lo..=pos, ascending; p its positions there:
//!     score[p] = scale * dot             dot = fma(q[d], k[d][p], dot), d ascending from dot = 0
//!     score[p] = cap * tanh(score[p] / cap)                  only for models with a soft cap
//!     m_b      = max score[p]
//!     w[p]     = exp(score[p] - m_b)
//!     l_b      = sum of w[p]: sixteen sums by p % 16, p ascending, then the tree of `reduce_add`
//!     o_b[d]   = fma(w[p], v[p][d], o_b[d]), p ascending from o_b = 0
//!     M = max(m, m_b); a = exp(m - M); b = exp(m_b - M)      m = -infinity, l = o = 0 at first
//!     l = fma(l, a, l_b * b); o[d] = fma(o[d], a, o_b[d] * b); m = M
//! out[d] = o[d] / l
//! ```
//!
//! Blocks are cut at absolute positions, so neither the split of a prompt into batches nor the
//! lanes change a bit. A score that is NaN or +infinity makes the
//! whole output NaN; one that is -infinity counts for nothing, unless all are.
//!
//! A key or value is the `f32` that its stored form stands for: exact for [`CacheType::F32`],
//! rounded to half precision for [`CacheType::F16`], and for [`CacheType::Q8_0`] `d * q`, one
//! (always exact) `f32` product of a scale and a signed byte, both from the head's 32 elements:
//!
//! ```text
//! amax = max |x|           d = f16(amax / 127)          id = amax == 0 ? 0 : 127 / amax
//! q    = round_half_even(x * id) when that is within -127..=127, else (overflow, NaN) -127
//! ```
//!
//! # How
//!
//! A key block is stored transposed, `[head_dim][64]`: scores run with lanes over positions, one
//! broadcast query element against 64 keys, so no sum crosses lanes. A value block is
//! `[64][head_dim]`: outputs run with lanes over the head's elements. Up to [`QUERIES`] queries
//! that share a key-value head (the heads of a group, and neighbouring tokens) pass over a block
//! together, so that each loaded vector is used that often. With few queries the cache is read as
//! it is stored; with many, each block is first widened to `f32`, once for all of them.
//!
//! [`AttentionJob`] hands out (key-value head, run of tokens) and walks all blocks of each.
//! [`AttentionSplitJob`] is for one token: it hands out (block, key-value head), in the order in
//! which they lie in memory, and leaves each block's `m_b, l_b, o_b` in the workspace for
//! [`AttentionMergeJob`] to merge in the same order.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) mod amx;
mod cache;
mod element;
mod integers;
mod job;
mod kernels;
mod products;
mod repack;
mod split;
mod store;
mod tile;
mod workspace;

pub use cache::{CacheError, CacheShape, LayerCache};
pub use element::{CacheType, UnknownCacheType};
pub use job::{AttentionInput, AttentionJob};
pub(crate) use kernels::Table;
pub use split::{AttentionMergeJob, AttentionSplitJob};
pub use store::StoreKvJob;
pub use tile::{CacheReading, Direct, Repacked};
pub use workspace::{AttentionShape, AttentionWorkspace};

/// Positions in a block of the cache.
pub const BLOCK: usize = 64;

/// The most queries that pass over a block together: six times four 512-bit accumulators, or six
/// times two of 256 bits, leave registers for what they are multiplied with.
const QUERIES: usize = 6;

#[cfg(test)]
mod tests;
