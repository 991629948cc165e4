//! Scratch memory of attention, allocated once.

use super::kernels::Row;
use super::{BLOCK, QUERIES};
use crate::lanes::Disjoint;
use crate::memory::{AllocError, HugeBuffer};

/// Queries that share one widening of a block, about: a multiple of [`QUERIES`], and large enough
/// that widening is a small part of the work on a block.
pub(super) const TILE_QUERIES: usize = 8 * QUERIES;

/// What an [`AttentionWorkspace`] must serve: the largest of each over all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Lanes that run attention jobs.
    pub lanes: usize,
    /// Query heads.
    pub n_head: usize,
    /// Elements of a key.
    pub head_dim_k: usize,
    /// Elements of a value.
    pub head_dim_v: usize,
    /// Cached positions.
    pub n_ctx: usize,
}

/// Per-lane scratch, and the partial results of a split over blocks.
///
/// Pages are taken from the system as they are first used.
pub struct AttentionWorkspace {
    shape: AttentionShape,
    /// Per lane, see [`Scratch`].
    pub(super) scratch: HugeBuffer<[f32; 16]>,
    /// Partial results: `[blocks][n_head][vectors]`.
    pub(super) o: HugeBuffer<[f32; 16]>,
    /// Their maxima, then their sums: `[blocks][n_head]`.
    pub(super) m: HugeBuffer<f32>,
    pub(super) l: HugeBuffer<f32>,
    /// What the partial results are of, for the merge to check.
    pub(super) split: Option<super::split::Split>,
}

impl AttentionWorkspace {
    /// A workspace for `shape`.
    ///
    /// # Errors
    ///
    /// [`AllocError`] when there is no memory.
    pub fn allocate(shape: AttentionShape) -> Result<AttentionWorkspace, AllocError> {
        let product = |a: usize, b: usize| a.checked_mul(b).ok_or(AllocError { bytes: usize::MAX });
        let partials = product(shape.n_head, shape.n_ctx.div_ceil(BLOCK))?;
        // Nothing else is near overflow if these two, of the same order, are not.
        product(shape.head_dim_k.max(shape.head_dim_v), 1 << 20)?;
        product(shape.n_head, 1 << 20)?;
        let lane = product(queries(&shape), shape.head_dim_k.max(shape.head_dim_v))
            .map(|_| lane_vectors(&shape))?;
        Ok(AttentionWorkspace {
            shape,
            scratch: HugeBuffer::zeroed(product(shape.lanes, lane)?)?,
            o: HugeBuffer::zeroed(product(partials, shape.head_dim_v.div_ceil(16))?)?,
            m: HugeBuffer::zeroed(partials)?,
            l: HugeBuffer::zeroed(partials)?,
            split: None,
        })
    }

    /// The shape it was allocated for.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// The memory reserved, in bytes.
    pub fn bytes(&self) -> usize {
        self.scratch.bytes() + self.o.bytes() + self.m.bytes() + self.l.bytes()
    }
}

/// The most queries in a tile.
fn queries(shape: &AttentionShape) -> usize {
    TILE_QUERIES.max(shape.n_head)
}

/// Vectors of sixteen in one lane's scratch.
pub(super) fn lane_vectors(shape: &AttentionShape) -> usize {
    let queries = queries(shape);
    let vectors = shape.head_dim_v.div_ceil(16);
    let panel = (queries * shape.head_dim_k).div_ceil(16);
    let sums = 2 * queries.div_ceil(16);
    let block = QUERIES * (BLOCK / 16 + vectors);
    let wide = shape.head_dim_k * (BLOCK / 16) + BLOCK * vectors;
    panel + sums + block + queries * vectors + wide
}

/// One lane's scratch for a tile of queries.
pub(super) struct Scratch<'a> {
    /// Query panels of up to [`QUERIES`] each, `[head_dim_k][n]`, one after another.
    pub(super) panels: &'a mut [f32],
    /// Running maxima and sums, `[queries]`.
    pub(super) m: &'a mut [f32],
    pub(super) l: &'a mut [f32],
    /// Running outputs, `[queries][vectors]`.
    pub(super) o: &'a mut [[f32; 16]],
    /// Scores of one panel, `[QUERIES]`.
    pub(super) scores: &'a mut [Row<f32>],
    /// Outputs of one panel on one block, `[QUERIES][vectors]`.
    pub(super) block_o: &'a mut [[f32; 16]],
    /// A widened block: keys `[head_dim_k]`, values `[64][vectors]`.
    pub(super) k: &'a mut [Row<f32>],
    pub(super) v: &'a mut [[f32; 16]],
}

impl<'a> Scratch<'a> {
    /// Lane `index`'s scratch, cut for tiles of `queries` with the given head sizes.
    ///
    /// # Safety
    ///
    /// - No other scratch of the same lane is in use.
    pub(super) unsafe fn of_lane(
        all: &'a Disjoint<'_, [f32; 16]>,
        lane_vectors: usize,
        index: usize,
        queries: usize,
        head_dim_k: usize,
        vectors: usize,
    ) -> Scratch<'a> {
        // SAFETY: lanes' ranges are disjoint; the caller vouches for this lane's.
        let lane = unsafe { all.slice(index * lane_vectors..(index + 1) * lane_vectors) };
        let (panels, lane) = lane.split_at_mut((queries * head_dim_k).div_ceil(16));
        let (m, lane) = lane.split_at_mut(queries.div_ceil(16));
        let (l, lane) = lane.split_at_mut(queries.div_ceil(16));
        let (o, lane) = lane.split_at_mut(queries * vectors);
        let (scores, lane) = lane.split_at_mut(QUERIES * (BLOCK / 16));
        let (block_o, lane) = lane.split_at_mut(QUERIES * vectors);
        let (k, lane) = lane.split_at_mut(head_dim_k * (BLOCK / 16));
        let (v, _) = lane.split_at_mut(BLOCK * vectors);
        Scratch {
            panels: panels.as_flattened_mut(),
            m: &mut m.as_flattened_mut()[..queries],
            l: &mut l.as_flattened_mut()[..queries],
            o,
            scores: scores.as_chunks_mut().0,
            block_o,
            k: k.as_chunks_mut().0,
            v,
        }
    }
}
