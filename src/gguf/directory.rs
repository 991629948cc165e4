//! The tensor directory: every entry is checked when it is read, and all of them together
//! against the data section.

use super::TensorInfo;
use super::cursor::{Cursor, Flaw};
use super::error::{Fault, GgufError, Place};
use super::parse::{Parser, limits};
use super::types::TensorType;
use std::collections::HashMap;

impl Parser<'_> {
    /// The tensor directory; data offsets are still relative to the data's start.
    pub(super) fn directory(&mut self, n_tensors: u64) -> Result<Vec<TensorInfo>, GgufError> {
        let reserve = n_tensors.min(limits::RESERVE) as usize;
        let mut tensors: Vec<TensorInfo> = Vec::with_capacity(reserve);
        let mut names: HashMap<String, u64> = HashMap::with_capacity(reserve);
        for i in 0..n_tensors {
            let at = self.cursor.pos();
            let name = self
                .tensor_name()
                .map_err(|flaw| self.error(flaw, Place::Entry(i)))?;
            let place = || Place::Tensor(name.as_str().into());
            if let Some(&first) = names.get(&name) {
                return Err(self.error(Cursor::flaw(at, Fault::NameDuplicate { first }), place()));
            }
            let tensor = self
                .tensor(name.clone(), at)
                .map_err(|flaw| self.error(flaw, place()))?;
            names.insert(name, at);
            tensors.push(tensor);
        }
        Ok(tensors)
    }

    fn tensor_name(&mut self) -> Result<String, Flaw> {
        let at = self.cursor.pos();
        let name = self.cursor.string("the tensor's name", u64::MAX)?;
        let len = name.len() as u64;
        let fault = if name.is_empty() {
            Fault::NameEmpty
        } else if len > limits::NAME_BYTES {
            Fault::NameLong {
                len,
                limit: limits::NAME_BYTES,
            }
        } else if name.contains('\0') {
            Fault::NameNul
        } else {
            return Ok(name);
        };
        Err(Cursor::flaw(at, fault))
    }

    /// The rest of a directory entry: shape, type and offset, with the size they make.
    fn tensor(&mut self, name: String, entry: u64) -> Result<TensorInfo, Flaw> {
        let at = self.cursor.pos();
        let n_dims = self.cursor.u32("the number of dimensions")?;
        if !(1..=4).contains(&n_dims) {
            return Err(Cursor::flaw(at, Fault::Dimensions(n_dims)));
        }
        let shape_at = self.cursor.pos();
        let mut shape = Vec::with_capacity(4);
        for axis in 0..n_dims as usize {
            let at = self.cursor.pos();
            let size = self.cursor.u64("a dimension")?.cast_signed();
            if size <= 0 {
                return Err(Cursor::flaw(at, Fault::Dimension { axis, size }));
            }
            shape.push(size.cast_unsigned());
        }
        let type_at = self.cursor.pos();
        let type_id = self.cursor.u32("the tensor type")?;
        let ty = TensorType::from_id(type_id).ok_or_else(|| {
            let fault = match TensorType::removed_name(type_id) {
                Some(name) => Fault::TensorTypeRemoved { id: type_id, name },
                None => Fault::TensorType(type_id),
            };
            Cursor::flaw(type_at, fault)
        })?;
        let n_bytes = size_of_shape(&shape, ty).map_err(|f| Cursor::flaw(shape_at, f))?;
        let offset = self.cursor.u64("the data offset")?;
        Ok(TensorInfo {
            name,
            shape,
            ty,
            n_bytes,
            offset,
            shard: 0,
            entry,
        })
    }

    /// Makes the data offsets absolute and checks that every tensor lies aligned, inside the
    /// file, and apart from all others.
    pub(super) fn place(
        &self,
        tensors: &mut [TensorInfo],
        start: u64,
        alignment: u32,
        file_bytes: u64,
    ) -> Result<(), GgufError> {
        for tensor in tensors.iter_mut() {
            let (offset, size) = (tensor.offset, tensor.n_bytes);
            let end = start
                .checked_add(offset)
                .and_then(|from| from.checked_add(size));
            let fault = match end {
                _ if !offset.is_multiple_of(alignment.into()) => {
                    Fault::DataUnaligned { offset, alignment }
                }
                None => Fault::DataWraps { offset, size },
                Some(end) if end > file_bytes => Fault::DataPastEnd { end, file_bytes },
                Some(_) => {
                    tensor.offset = start + offset;
                    continue;
                }
            };
            let flaw = Cursor::flaw(tensor.entry, fault);
            return Err(self.error(flaw, Place::Tensor(tensor.name.as_str().into())));
        }
        let mut order: Vec<&TensorInfo> = tensors.iter().collect();
        order.sort_unstable_by_key(|tensor| tensor.offset);
        for pair in order.windows(2) {
            if pair[0].offset + pair[0].n_bytes > pair[1].offset {
                let fault = Fault::DataOverlaps {
                    other: pair[0].name.as_str().into(),
                };
                let flaw = Cursor::flaw(pair[1].entry, fault);
                return Err(self.error(flaw, Place::Tensor(pair[1].name.as_str().into())));
            }
        }
        Ok(())
    }
}

/// The bytes a tensor takes: rows of whole blocks, without padding.
pub(super) fn size_of_shape(shape: &[u64], ty: TensorType) -> Result<u64, Fault> {
    let elements = shape
        .iter()
        .try_fold(1u64, |product, &size| product.checked_mul(size));
    let elements = elements
        .filter(|&product| product <= i64::MAX as u64)
        .ok_or_else(|| Fault::ElementsOverflow(shape.into()))?;
    let (row, block) = (shape.first().copied().unwrap_or(1), ty.block_len());
    if !row.is_multiple_of(block) {
        return Err(Fault::RowNotBlocks { row, ty, block });
    }
    (elements / block)
        .checked_mul(ty.block_bytes())
        .ok_or_else(|| Fault::BytesOverflow {
            shape: shape.into(),
            ty,
        })
}
