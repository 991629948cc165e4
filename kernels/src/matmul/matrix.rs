//! Packed matrices, and packing them.

use super::MatmulOps;
use crate::format::{ActivationKind, GROUP_ROWS, WeightType};
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::memory::{AllocError, Arena, HugeBuffer};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Why a matrix cannot be packed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// A row is not a whole number of blocks, or there is none.
    #[error("a row of {cols} {} weights is not a whole number of blocks of {}", ty.name(), ty.block_len())]
    Cols {
        /// The weights' type.
        ty: WeightType,
        /// The length of a row.
        cols: usize,
    },
    /// There are no rows.
    #[error("a matrix without rows cannot be packed")]
    Rows,
    /// The source is not the matrix's bytes.
    #[error("a matrix of {expected} bytes was given {found}")]
    Source {
        /// Bytes of the matrix in its file.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// Packed bytes made elsewhere that are not this matrix's.
    #[error(
        "a packed matrix of {expected} bytes, to start at a multiple of {ALIGN}, was given {found} bytes at {address}"
    )]
    Shared {
        /// Bytes of the packed matrix.
        expected: usize,
        /// Bytes that were given.
        found: usize,
        /// Where they start, modulo [`ALIGN`].
        address: usize,
    },
    /// A matrix over shared bytes cannot be packed into.
    #[error("a matrix over shared bytes is packed already")]
    ReadOnly,
}

/// What the address of packed bytes must be a multiple of.
pub const ALIGN: usize = 64;

/// Bytes that several owners read: a mapped file, say.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Where packed weights are.
enum Data {
    /// Memory of the matrix's own.
    Own(HugeBuffer),
    /// A part of bytes that others read too.
    Shared(SharedBytes, Range<usize>),
}

impl Deref for Data {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Data::Own(buffer) => buffer,
            Data::Shared(bytes, range) => &(**bytes).as_ref()[range.clone()],
        }
    }
}

/// Bytes of a packed `[rows, cols]` matrix.
///
/// # Errors
///
/// `cols` is not a whole number of blocks, or a size is zero or wraps.
pub fn packed_bytes(ty: WeightType, rows: usize, cols: usize) -> Result<usize, PackError> {
    if cols == 0 || !cols.is_multiple_of(ty.block_len()) {
        return Err(PackError::Cols { ty, cols });
    }
    if rows == 0 {
        return Err(PackError::Rows);
    }
    let wraps = AllocError { bytes: usize::MAX };
    let group_bytes = (cols / ty.block_len()).checked_mul(GROUP_ROWS * ty.block_bytes());
    let bytes = group_bytes.and_then(|bytes| bytes.checked_mul(rows.div_ceil(GROUP_ROWS)));
    Ok(bytes.ok_or(wraps)?)
}

/// A weight matrix in packed form, with the functions of its format at one level.
pub struct PackedMatrix {
    rows: usize,
    cols: usize,
    ty: WeightType,
    group_bytes: usize,
    data: Data,
    ops: &'static MatmulOps,
}

impl PackedMatrix {
    /// Memory for a `[rows, cols]` matrix (`cols` is k), all zero until a [`PackJob`] fills it.
    ///
    /// # Errors
    ///
    /// `cols` is not a whole number of blocks, a size is zero or wraps, or memory is short.
    pub fn allocate(
        kernels: Kernels,
        ty: WeightType,
        rows: usize,
        cols: usize,
    ) -> Result<PackedMatrix, PackError> {
        let data = HugeBuffer::zeroed(packed_bytes(ty, rows, cols)?)?;
        Ok(PackedMatrix::over(kernels, ty, rows, cols, Data::Own(data)))
    }

    /// As [`PackedMatrix::allocate`], with memory from `arena`, of which it takes
    /// [`Arena::takes`] of [`packed_bytes`].
    ///
    /// # Errors
    ///
    /// As [`PackedMatrix::allocate`]; memory is short when the arena is full.
    pub fn allocate_in(
        arena: &mut Arena,
        kernels: Kernels,
        ty: WeightType,
        rows: usize,
        cols: usize,
    ) -> Result<PackedMatrix, PackError> {
        let data = arena.zeroed(packed_bytes(ty, rows, cols)?)?;
        Ok(PackedMatrix::over(kernels, ty, rows, cols, Data::Own(data)))
    }

    /// A matrix that was packed before, at any level: `range` of `bytes` is what
    /// [`PackedMatrix::data`] gave then. Whatever the bytes are, products are defined: they are numbers.
    ///
    /// # Errors
    ///
    /// `cols` is not a whole number of blocks, a size is zero or wraps, `range` lies outside of
    /// `bytes`, has another length than [`packed_bytes`] or does not start at a multiple of [`ALIGN`].
    pub fn shared(
        kernels: Kernels,
        ty: WeightType,
        rows: usize,
        cols: usize,
        bytes: SharedBytes,
        range: Range<usize>,
    ) -> Result<PackedMatrix, PackError> {
        let expected = packed_bytes(ty, rows, cols)?;
        let part = (*bytes).as_ref().get(range.clone()).unwrap_or_default();
        let address = part.as_ptr().addr() % ALIGN;
        if part.len() != expected || address != 0 {
            return Err(PackError::Shared {
                expected,
                found: part.len(),
                address,
            });
        }
        let data = Data::Shared(bytes, range);
        Ok(PackedMatrix::over(kernels, ty, rows, cols, data))
    }

