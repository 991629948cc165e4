//! Malformed tensor entries: names, shapes, types.

use super::{Raw, tensor};
use crate::gguf::{Fault, Place, TensorType};

/// Bytes of the name `t`, before which an entry's shape stands.
const SHAPE_AT: u64 = 24 + 9;

fn one(shape: &[u64], type_id: u32) -> Raw {
    Raw::header(1, 0).tensor("t", shape, type_id, 0)
}

#[test]
fn tensor_name_over_64_bytes() {
    let raw = Raw::header(1, 0)
        .tensor(&"n".repeat(65), &[1], 0, 0)
        .data(32, 4);
    raw.fails(Place::Entry(0), 24, Fault::NameLong { len: 65, limit: 64 });
    let raw = Raw::header(1, 0)
        .tensor(&"n".repeat(64), &[1], 0, 0)
        .data(32, 4);
    assert_eq!(raw.parse().unwrap().tensors[0].name.len(), 64);
}

#[test]
fn tensor_name_2_to_the_64_minus_1_long() {
    let raw = Raw::header(1, 0).u64(u64::MAX).filler();
    let why = Fault::Truncated {
        what: "the tensor's name",
        needed: u64::MAX,
        left: 4096,
    };
    raw.fails(Place::Entry(0), 24, why);
}

#[test]
fn tensor_name_empty() {
    let raw = Raw::header(1, 0).tensor("", &[1], 0, 0).filler();
    raw.fails(Place::Entry(0), 24, Fault::NameEmpty);
}

#[test]
fn tensor_name_not_utf8() {
    let raw = Raw::header(1, 0).u64(2).bytes(b"\xff\xff").filler();
    let why = Fault::NotUtf8 {
        what: "the tensor's name",
        valid: 0,
    };
    raw.fails(Place::Entry(0), 24 + 8, why);
}

#[test]
fn tensor_name_with_nul() {
    let raw = Raw::header(1, 0).tensor("a\0", &[1], 0, 0).filler();
    raw.fails(Place::Entry(0), 24, Fault::NameNul);
}

#[test]
fn tensor_name_duplicate() {
    let raw = Raw::header(2, 0).tensor("t", &[1], 0, 0);
    let second = raw.len();
    let raw = raw.tensor("t", &[1], 0, 32).data(32, 64);
    raw.fails(tensor("t"), second, Fault::NameDuplicate { first: 24 });
}

#[test]
fn zero_dimensions() {
    let raw = one(&[], 0).filler();
    raw.fails(tensor("t"), SHAPE_AT, Fault::Dimensions(0));
}

#[test]
fn five_dimensions() {
    let raw = one(&[1; 5], 0).filler();
    raw.fails(tensor("t"), SHAPE_AT, Fault::Dimensions(5));
}

#[test]
fn dimensions_2_to_the_32_minus_1() {
    let raw = Raw::header(1, 0).string("t").u32(u32::MAX).filler();
    raw.fails(tensor("t"), SHAPE_AT, Fault::Dimensions(u32::MAX));
}

#[test]
fn one_to_four_dimensions_are_read() {
    for shape in [&[6][..], &[6, 5], &[6, 5, 4], &[6, 5, 4, 3]] {
        let n: u64 = shape.iter().product();
        let info = one(shape, 0)
            .data(32, 4 * n as usize)
            .parse()
            .unwrap()
            .tensors
            .remove(0);
        assert_eq!(info.shape, shape);
        assert_eq!((info.row_len(), info.n_rows()), (6, n / 6));
        assert_eq!(
            (info.n_elements(), info.n_bytes, info.row_bytes()),
            (n, 4 * n, 24)
        );
    }
}

#[test]
fn dimension_0() {
    let raw = one(&[4, 0], 0).filler();
    let why = Fault::Dimension { axis: 1, size: 0 };
    raw.fails(tensor("t"), SHAPE_AT + 4 + 8, why);
}

#[test]
fn dimension_negative() {
    let raw = one(&[(-4i64).cast_unsigned(), 2], 0).filler();
    let why = Fault::Dimension { axis: 0, size: -4 };
    raw.fails(tensor("t"), SHAPE_AT + 4, why);
}

#[test]
fn products_that_overflow() {
    for shape in [
        &[1 << 32, 1 << 31][..],
        &[1 << 32, 1 << 32],
        &[1 << 16, 1 << 16, 1 << 16, 1 << 16],
        &[i64::MAX as u64, 3],
        &[3, i64::MAX as u64, 1, 2],
    ] {
        let why = Fault::ElementsOverflow(shape.into());
        one(shape, 0).filler().fails(tensor("t"), SHAPE_AT + 4, why);
    }
}

#[test]
fn products_whose_bytes_overflow() {
    let shape = [i64::MAX as u64];
    let why = Fault::BytesOverflow {
        shape: shape.into(),
        ty: TensorType::F32,
    };
    one(&shape, 0)
        .filler()
        .fails(tensor("t"), SHAPE_AT + 4, why);
    let shape = [1 << 31, 1 << 31];
    let why = Fault::BytesOverflow {
        shape: shape.into(),
        ty: TensorType::F64,
    };
    one(&shape, TensorType::F64.id())
        .filler()
        .fails(tensor("t"), SHAPE_AT + 4, why);
}

#[test]
fn unknown_type() {
    for id in [43, 1000, u32::MAX] {
        one(&[1], id)
            .filler()
            .fails(tensor("t"), SHAPE_AT + 4 + 8, Fault::TensorType(id));
    }
}

#[test]
fn removed_type() {
    for (id, name) in [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (36, "IQ4_NL_4_4"),
    ] {
        let raw = one(&[32], id).filler();
        raw.fails(
            tensor("t"),
            SHAPE_AT + 4 + 8,
            Fault::TensorTypeRemoved { id, name },
        );
    }
}

#[test]
fn row_not_a_multiple_of_the_block() {
    for ty in TensorType::ALL
        .iter()
        .copied()
        .filter(|ty| ty.block_len() > 1)
    {
        let block = ty.block_len();
        for row in [1, block / 2, block + 1] {
            // The rows together would hold whole blocks.
            let raw = one(&[row, block], ty.id()).filler();
            raw.fails(
                tensor("t"),
                SHAPE_AT + 4,
                Fault::RowNotBlocks { row, ty, block },
            );
        }
    }
}

#[test]
fn sizes_of_every_type() {
    for &ty in TensorType::ALL {
        let bytes = 3 * 2 * ty.block_bytes();
        let raw = one(&[2 * ty.block_len(), 3], ty.id()).data(32, bytes as usize);
        let info = raw.parse().unwrap().tensors.remove(0);
        assert_eq!((info.n_bytes, info.row_bytes()), (bytes, bytes / 3), "{ty}");
    }
}
