//! Scratch memory of attention, allocated once.

use super::kernels::{Pairs, Row};
use super::{BLOCK, QUERIES};
use crate::lanes::Disjoint;
use crate::memory::{AllocError, HugeBuffer, Plain, cast_mut};

/// Queries that share one repacking of a block, about: a multiple of [`QUERIES`], and large enough
/// that repacking is a small part of the work on a block.
pub(super) const TILE_QUERIES: usize = 16 * QUERIES;

/// Bytes in the unit that scratch is measured in.
const LINE: usize = 64;

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
    pub(super) scratch: HugeBuffer<[u8; LINE]>,
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
            .map(|_| lane_lines(&shape))?;
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

/// What a lane's scratch is cut for.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) queries: usize,
    pub(super) head_dim_k: usize,
    /// Vectors of sixteen in a value.
    pub(super) vectors: usize,
}

impl Cut {
    /// Pairs in a key.
    fn pairs(self) -> usize {
        self.head_dim_k.div_ceil(2)
    }
}

/// Lines in one lane's scratch, whatever the level.
pub(super) fn lane_lines(shape: &AttentionShape) -> usize {
    panels_lines(shape).max(tiles_lines(shape))
}

/// Queries that share one repacking of a block on tile registers, which multiply so much faster
/// that repacking must be paid for by more: a multiple of [`TILE_ROWS`].
pub(super) const AMX_QUERIES: usize = 512;

/// Queries in a tile register.
pub(super) const TILE_ROWS: usize = 16;

/// Bytes of a tile register.
const TILE_BYTES: usize = 1024;

/// Lines of [`Scratch`].
fn panels_lines(shape: &AttentionShape) -> usize {
    let cut = Cut {
        queries: queries(shape),
        head_dim_k: shape.head_dim_k,
        vectors: shape.head_dim_v.div_ceil(16),
    };
    let floats = |n: usize| n.div_ceil(16);
    floats(cut.queries * cut.pairs())
        + 3 * floats(cut.queries)
        + cut.queries * cut.vectors
        + QUERIES * (size_of::<Row<f32>>() + size_of::<Pairs>()) / LINE
        + QUERIES * cut.vectors
        + 2 * size_of::<Row<f32>>() / LINE
        + floats(BLOCK) * cut.pairs()
        + BLOCK / 2 * cut.vectors
}

/// Lines of [`TileScratch`].
fn tiles_lines(shape: &AttentionShape) -> usize {
    let vectors = shape.head_dim_v.div_ceil(16);
    let k_tiles = shape.head_dim_k.div_ceil(64);
    let queries = AMX_QUERIES.max(shape.n_head).next_multiple_of(TILE_ROWS);
    let digits = 2 * (queries / TILE_ROWS * k_tiles + 4 * k_tiles + vectors) * TILE_BYTES;
    digits / LINE + 4 * queries.div_ceil(16) + queries * vectors + 2 * size_of::<Row<f32>>() / LINE
}

/// Memory that is handed out from its beginning, line by line.
pub(super) struct Carver<'a>(&'a mut [u8]);

impl<'a> Carver<'a> {
    /// Lane `index`'s memory.
    ///
    /// # Safety
    ///
    /// - No other memory of the same lane is in use.
    pub(super) unsafe fn of_lane(
        all: &'a Disjoint<'_, [u8; LINE]>,
        lane_lines: usize,
        index: usize,
    ) -> Carver<'a> {
        // SAFETY: lanes' ranges are disjoint; the caller vouches for this lane's.
        let lane = unsafe { all.slice(index * lane_lines..(index + 1) * lane_lines) };
        Carver(lane.as_flattened_mut())
    }

    /// The next `n` of anything.
    pub(super) fn take<T: Plain>(&mut self, n: usize) -> &'a mut [T] {
        let bytes = n * size_of::<T>();
        let (taken, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.next_multiple_of(LINE));
        self.0 = rest;
        cast_mut(&mut taken[..bytes])
    }
}