    /// A matrix of checked sizes over memory of [`packed_bytes`].
    fn over(
        kernels: Kernels,
        ty: WeightType,
        rows: usize,
        cols: usize,
        data: Data,
    ) -> PackedMatrix {
        PackedMatrix {
            rows,
            cols,
            ty,
            group_bytes: data.len() / rows.div_ceil(GROUP_ROWS),
            data,
            ops: &kernels.0.matmul[ty as usize],
        }
    }

    /// Output features.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input features: the length of a row, k.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The weights' type.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// The activations that this matrix is multiplied with.
    pub fn activation(&self) -> ActivationKind {
        self.ty.activation()
    }

    /// Groups of sixteen rows.
    pub fn n_groups(&self) -> usize {
        self.rows.div_ceil(GROUP_ROWS)
    }

    /// The packed weights: the same bytes at every level.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Bytes of the packed weights: what a product reads.
    pub fn packed_bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes of the weights in their file.
    pub fn source_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// Bytes of one group, packed or in the file.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// Bytes of one row in the file.
    pub fn row_bytes(&self) -> usize {
        self.group_bytes / GROUP_ROWS
    }

    /// Copies row `row` out of its group, to `out`, in the file's form: the very bytes that were
    /// packed, so that a table that is both embedding and output matrix is in memory once.
    ///
    /// # Panics
    ///
    /// When there is no such row, or `out` is not [`PackedMatrix::row_bytes`] long.
    pub fn unpack_row(&self, row: usize, out: &mut [u8]) {
        assert!(row < self.rows, "no row {row} among {}", self.rows);
        assert_eq!(out.len(), self.row_bytes(), "a row's bytes");
        let group = row / GROUP_ROWS;
        (self.ops.unpack)(self.groups(group..group + 1), row % GROUP_ROWS, out);
    }

    /// The packed bytes of groups `range`.
    #[inline]
    pub(crate) fn groups(&self, range: Range<usize>) -> &[u8] {
        &self.data[range.start * self.group_bytes..range.end * self.group_bytes]
    }

    #[inline]
    pub(crate) fn ops(&self) -> &'static MatmulOps {
        self.ops
    }
}

impl std::fmt::Debug for PackedMatrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackedMatrix")
            .field("ty", &self.ty)
            .field("rows", &self.rows)
            .field("cols", &self.cols)
            .finish_non_exhaustive()
    }
}

/// Packs a matrix, or a run of its groups, from its bytes in the file, lanes taking groups of rows.
pub struct PackJob<'a> {
    src: &'a [u8],
    /// The groups' packed bytes.
    data: Disjoint<'a, u8>,
    groups: usize,
    group_bytes: usize,
    /// What stands in for rows past the matrix's last.
    zero_row: Vec<u8>,
    ops: &'static MatmulOps,
}

impl<'a> PackJob<'a> {
    /// Packs `src`, the file's `rows * cols` weights row by row, into `to`.
    ///
    /// # Errors
    ///
    /// `src` is not [`PackedMatrix::source_bytes`] long, or the matrix is [shared](PackedMatrix::shared).
    pub fn new(to: &'a mut PackedMatrix, src: &'a [u8]) -> Result<PackJob<'a>, PackError> {
        let groups = 0..to.n_groups();
        PackJob::groups(to, groups, src)
    }

    /// Packs groups `groups` alone; `src` is their rows in the file, so that a large matrix can be
    /// packed piece by piece.
    ///
    /// # Errors
    ///
    /// `src` is not those rows' bytes long, or the matrix is [shared](PackedMatrix::shared).
    ///
    /// # Panics
    ///
    /// When the matrix has no such groups.
    pub fn groups(
        to: &'a mut PackedMatrix,
        groups: Range<usize>,
        src: &'a [u8],
    ) -> Result<PackJob<'a>, PackError> {
        assert!(
            groups.start <= groups.end && groups.end <= to.n_groups(),
            "no such groups"
        );
        let rows = to.rows.min(groups.end * GROUP_ROWS) - groups.start * GROUP_ROWS;
        let expected = rows * to.row_bytes();
        if src.len() != expected {
            return Err(PackError::Source {
                expected,
                found: src.len(),
            });
        }
        let (group_bytes, row_bytes) = (to.group_bytes, to.row_bytes());
        let bytes = groups.start * group_bytes..groups.end * group_bytes;
        let Data::Own(data) = &mut to.data else {
            return Err(PackError::ReadOnly);
        };
        Ok(PackJob {
            src,
            data: Disjoint::new(&mut data[bytes]),
            groups: groups.len(),
            group_bytes,
            zero_row: vec![0; row_bytes],
            ops: to.ops,
        })
    }
}

impl Job for PackJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let row_bytes = self.group_bytes / GROUP_ROWS;
        while let Some(g) = part.claim_one(self.groups) {
            let mut rows = [self.zero_row.as_slice(); GROUP_ROWS];
            let from_group = self.src[g * self.group_bytes..].chunks_exact(row_bytes);
            for (row, bytes) in rows.iter_mut().zip(from_group) {
                *row = bytes;
            }
            // SAFETY: this job's only use of claims; each group has its own range.
            let out = unsafe {
                self.data
                    .slice(g * self.group_bytes..(g + 1) * self.group_bytes)
            };
            (self.ops.pack)(&rows, out);
        }
    }
}
