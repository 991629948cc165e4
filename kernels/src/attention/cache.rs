//! The key-value cache of one layer, and storing into it.

use std::ops::Range;

use super::BLOCK;
use super::kernels::Row;
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::memory::{AllocError, Arena, HugeBuffer};
use crate::simd::{Kernel, Simd};

/// How cached keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheType {
    /// IEEE half precision, rounded to nearest even.
    F16,
}

impl CacheType {
    /// The name that llama.cpp's `--cache-type-k` takes.
    pub const fn name(self) -> &'static str {
        match self {
            CacheType::F16 => "f16",
        }
    }
}

/// Why a cache cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// A count that must not be zero is.
    #[error(
        "a key-value cache of {n_kv_heads} heads, keys of {head_dim_k}, values of {head_dim_v}: none may be 0"
    )]
    Empty {
        /// Key-value heads.
        n_kv_heads: usize,
        /// Elements of a key.
        head_dim_k: usize,
        /// Elements of a value.
        head_dim_v: usize,
    },
    /// The system has no memory for it.
    #[error("no memory for the key-value cache (ask for a smaller context): {0}")]
    OutOfMemory(#[from] AllocError),
}

/// Keys and values of one layer, in blocks of [`BLOCK`] positions.
///
/// Block after block: the block's keys, `[n_kv_heads][head_dim_k][64]`, then its values,
/// `[n_kv_heads][64][head_dim_v]`, the last rounded up to sixteen with zeros. Memory is reserved at
/// once and takes real pages as positions are stored, so that a short text takes few, whatever
/// the context.
pub struct LayerCache {
    /// `[n_blocks][block_len]`.
    data: HugeBuffer<[u16; 16]>,
    layout: Layout,
    n_kv_heads: usize,
    head_dim_k: usize,
    head_dim_v: usize,
    n_blocks: usize,
}

/// Where things lie in a block, in units of sixteen elements.
#[derive(Clone, Copy)]
struct Layout {
    /// One head's keys.
    k_len: usize,
    /// One head's values.
    v_len: usize,
    /// All keys of a block: where its values begin.
    v_start: usize,
    /// All of a block.
    block_len: usize,
}

impl Layout {
    /// Where the keys of one head and block are.
    fn k(&self, kv_head: usize, block: usize) -> Range<usize> {
        let start = block * self.block_len + kv_head * self.k_len;
        start..start + self.k_len
    }

    /// Where the values of one head and block are.
    fn v(&self, kv_head: usize, block: usize) -> Range<usize> {
        let start = block * self.block_len + self.v_start + kv_head * self.v_len;
        start..start + self.v_len
    }
}

impl LayerCache {
    /// A cache for at least `n_ctx` positions, all zero.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: a count of zero, or no memory.
    pub fn allocate(
        n_kv_heads: usize,
        head_dim_k: usize,
        head_dim_v: usize,
        n_ctx: usize,
        ty: CacheType,
    ) -> Result<LayerCache, CacheError> {
        let bytes = Self::bytes_for(n_kv_heads, head_dim_k, head_dim_v, n_ctx, ty)?;
        let mut arena = Arena::new(Arena::takes(bytes))?;
        Self::allocate_in(&mut arena, n_kv_heads, head_dim_k, head_dim_v, n_ctx, ty)
    }

    /// As [`LayerCache::allocate`], with memory from `arena`, of which it takes
    /// [`Arena::takes`] of [`LayerCache::bytes_for`]: the layers of a model share huge pages.
    ///
    /// # Errors
    ///
    /// As [`LayerCache::allocate`]; memory is short when the arena is full.
    pub fn allocate_in(
        arena: &mut Arena,
        n_kv_heads: usize,
        head_dim_k: usize,
        head_dim_v: usize,
        n_ctx: usize,
        ty: CacheType,
    ) -> Result<LayerCache, CacheError> {
        let bytes = Self::bytes_for(n_kv_heads, head_dim_k, head_dim_v, n_ctx, ty)?;
        let k_len = head_dim_k * (BLOCK / 16);
        let v_len = BLOCK * head_dim_v.div_ceil(16);
        let layout = Layout {
            k_len,
            v_len,
            v_start: n_kv_heads * k_len,
            block_len: n_kv_heads * (k_len + v_len),
        };
        Ok(LayerCache {
            data: arena.zeroed(bytes / size_of::<[u16; 16]>())?,
            layout,
            n_kv_heads,
            head_dim_k,
            head_dim_v,
            n_blocks: n_ctx.div_ceil(BLOCK),
        })
    }

