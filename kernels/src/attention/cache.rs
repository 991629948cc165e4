//! The key-value cache of one layer.

use std::ops::Range;

use super::BLOCK;
use super::element::{CacheType, Codec, STEPS};
use super::job::KeysValues;
use super::repack::PackArgs;
use crate::level::{Kernels, Level};
use crate::memory::{AllocError, Arena, HugeBuffer};

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
    /// A head is no whole number of the type's blocks.
    #[error(
        "{what} of {head_dim} elements cannot be cached as {ty}, whose blocks are of {}: choose f16 or f32",
        ty.block_elements()
    )]
    HeadSize {
        /// `keys` or `values`.
        what: &'static str,
        /// Elements of one of them.
        head_dim: usize,
        /// The type that was asked for.
        ty: CacheType,
    },
    /// The system has no memory for it.
    #[error("no memory for the key-value cache (ask for a smaller context): {0}")]
    OutOfMemory(#[from] AllocError),
}

/// What a cache holds, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// Key-value heads.
    pub n_kv_heads: usize,
    /// Elements of a key.
    pub head_dim_k: usize,
    /// Elements of a value.
    pub head_dim_v: usize,
    /// Positions, at least.
    pub n_ctx: usize,
    /// How many of them are held at once, at least: the last ones that were stored. `n_ctx` holds
    /// all; a layer that looks back over a window needs that, and the batch it comes with.
    pub n_held: usize,
    /// How keys are stored.
    pub type_k: CacheType,
    /// How values are stored.
    pub type_v: CacheType,
}

/// Bytes in the unit that blocks are measured in.
const LINE: usize = 64;

/// The first position that a token at `pos` attends to through a window of so many positions, its
/// own included.
pub(super) fn lowest(window: Option<usize>, pos: usize) -> usize {
    window.map_or(0, |window| (pos + 1).saturating_sub(window))
}

/// Where things lie in a block, in units of [`LINE`] bytes.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// One head's keys.
    k_len: usize,
    /// One head's values.
    v_len: usize,
    /// All keys of a block: where its values begin.
    v_start: usize,
    /// All of a block.
    block_len: usize,
    /// Blocks held at once: each takes the place of the one so many before it.
    n_held: usize,
}

impl Layout {
    /// Where the keys of one head and block are.
    pub(super) fn k(&self, kv_head: usize, block: usize) -> Range<usize> {
        let start = self.start(block) + kv_head * self.k_len;
        start..start + self.k_len
    }

    /// Where the values of one head and block are.
    pub(super) fn v(&self, kv_head: usize, block: usize) -> Range<usize> {
        let start = self.start(block) + self.v_start + kv_head * self.v_len;
        start..start + self.v_len
    }

    fn start(&self, block: usize) -> usize {
        block % self.n_held * self.block_len
    }

    /// Whether the blocks of `positions` can all be held at once.
    pub(super) fn holds(&self, positions: Range<usize>) -> bool {
        positions.end.div_ceil(BLOCK) - positions.start / BLOCK <= self.n_held
    }
}

impl CacheShape {
    /// Checks the shape and lays it out.
    fn layout(&self) -> Result<Layout, CacheError> {
        let CacheShape {
            n_kv_heads,
            head_dim_k,
            head_dim_v,
            type_k,
            type_v,
            ..
        } = *self;
        if n_kv_heads == 0 || head_dim_k == 0 || head_dim_v == 0 {
            return Err(CacheError::Empty {
                n_kv_heads,
                head_dim_k,
                head_dim_v,
            });
        }
        for (what, head_dim, ty) in [("keys", head_dim_k, type_k), ("values", head_dim_v, type_v)] {
            if !head_dim.is_multiple_of(ty.block_elements()) {
                return Err(CacheError::HeadSize { what, head_dim, ty });
            }
        }
        // A block's 64 positions make every part a whole number of lines: `head_dim` elements
        // take `ty.bytes(head_dim)` bytes, 64 times.
        const { assert!(BLOCK.is_multiple_of(LINE)) };
        // Steps are a single-precision number a position. Elements of keys go in pairs.
        let with_steps = |bytes: usize| bytes.checked_add(STEPS / BLOCK);
        let k_len = head_dim_k.checked_next_multiple_of(2);
        let k_len = k_len.and_then(|padded| type_k.bytes(padded));
        let k_len = k_len.and_then(with_steps);
        let v_len = head_dim_v.checked_next_multiple_of(16);
        let v_len = v_len.and_then(|padded| type_v.bytes(padded));
        let v_len = v_len.and_then(with_steps);
        let layout = || {
            let (k_len, v_len) = (k_len?, v_len?);
            Some(Layout {
                k_len,
                v_len,
                v_start: n_kv_heads.checked_mul(k_len)?,
                block_len: n_kv_heads.checked_mul(k_len.checked_add(v_len)?)?,
                n_held: self.n_held_blocks(),
            })
        };
        Ok(layout().ok_or(AllocError { bytes: usize::MAX })?)
    }

    fn n_blocks(&self) -> usize {
        self.n_ctx.div_ceil(BLOCK)
    }

    /// The first and the last of `n_held` positions may be alone in their blocks.
    fn n_held_blocks(&self) -> usize {
        let blocks = self.n_held.saturating_sub(1).div_ceil(BLOCK) + 1;
        blocks.min(self.n_blocks()).max(1)
    }

