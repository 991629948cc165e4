//! Weight formats: what a GGUF file stores, and how this crate packs it.
//!
//! Three families, a file each:
//!
//! - [`block32`]: blocks of 32 weights with one scale, multiplied with [`ActivationKind::Q8x32`]
//!   activations: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL,
//! - [`superblock`]: super-blocks of 256 weights with integer sub-block scales, multiplied with
//!   [`ActivationKind::Q8x256`] activations: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS,
//! - [`float`]: F32, F16, BF16, multiplied with f32 activations.
//!
//! # Packing
//!
//! Sixteen rows make a group, and a group's blocks follow each other along k. A packed block
//! holds the sixteen rows' blocks for the same k, taken apart and interleaved: 64-byte chunks in
//! which lane `r` (four bytes) belongs to row `r`. A vector lane is thus an output row, a dot
//! product needs no sum across lanes, and an activation is broadcast to all. A chunk's four bytes
//! are consecutive in k, as the byte dot-product instructions want. Rows past the last are zero.
//! Nothing is added: a packed group has exactly sixteen rows' bytes of the file.

pub(crate) mod block32;
mod dequantize;
pub(crate) mod float;
pub(crate) mod superblock;

pub use dequantize::{DequantizeError, Dequantizer, dequantize_row};

/// Rows that are interleaved in one group.
pub const GROUP_ROWS: usize = 16;

/// The types of weight that this crate multiplies. Names and layouts are ggml's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
pub enum WeightType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// 32 weights: f16 scale, 4-bit values minus 8. 4.5 bits a weight.
    Q4_0,
    /// 32 weights: f16 scale and minimum, 4-bit values. 5 bits a weight.
    Q4_1,
    /// 32 weights: f16 scale, 5-bit values minus 16. 5.5 bits a weight.
    Q5_0,
    /// 32 weights: f16 scale and minimum, 5-bit values. 6 bits a weight.
    Q5_1,
    /// 32 weights: f16 scale, 8-bit values. 8.5 bits a weight.
    Q8_0,
    /// 256 weights, 16 sub-blocks with 4-bit scales and minimums, 2-bit values. 2.625 bits.
    Q2_K,
    /// 256 weights, 16 sub-blocks with 6-bit scales, 3-bit values minus 4. 3.4375 bits.
    Q3_K,
    /// 256 weights, 8 sub-blocks with 6-bit scales and minimums, 4-bit values. 4.5 bits.
    Q4_K,
    /// 256 weights, 8 sub-blocks with 6-bit scales and minimums, 5-bit values. 5.5 bits.
    Q5_K,
    /// 256 weights, 16 sub-blocks with 8-bit scales, 6-bit values minus 32. 6.5625 bits.
    Q6_K,
    /// 32 weights: f16 scale, 4-bit indices into a table of 16 values. 4.5 bits a weight.
    IQ4_NL,
    /// 256 weights, 8 sub-blocks with 6-bit scales, 4-bit indices into the table. 4.25 bits.
    IQ4_XS,
}

/// The form in which a matmul wants its activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActivationKind {
    /// Unquantized.
    F32,
    /// 8-bit blocks of 32 (ggml's Q8_0 and Q8_1 together).
    Q8x32,
    /// 8-bit blocks of 256 (ggml's Q8_K).
    Q8x256,
}

impl ActivationKind {
    /// Values in a block: rows are a whole number of these long.
    pub const fn block_len(self) -> usize {
        match self {
            ActivationKind::F32 => 1,
            ActivationKind::Q8x32 => 32,
            ActivationKind::Q8x256 => 256,
        }
    }
}

/// The non-linear 4-bit values of IQ4_NL and IQ4_XS (ggml's `kvalues_iq4nl`).
pub(crate) const IQ4_TABLE: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];