    /// Bytes of a cache for at least `n_ctx` positions.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: a count of zero, or a size that no memory has.
    pub fn bytes_for(
        n_kv_heads: usize,
        head_dim_k: usize,
        head_dim_v: usize,
        n_ctx: usize,
        ty: CacheType,
    ) -> Result<usize, CacheError> {
        if n_kv_heads == 0 || head_dim_k == 0 || head_dim_v == 0 {
            return Err(CacheError::Empty {
                n_kv_heads,
                head_dim_k,
                head_dim_v,
            });
        }
        let CacheType::F16 = ty;
        let product = |a: usize, b: usize| a.checked_mul(b).ok_or(AllocError { bytes: usize::MAX });
        let k_len = product(head_dim_k, BLOCK / 16)?;
        let v_len = product(BLOCK, head_dim_v.div_ceil(16))?;
        let head_len = k_len
            .checked_add(v_len)
            .ok_or(AllocError { bytes: usize::MAX })?;
        let block_len = product(n_kv_heads, head_len)?;
        let len = product(block_len, n_ctx.div_ceil(BLOCK))?;
        Ok(product(len, size_of::<[u16; 16]>())?)
    }

    /// How values are stored.
    pub fn cache_type(&self) -> CacheType {
        CacheType::F16
    }

    /// The memory reserved, in bytes.
    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// The number of positions there is room for: `n_ctx` rounded up to whole blocks.
    pub fn capacity(&self) -> usize {
        self.n_blocks * BLOCK
    }

    /// Key-value heads.
    pub fn n_kv_heads(&self) -> usize {
        self.n_kv_heads
    }

    /// Elements of a key.
    pub fn head_dim_k(&self) -> usize {
        self.head_dim_k
    }

    /// Elements of a value.
    pub fn head_dim_v(&self) -> usize {
        self.head_dim_v
    }

    /// Vectors of sixteen that hold a value.
    pub(super) fn vectors(&self) -> usize {
        self.head_dim_v.div_ceil(16)
    }

    /// The keys of one block, `[head_dim_k][64]`.
    pub(super) fn k_block(&self, kv_head: usize, block: usize) -> &[Row<u16>] {
        self.data[self.layout.k(kv_head, block)].as_chunks().0
    }

    /// The values of one block, `[64][vectors]`.
    pub(super) fn v_block(&self, kv_head: usize, block: usize) -> &[[u16; 16]] {
        &self.data[self.layout.v(kv_head, block)]
    }
}

#[cfg(test)]
impl LayerCache {
    /// Every element, as stored.
    pub(super) fn elements(&self) -> &[u16] {
        self.data.as_flattened()
    }
}

/// Some positions of one block, one key-value head.
pub(crate) struct StoreArgs<'a> {
    /// Rows of keys, this head's first element first; a row every `k_stride`.
    k: &'a [f32],
    k_stride: usize,
    /// Rows of values, likewise.
    v: &'a [f32],
    v_stride: usize,
    head_dim_v: usize,
    /// The positions within the block are `first..first + tokens`.
    first: usize,
    tokens: usize,
    k_block: &'a mut [Row<u16>],
    v_block: &'a mut [[u16; 16]],
}

/// [`StoreArgs`]' kernel.
pub(crate) struct Store;

/// Sixteen values, zeros past the end.
#[inline(always)]
fn load_up_to_16<S: Simd>(s: S, from: &[f32]) -> S::F32 {
    match from.first_chunk() {
        Some(from) => s.load(from),
        None => s.load_partial(from),
    }
}

