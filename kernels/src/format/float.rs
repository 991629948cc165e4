//! Float formats: one weight is one number.
//!
//! # Packed layout
//!
//! For each k in ascending order, the sixteen rows' weights at k.

use super::{GROUP_ROWS, Pack, halves, put_half};
use crate::memory::Plain;
use crate::simd::Simd;

/// What a matmul asks of one column of sixteen rows.
pub(crate) trait FloatFormat: 'static {
    /// The column's bytes.
    type Column: Plain;
    /// The weights, exactly.
    fn load<S: Simd>(s: S, column: &Self::Column) -> S::F32;
}

/// IEEE single precision.
pub(crate) struct F32;
/// IEEE half precision.
pub(crate) struct F16;
/// The upper half of an f32.
pub(crate) struct Bf16;

impl Pack for F32 {
    const FILE_BYTES: usize = 4;
    type Packed = [f32; 16];
    fn pack(rows: &[&[u8]; GROUP_ROWS], out: &mut [f32; 16]) {
        *out = rows.map(|row| f32::from_le_bytes([row[0], row[1], row[2], row[3]]));
    }
    fn unpack(packed: &[f32; 16], r: usize, out: &mut [u8]) {
        out.copy_from_slice(&packed[r].to_le_bytes());
    }
}

impl FloatFormat for F32 {
    type Column = [f32; 16];
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[f32; 16]) -> S::F32 {
        s.load(column)
    }
}

impl Pack for F16 {
    const FILE_BYTES: usize = 2;
    type Packed = [u16; 16];
    fn pack(rows: &[&[u8]; GROUP_ROWS], out: &mut [u16; 16]) {
        *out = halves(rows, 0);
    }
    fn unpack(packed: &[u16; 16], r: usize, out: &mut [u8]) {
        put_half(packed[r], out, 0);
    }
}

impl FloatFormat for F16 {
    type Column = [u16; 16];
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[u16; 16]) -> S::F32 {
        s.load_f16(column)
    }
}

impl Pack for Bf16 {
    const FILE_BYTES: usize = 2;
    type Packed = [u16; 16];
    fn pack(rows: &[&[u8]; GROUP_ROWS], out: &mut [u16; 16]) {
        *out = halves(rows, 0);
    }
    fn unpack(packed: &[u16; 16], r: usize, out: &mut [u8]) {
        put_half(packed[r], out, 0);
    }
}

impl FloatFormat for Bf16 {
    type Column = [u16; 16];
    #[inline(always)]
    fn load<S: Simd>(s: S, column: &[u16; 16]) -> S::F32 {
        s.load_bf16(column)
    }
}