impl WeightType {
    /// All types, in the order of their declaration (`ALL[t as usize] == t`).
    pub const ALL: [WeightType; 15] = [
        WeightType::F32,
        WeightType::F16,
        WeightType::BF16,
        WeightType::Q4_0,
        WeightType::Q4_1,
        WeightType::Q5_0,
        WeightType::Q5_1,
        WeightType::Q8_0,
        WeightType::Q2_K,
        WeightType::Q3_K,
        WeightType::Q4_K,
        WeightType::Q5_K,
        WeightType::Q6_K,
        WeightType::IQ4_NL,
        WeightType::IQ4_XS,
    ];

    /// ggml's name.
    pub const fn name(self) -> &'static str {
        match self {
            WeightType::F32 => "F32",
            WeightType::F16 => "F16",
            WeightType::BF16 => "BF16",
            WeightType::Q4_0 => "Q4_0",
            WeightType::Q4_1 => "Q4_1",
            WeightType::Q5_0 => "Q5_0",
            WeightType::Q5_1 => "Q5_1",
            WeightType::Q8_0 => "Q8_0",
            WeightType::Q2_K => "Q2_K",
            WeightType::Q3_K => "Q3_K",
            WeightType::Q4_K => "Q4_K",
            WeightType::Q5_K => "Q5_K",
            WeightType::Q6_K => "Q6_K",
            WeightType::IQ4_NL => "IQ4_NL",
            WeightType::IQ4_XS => "IQ4_XS",
        }
    }

    /// The type of that ggml name.
    pub fn from_name(name: &str) -> Option<WeightType> {
        WeightType::ALL.into_iter().find(|ty| ty.name() == name)
    }

    /// Weights in a block: rows are a whole number of these long.
    pub const fn block_len(self) -> usize {
        self.activation().block_len()
    }

    /// Bytes of a block in the file.
    pub const fn block_bytes(self) -> usize {
        match self {
            WeightType::F32 => 4,
            WeightType::F16 | WeightType::BF16 => 2,
            WeightType::Q4_0 | WeightType::IQ4_NL => 18,
            WeightType::Q4_1 => 20,
            WeightType::Q5_0 => 22,
            WeightType::Q5_1 => 24,
            WeightType::Q8_0 => 34,
            WeightType::Q2_K => 84,
            WeightType::Q3_K => 110,
            WeightType::Q4_K => 144,
            WeightType::Q5_K => 176,
            WeightType::Q6_K => 210,
            WeightType::IQ4_XS => 136,
        }
    }

    /// The activations that a matmul with such weights takes.
    pub const fn activation(self) -> ActivationKind {
        match self {
            WeightType::F32 | WeightType::F16 | WeightType::BF16 => ActivationKind::F32,
            WeightType::Q4_0
            | WeightType::Q4_1
            | WeightType::Q5_0
            | WeightType::Q5_1
            | WeightType::Q8_0
            | WeightType::IQ4_NL => ActivationKind::Q8x32,
            WeightType::Q2_K
            | WeightType::Q3_K
            | WeightType::Q4_K
            | WeightType::Q5_K
            | WeightType::Q6_K
            | WeightType::IQ4_XS => ActivationKind::Q8x256,
        }
    }
}

/// What a product with a format does beside summing integers. Formats of one shape share the code
/// of everything past unpacking.
pub(crate) trait Shape: 'static {
    /// Whether chunks are signed bytes in the form of [`crate::simd::Simd::i8_operand`]; else
    /// unsigned ones of at most 63.
    const SIGNED: bool;
    /// What is to be taken off an unsigned value to get the weight, before scaling.
    const OFFSET: i32;
    /// Whether there are minimums.
    const HAS_MIN: bool;
    /// Sub-blocks with scales of their own, in a super-block: 8 or 16.
    const SCALES: usize;
}

/// The [`Shape`] of these constants.
pub(crate) struct ShapeOf<
    const SIGNED: bool,
    const OFFSET: i32,
    const HAS_MIN: bool,
    const SCALES: usize,
>;

