//! Attention over a key-value cache of 64-position blocks.
//!
//! # What is computed
//!
//! Rows are taken as integers, so that sums of products are exact and their order is free. A row `x`
//! of a key, a query, a value or a block's weights becomes, with `L` levels on either side of zero,
//!
//! ```text
//! step(x)  = max |x| / L          0 when max |x| < 2^-100, NaN when it is not finite
//! int(x)   = round_half_even(x * (1 / step(x)))         the product unrounded; 0 when step(x) is 0
//! ```
//!
//! `L` is 4095 for values, 8191 for weights, and for queries and keys what keeps a sum over the
//! head below 2^31: the least of 8191 and the root of (2^31 - 1) / `head_dim`, rounded down. For one
//! query `q` `[head_dim]` of a token at position `pos`, over the cached positions `lo..=pos` (`lo` is
//! 0, or the start of the sliding window), and keys `k[p]` and values `v[p]`:
//!
//! ```text
//! for each block of 64 absolute positions that meets lo..=pos, ascending; p its positions there:
//!     dot[p]   = sum over d of int(q)[d] * int(k[p])[d]                   exact, below 2^31
//!     score[p] = (f32(dot[p]) * step(k[p])) * (step(q) * scale)
//!     score[p] = cap * tanh(score[p] / cap)                  only for models with a soft cap
//!     m_b      = max score[p]
//!     w[p]     = exp(score[p] - m_b)
//!     l_b      = sum of w[p]: sixteen sums by p % 16, p ascending, then the tree of `reduce_add`
//!     u[p]     = w[p] * step(v[p])
//!     o_b[d]   = f32(sum over p of int(u)[p] * int(v[p])[d]) * step(u)    exact, below 2^31
//!     M = max(m, m_b); a = exp(m - M); b = exp(m_b - M)      m = -infinity, l = o = 0 at first
//!     l = fma(l, a, l_b * b); o[d] = fma(o[d], a, o_b[d] * b); m = M
//! out[d] = o[d] / l
//! ```
//!
//! So a value keeps twelve bits below its row's largest element (a half has eleven below its own
//! size), a weight thirteen below its block's largest, and a query and a key up to thirteen: twelve
//! where heads have 128 elements, eleven and a half where they have 256.
//!
//! Keys and values of [`CacheType::F32`] are kept for their precision and are no integers. Then
//! `int(x)` is `x`, of queries and weights too where they meet such a row, `step(x)` is 1, or NaN when
//! `x` is not finite, and a sum is `fma(a, b, sum)` from 0, `d` or `p` ascending.
//!
//! Blocks are cut at absolute positions, so neither the split of a prompt into batches nor the
//! lanes change a bit. A query, or a key or value it attends to, that is not finite makes the whole
//! output NaN, as does a score of NaN or +infinity; one of -infinity counts for nothing, unless all
//! of a block are.
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
//! A key block is stored transposed, `[head_dim][64]`: scores run with lanes over positions, two
//! broadcast query elements against two of each of 64 keys, so no sum crosses lanes. A value block is
//! `[64][head_dim]`: outputs run with lanes over the head's elements. Steps are computed once, when a
//! key or value is stored, and lie before the numbers. Up to [`QUERIES`] queries that share a
//! key-value head (the heads of a group, and neighbouring tokens) pass over a block together, so that
//! each loaded vector is used that often. With few queries the cache is read as it is stored; with
//! many, each block is first repacked as integers, once for all of them. On AMX, tile registers
//! multiply sixteen queries at a time: see `amx`.
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
mod single;
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
