//! Tensor data in the wrong place.

use super::{Raw, tensor};
use crate::gguf::value::id;
use crate::gguf::{Fault, TensorType};

const F32: u32 = 0;

#[test]
fn offset_unaligned() {
    for offset in [1, 16, 33] {
        let raw = Raw::header(1, 0)
            .tensor("t", &[4], F32, offset)
            .data(32, 128);
        let why = Fault::DataUnaligned {
            offset,
            alignment: 32,
        };
        raw.fails(tensor("t"), 24, why);
    }
}

#[test]
fn offset_unaligned_by_the_files_own_alignment() {
    let raw = Raw::header(1, 1).key("general.alignment", id::U32).u32(64);
    let at = raw.len();
    let raw = raw.tensor("t", &[4], F32, 32).data(64, 128);
    raw.fails(
        tensor("t"),
        at,
        Fault::DataUnaligned {
            offset: 32,
            alignment: 64,
        },
    );
}

#[test]
fn data_overlapping() {
    let raw = Raw::header(2, 0).tensor("a", &[9], F32, 0);
    let second = raw.len();
    let raw = raw.tensor("b", &[8], F32, 32).data(32, 128);
    raw.fails(
        tensor("b"),
        second,
        Fault::DataOverlaps { other: "a".into() },
    );
}

#[test]
fn data_overlapping_in_another_order_than_the_directory() {
    let raw = Raw::header(3, 0)
        .tensor("late", &[8], F32, 64)
        .tensor("early", &[17], F32, 0)
        .tensor("last", &[8], F32, 96)
        .data(32, 256);
    raw.fails(
        tensor("late"),
        24,
        Fault::DataOverlaps {
            other: "early".into(),
        },
    );
}

#[test]
fn data_at_one_place_twice() {
    let raw = Raw::header(2, 0)
        .tensor("a", &[8], F32, 0)
        .tensor("b", &[8], F32, 0);
    let error = raw.data(32, 128).parse().unwrap_err().to_string();
    assert!(error.contains("overlaps that of tensor"), "{error}");
}

#[test]
fn data_past_the_end() {
    let raw = Raw::header(1, 0)
        .tensor("t", &[8], F32, 64)
        .data(32, 64 + 31);
    let why = Fault::DataPastEnd {
        end: raw.len() + 1,
        file_bytes: raw.len(),
    };
    raw.fails(tensor("t"), 24, why);
}

#[test]
fn data_without_a_data_section() {
    let raw = Raw::header(1, 0).tensor("t", &[1], F32, 0);
    let end = raw.len().next_multiple_of(32) + 4;
    raw.fails(
        tensor("t"),
        24,
        Fault::DataPastEnd {
            end,
            file_bytes: raw.len(),
        },
    );
}

#[test]
fn offset_wrapping() {
    let offset = u64::MAX - 31;
    let raw = Raw::header(1, 0)
        .tensor("t", &[4], F32, offset)
        .data(32, 128);
    raw.fails(tensor("t"), 24, Fault::DataWraps { offset, size: 16 });
}

/// Offset plus size alone does not wrap, but the start of the data section tips it over.
#[test]
fn offset_wrapping_by_the_start_of_the_data() {
    let offset = u64::MAX - 63;
    let raw = Raw::header(1, 0)
        .tensor("t", &[4], F32, offset)
        .data(32, 128);
    assert!(offset.checked_add(16).is_some());
    raw.fails(tensor("t"), 24, Fault::DataWraps { offset, size: 16 });
}

/// Each size has a value and so has its end, but the sum of both sizes wraps to a small one.
#[test]
fn sizes_that_wrap_only_in_sum() {
    let half = 1u64 << 63;
    let i8 = TensorType::I8.id();
    let shape = [1 << 31, 1 << 31];
    let (size, ty) = (half >> 1, TensorType::I8);
    assert_eq!(ty.block_bytes(), 1);
    assert_eq!(4u64.wrapping_mul(size), 0);
    let raw = Raw::header(4, 0)
        .tensor("a", &shape, i8, 0)
        .tensor("b", &shape, i8, size)
        .tensor("c", &shape, i8, 2 * size)
        .tensor("d", &shape, i8, 3 * size)
        .data(32, 128);
    let data_start = raw.len() - 128;
    let why = Fault::DataPastEnd {
        end: data_start + size,
        file_bytes: raw.len(),
    };
    raw.fails(tensor("a"), 24, why);
    // And when only the last of them reaches over.
    let raw = Raw::header(2, 0).tensor("a", &[8], F32, 0);
    let at = raw.len();
    let raw = raw.tensor("b", &[half - 1], i8, half).data(32, 128);
    assert_eq!(half.checked_add(half - 1), Some(u64::MAX));
    raw.fails(
        tensor("b"),
        at,
        Fault::DataWraps {
            offset: half,
            size: half - 1,
        },
    );
}

#[test]
fn gaps_and_any_order_are_fine() {
    let raw = Raw::header(2, 0)
        .tensor("late", &[8], F32, 96)
        .tensor("early", &[9], F32, 0)
        .data(32, 128);
    let start = raw.len() - 128;
    let tensors = raw.parse().unwrap().tensors;
    assert_eq!((tensors[0].offset, tensors[1].offset), (start + 96, start));
}