impl Kernel for Store {
    type Args<'a> = StoreArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: StoreArgs<'_>) {
        let StoreArgs { first, tokens, .. } = args;
        // Sixteen elements of each key at a time, transposed through this.
        let mut narrow = [[0; 16]; BLOCK];
        let head_dim_k = args.k_block.len();
        for (chunk, rows) in args.k_block.chunks_mut(16).enumerate() {
            let element = 16 * chunk;
            for (t, narrow) in narrow.iter_mut().enumerate().take(tokens) {
                let key = &args.k[t * args.k_stride..][..head_dim_k];
                s.store_f16(load_up_to_16(s, &key[element..]), narrow);
            }
            for (i, row) in rows.iter_mut().enumerate() {
                let row = &mut row.as_flattened_mut()[first..first + tokens];
                for (to, from) in row.iter_mut().zip(&narrow) {
                    *to = from[i];
                }
            }
        }
        let vectors = args.v_block.len() / BLOCK;
        for t in 0..tokens {
            let value = &args.v[t * args.v_stride..][..args.head_dim_v];
            let row = &mut args.v_block[(first + t) * vectors..][..vectors];
            for (to, from) in row.iter_mut().zip(value.chunks(16)) {
                s.store_f16(load_up_to_16(s, from), to);
            }
        }
    }
}

/// Stores keys and values of consecutive positions.
pub struct StoreKvJob<'a> {
    kernels: Kernels,
    k: &'a [f32],
    v: &'a [f32],
    data: Disjoint<'a, [u16; 16]>,
    layout: Layout,
    n_kv_heads: usize,
    head_dim_k: usize,
    head_dim_v: usize,
    pos0: usize,
    tokens: usize,
}

impl<'a> StoreKvJob<'a> {
    /// For `k` `[tokens, n_kv_heads, head_dim_k]` (after rope) and `v`
    /// `[tokens, n_kv_heads, head_dim_v]`, token `t` being at position `pos0 + t`.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, or a position is beyond the cache's capacity.
    pub fn new(
        kernels: Kernels,
        cache: &'a mut LayerCache,
        pos0: usize,
        k: &'a [f32],
        v: &'a [f32],
    ) -> Self {
        let LayerCache {
            n_kv_heads,
            head_dim_k,
            head_dim_v,
            n_blocks,
            ..
        } = *cache;
        let tokens = k.len() / (n_kv_heads * head_dim_k);
        assert_eq!(
            k.len(),
            tokens * n_kv_heads * head_dim_k,
            "keys are not whole rows"
        );
        assert_eq!(
            v.len(),
            tokens * n_kv_heads * head_dim_v,
            "values of another shape"
        );
        assert!(
            pos0.checked_add(tokens)
                .is_some_and(|end| end <= n_blocks * BLOCK),
            "{tokens} positions from {pos0} do not fit a cache of {}",
            n_blocks * BLOCK
        );
        StoreKvJob {
            kernels,
            k,
            v,
            layout: cache.layout,
            data: Disjoint::new(&mut cache.data),
            n_kv_heads,
            head_dim_k,
            head_dim_v,
            pos0,
            tokens,
        }
    }
}

impl Job for StoreKvJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let StoreKvJob {
            n_kv_heads,
            head_dim_k,
            head_dim_v,
            pos0,
            ..
        } = *self;
        let end = pos0 + self.tokens;
        let first_block = pos0 / BLOCK;
        let blocks = end.div_ceil(BLOCK) - first_block;
        while let Some(item) = part.claim_one(n_kv_heads * blocks) {
            let (head, block) = (item / blocks, first_block + item % blocks);
            let from = pos0.max(block * BLOCK);
            let to = end.min((block + 1) * BLOCK);
            // SAFETY: each block of each head is claimed once, and its keys and values lie apart.
            let (k_block, v_block) = unsafe {
                (
                    self.data.slice(self.layout.k(head, block)),
                    self.data.slice(self.layout.v(head, block)),
                )
            };
            let k_block = k_block.as_chunks_mut().0;
            let (k_stride, v_stride) = (n_kv_heads * head_dim_k, n_kv_heads * head_dim_v);
            let args = StoreArgs {
                k: &self.k[(from - pos0) * k_stride + head * head_dim_k..],
                k_stride,
                v: &self.v[(from - pos0) * v_stride + head * head_dim_v..],
                v_stride,
                head_dim_v,
                first: from - block * BLOCK,
                tokens: to - from,
                k_block,
                v_block,
            };
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.attention.store)(args) }
        }
    }
}