/// One lane's scratch for a tile of queries.
pub(super) struct Scratch<'a> {
    /// Query panels of up to [`QUERIES`] each, `[head_dim_k / 2][n]` pairs, one after another.
    pub(super) panels: &'a mut [i32],
    /// What each query's scores are multiplied by, `[queries]`.
    pub(super) scales: &'a mut [f32],
    /// Running maxima and sums, `[queries]`.
    pub(super) m: &'a mut [f32],
    pub(super) l: &'a mut [f32],
    /// Running outputs, `[queries][vectors]`.
    pub(super) o: &'a mut [[f32; 16]],
    /// One panel on one block.
    pub(super) block: BlockScratch<'a>,
    /// The inverses of a block's steps, of keys and of values.
    pub(super) inverses: &'a mut [Row<f32>],
    /// A repacked block: pairs of keys, `[head_dim_k / 2][64]`, and of values, `[32][vectors]`.
    pub(super) k: &'a mut [[i32; 16]],
    pub(super) v: &'a mut [[i32; 16]],
}

/// Scratch for one panel on one block.
pub(super) struct BlockScratch<'a> {
    /// Scores, `[QUERIES]`.
    pub(super) scores: &'a mut [Row<f32>],
    /// Weights, `[QUERIES]`.
    pub(super) weights: &'a mut [Pairs],
    /// Outputs, `[QUERIES][vectors]`.
    pub(super) o: &'a mut [[f32; 16]],
}

impl<'a> Scratch<'a> {
    /// Cuts a lane's memory.
    pub(super) fn cut(mut lane: Carver<'a>, cut: Cut) -> Scratch<'a> {
        Scratch {
            panels: lane.take(cut.queries * cut.pairs()),
            scales: lane.take(cut.queries),
            m: lane.take(cut.queries),
            l: lane.take(cut.queries),
            o: lane.take(cut.queries * cut.vectors),
            block: BlockScratch {
                scores: lane.take(QUERIES),
                weights: lane.take(QUERIES),
                o: lane.take(QUERIES * cut.vectors),
            },
            inverses: lane.take(2),
            k: lane.take(BLOCK / 16 * cut.pairs()),
            v: lane.take(BLOCK / 2 * cut.vectors),
        }
    }
}

/// One lane's scratch for a tile of queries on tile registers. Bytes of integers come as two planes
/// of signed digits, high and low.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(super) struct TileScratch<'a> {
    /// Queries, `[queries / 16][head_dim_k / 64][2]` tiles.
    pub(super) q: &'a mut [[[[u8; 64]; TILE_ROWS]; 2]],
    /// Each query's position, `[queries / 16]`.
    pub(super) positions: &'a mut [[i32; TILE_ROWS]],
    /// What each query's scores are multiplied by, then running maxima and sums, `[queries / 16]`.
    pub(super) scales: &'a mut [[f32; TILE_ROWS]],
    pub(super) m: &'a mut [[f32; TILE_ROWS]],
    pub(super) l: &'a mut [[f32; TILE_ROWS]],
    /// Running outputs, `[queries][vectors]`.
    pub(super) o: &'a mut [[f32; 16]],
    /// The inverses of a block's steps, of keys and of values.
    pub(super) inverses: &'a mut [Row<f32>],
    /// A repacked block's rows: keys `[head_dim_k / 64][4][2]` tiles, values `[vectors][2]` tiles.
    pub(super) k: &'a mut [[i32; 16]],
    pub(super) v: &'a mut [[i32; 16]],
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
impl<'a> TileScratch<'a> {
    /// Cuts a lane's memory; `cut.queries` is a multiple of [`TILE_ROWS`].
    pub(super) fn cut(mut lane: Carver<'a>, cut: Cut) -> TileScratch<'a> {
        let (tiles, k_tiles) = (cut.queries / TILE_ROWS, cut.head_dim_k.div_ceil(64));
        TileScratch {
            q: lane.take(tiles * k_tiles),
            positions: lane.take(tiles),
            scales: lane.take(tiles),
            m: lane.take(tiles),
            l: lane.take(tiles),
            o: lane.take(cut.queries * cut.vectors),
            inverses: lane.take(2),
            k: lane.take(k_tiles * 4 * 2 * TILE_ROWS),
            v: lane.take(cut.vectors * 2 * TILE_ROWS),
        }
    }
}