    /// Bytes of a cache of this shape.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: a count of zero, a head that the type does not fit, or a size that no
    /// memory has.
    pub fn bytes(&self) -> Result<usize, CacheError> {
        let layout = self.layout()?;
        let lines = layout.block_len.checked_mul(layout.n_held);
        let bytes = lines.and_then(|lines| lines.checked_mul(LINE));
        Ok(bytes.ok_or(AllocError { bytes: usize::MAX })?)
    }
}

/// Keys and values of one layer, in blocks of [`BLOCK`] positions.
///
/// Block after block, those past the last one that is held again from the beginning on: the block's
/// keys, `[n_kv_heads]` parts, then its values. A part is the steps of its 64 positions as `f32`,
/// then the numbers: of keys `[head_dim_k][64]`, the first rounded up to two with zeros, of values
/// `[64][head_dim_v]`, the last rounded up to sixteen. Behind the numbers of a [`CacheType::Q8_0`]
/// part come its scales, `[head_dim / 32][64]`. Memory is reserved at once and takes real pages as
/// positions are stored, so that a short text takes few, whatever the context.
pub struct LayerCache {
    /// `[n_held][block_len]`.
    pub(super) data: HugeBuffer<[u8; LINE]>,
    pub(super) layout: Layout,
    shape: CacheShape,
    /// What it was made for.
    pub(super) level: Level,
    /// The kernels of the two types, of that level.
    pub(super) k_codec: &'static Codec,
    pub(super) v_codec: &'static Codec,
}

impl LayerCache {
    /// An empty cache that counts `shape.n_ctx` positions and holds at least the last
    /// `shape.n_held` of them, all zero, that stores and is read at
    /// the level of `kernels`.
    ///
    /// # Errors
    ///
    /// [`CacheError`]: an impossible shape, or no memory.
    pub fn allocate(kernels: Kernels, shape: CacheShape) -> Result<LayerCache, CacheError> {
        let mut arena = Arena::new(Arena::takes(shape.bytes()?))?;
        Self::allocate_in(&mut arena, kernels, shape)
    }

    /// As [`LayerCache::allocate`], with memory from `arena`, of which it takes
    /// [`Arena::takes`] of [`CacheShape::bytes`]: the layers of a model share huge pages.
    ///
    /// # Errors
    ///
    /// As [`LayerCache::allocate`]; memory is short when the arena is full.
    pub fn allocate_in(
        arena: &mut Arena,
        kernels: Kernels,
        shape: CacheShape,
    ) -> Result<LayerCache, CacheError> {
        let codecs = &kernels.0.attention.codecs;
        Ok(LayerCache {
            data: arena.zeroed(shape.bytes()? / LINE)?,
            layout: shape.layout()?,
            shape,
            level: kernels.level(),
            k_codec: codecs.get(shape.type_k),
            v_codec: codecs.get(shape.type_v),
        })
    }

    /// What it was made for.
    pub fn shape(&self) -> CacheShape {
        self.shape
    }

    /// The memory reserved, in bytes.
    pub fn bytes(&self) -> usize {
        self.data.bytes()
    }

    /// The number of positions there are: `n_ctx` rounded up to whole blocks. The last
    /// [`CacheShape::n_held`] that were stored are held.
    pub fn capacity(&self) -> usize {
        self.shape.n_blocks() * BLOCK
    }

    /// The first position whose keys and values are still there once `end` positions have been
    /// stored.
    pub fn first_held(&self, end: usize) -> usize {
        end.div_ceil(BLOCK).saturating_sub(self.layout.n_held) * BLOCK
    }

    /// Whether all that a token at `pos` attends to before itself, through this window, is still
    /// there once `end` positions have been stored.
    pub fn holds_window(&self, window: Option<usize>, pos: usize, end: usize) -> bool {
        lowest(window, pos) >= self.first_held(end)
    }

    /// Key-value heads.
    pub fn n_kv_heads(&self) -> usize {
        self.shape.n_kv_heads
    }

    /// Elements of a key.
    pub fn head_dim_k(&self) -> usize {
        self.shape.head_dim_k
    }

    /// Elements of a value.
    pub fn head_dim_v(&self) -> usize {
        self.shape.head_dim_v
    }

    /// Vectors of sixteen that hold a value.
    pub(super) fn vectors(&self) -> usize {
        self.shape.head_dim_v.div_ceil(16)
    }

    /// What repacks keys and values, unless one of them is not taken as integers.
    pub(super) fn packing(&self) -> Option<KeysValues<unsafe fn(PackArgs<'_>)>> {
        let (k, v) = self.k_codec.packing.zip(self.v_codec.packing)?;
        Some(KeysValues {
            k: k.keys,
            v: v.values,
        })
    }

    /// The keys of one block and head.
    pub(super) fn k_block(&self, kv_head: usize, block: usize) -> &[u8] {
        self.data[self.layout.k(kv_head, block)].as_flattened()
    }

    /// The values of one block and head.
    pub(super) fn v_block(&self, kv_head: usize, block: usize) -> &[u8] {
        self.data[self.layout.v(kv_head, block)].as_flattened()
    }
}