impl<const SIGNED: bool, const OFFSET: i32, const HAS_MIN: bool, const SCALES: usize> Shape
    for ShapeOf<SIGNED, OFFSET, HAS_MIN, SCALES>
{
    const SIGNED: bool = SIGNED;
    const OFFSET: i32 = OFFSET;
    const HAS_MIN: bool = HAS_MIN;
    const SCALES: usize = SCALES;
}

/// How one format goes from file blocks to packed blocks, and back.
pub(crate) trait Pack {
    /// Bytes of one block in the file.
    const FILE_BYTES: usize;
    /// Sixteen rows' blocks, interleaved: exactly `16 * FILE_BYTES` bytes.
    type Packed: crate::memory::Plain;
    /// Interleaves one block of each of sixteen rows.
    fn pack(rows: &[&[u8]; GROUP_ROWS], out: &mut Self::Packed);
    /// Writes row `r`'s block, as [`Pack::pack`] was given it, to the `FILE_BYTES` of `out`.
    fn unpack(packed: &Self::Packed, r: usize, out: &mut [u8]);
}

/// Packs one group: `rows` are sixteen rows in the file's form, `out` is the packed group.
pub(crate) type PackFn = fn(rows: &[&[u8]; GROUP_ROWS], out: &mut [u8]);

/// The [`PackFn`] of `F`.
pub(crate) fn pack_group<F: Pack>(rows: &[&[u8]; GROUP_ROWS], out: &mut [u8]) {
    const { assert!(size_of::<F::Packed>() == GROUP_ROWS * F::FILE_BYTES) };
    for (b, block) in crate::memory::cast_mut::<F::Packed>(out)
        .iter_mut()
        .enumerate()
    {
        let at = b * F::FILE_BYTES;
        F::pack(&rows.map(|row| &row[at..at + F::FILE_BYTES]), block);
    }
}

/// Copies row `r` of a packed group to `out`, in the file's form.
pub(crate) type UnpackFn = fn(group: &[u8], r: usize, out: &mut [u8]);

/// The [`UnpackFn`] of `F`.
pub(crate) fn unpack_row<F: Pack>(group: &[u8], r: usize, out: &mut [u8]) {
    let blocks = crate::memory::cast::<F::Packed>(group);
    for (block, out) in blocks.iter().zip(out.chunks_exact_mut(F::FILE_BYTES)) {
        F::unpack(block, r, out);
    }
}

/// Four-byte words of each row's block, from byte `at` on, to lanes of successive chunks.
fn interleave(rows: &[&[u8]; GROUP_ROWS], at: usize, out: &mut [[u8; 64]]) {
    for (r, row) in rows.iter().enumerate() {
        let words = row[at..at + 4 * out.len()].as_chunks::<4>().0;
        for (chunk, word) in out.iter_mut().zip(words) {
            chunk[4 * r..4 * r + 4].copy_from_slice(word);
        }
    }
}

/// The little-endian u16 at byte `at` of each row's block.
fn halves(rows: &[&[u8]; GROUP_ROWS], at: usize) -> [u16; GROUP_ROWS] {
    rows.map(|row| u16::from_le_bytes([row[at], row[at + 1]]))
}

/// Lane `r`'s four bytes of a chunk.
fn lane(chunk: &[u8; 64], r: usize) -> [u8; 4] {
    chunk.as_chunks::<4>().0[r]
}

/// The inverse of [`interleave`] for row `r`: its words of successive chunks, to `out` from byte
/// `at` on.
fn gather(chunks: &[[u8; 64]], r: usize, out: &mut [u8], at: usize) {
    let words = out[at..at + 4 * chunks.len()].as_chunks_mut::<4>().0;
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = lane(chunk, r);
    }
}

/// The inverse of [`halves`] for one row: `value` to bytes `at` and `at + 1` of `out`.
fn put_half(value: u16, out: &mut [u8], at: usize) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_consistent() {
        for (i, ty) in WeightType::ALL.into_iter().enumerate() {
            assert_eq!(ty as usize, i);
            assert_eq!(WeightType::from_name(ty.name()), Some(ty));
        }
        assert_eq!(WeightType::from_name("Q9_9"), None);
    }
}
