//! Weights to blocks: the writing side of every weight type of the engine.
//!
//! Each format stores integers and the few numbers that turn them back into weights; what it
//! leaves open is which numbers. The quantizers here try a handful of step widths, take for each
//! the numbers with the least squared error, and keep the best ([`fit`]). Formats with sub-blocks
//! then round the sub-blocks' numbers to the super-block's scale and choose the integers anew.
//! Q8_0 alone follows ggml's rule to the bit (the largest magnitude over 127).
//!
//! The same values give the same bytes on every machine: only IEEE-754 additions, multiplications
//! and divisions of f32 in a fixed order, and no function of a platform's mathematical library.
//! Layouts follow the block structs of ggml-common.h.

mod block256;
mod block32;
mod fit;

use crate::gguf::TensorType;
use half::{bf16, f16};

/// Values that are no whole number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{values} values are no whole number of {ty} blocks of {block_len}")]
pub struct UnevenValues {
    /// How many values there are.
    pub values: usize,
    /// The type asked for.
    pub ty: TensorType,
    /// Values in one of its blocks.
    pub block_len: usize,
}

/// Encodes values as one weight type.
#[derive(Clone, Copy, Debug)]
pub struct Quantizer {
    ty: TensorType,
    /// Appends all of the values; their number is whole.
    encode: fn(&[f32], &mut Vec<u8>),
}

impl Quantizer {
    /// A quantizer of `ty`; `None` when it is no weight type of the engine.
    pub fn new(ty: TensorType) -> Option<Quantizer> {
        let encode: fn(&[f32], &mut Vec<u8>) = match ty {
            TensorType::F32 => |x, out| out.extend(x.iter().flat_map(|v| v.to_le_bytes())),
            TensorType::F16 => {
                |x, out| out.extend(x.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()))
            }
            TensorType::BF16 => {
                |x, out| out.extend(x.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()))
            }
            TensorType::Q4_0 => |x, out| blocks(x, out, block32::q4_0),
            TensorType::Q4_1 => |x, out| blocks(x, out, block32::q4_1),
            TensorType::Q5_0 => |x, out| blocks(x, out, block32::q5_0),
            TensorType::Q5_1 => |x, out| blocks(x, out, block32::q5_1),
            TensorType::Q8_0 => |x, out| blocks(x, out, block32::q8_0),
            TensorType::IQ4_NL => |x, out| blocks(x, out, block32::iq4_nl),
            TensorType::Q2_K => |x, out| blocks(x, out, block256::q2_k),
            TensorType::Q3_K => |x, out| blocks(x, out, block256::q3_k),
            TensorType::Q4_K => |x, out| blocks(x, out, block256::q4_k),
            TensorType::Q5_K => |x, out| blocks(x, out, block256::q5_k),
            TensorType::Q6_K => |x, out| blocks(x, out, block256::q6_k),
            TensorType::IQ4_XS => |x, out| blocks(x, out, block256::iq4_xs),
            _ => return None,
        };
        Some(Quantizer { ty, encode })
    }

    /// The type that it writes.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Appends the blocks of `values`, which are finite and within the range of f16: a block with
    /// others is valid, but its weights mean nothing.
    ///
    /// # Errors
    ///
    /// [`UnevenValues`] when they are no whole number of blocks; nothing is appended.
    pub fn encode(&self, values: &[f32], out: &mut Vec<u8>) -> Result<(), UnevenValues> {
        let block_len = self.ty.block_len() as usize;
        if !values.len().is_multiple_of(block_len) {
            return Err(UnevenValues {
                values: values.len(),
                ty: self.ty,
                block_len,
            });
        }
        out.reserve(values.len() / block_len * self.ty.block_bytes() as usize);
        (self.encode)(values, out);
        Ok(())
    }
}

/// Encodes block by block.
#[inline]
fn blocks<const N: usize>(x: &[f32], out: &mut Vec<u8>, encode: fn(&[f32; N], &mut Vec<u8>)) {
    for block in x.as_chunks().0 {
        encode(block, out);
    }
}

#[cfg(test)]
mod tests;
