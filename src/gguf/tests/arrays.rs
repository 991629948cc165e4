//! Malformed arrays.

use super::{Raw, key};
use crate::gguf::value::id;
use crate::gguf::{Array, Fault, Place, Strings, Value};

/// Where an array's element type stands under the one-letter key of [`array`].
const TYPE_AT: u64 = 24 + 9 + 4;
/// Where its count stands.
const COUNT_AT: u64 = TYPE_AT + 4;

/// An array under the key `a`, up to its elements.
fn array(element: u32, count: u64) -> Raw {
    Raw::header(0, 1)
        .key("a", id::ARRAY)
        .u32(element)
        .u64(count)
}

fn element(index: u64) -> Place {
    Place::Element("a".into(), index)
}

/// The value under `a`.
fn read(raw: &Raw) -> Array {
    match raw.parse().unwrap().metadata.get("a") {
        Some(Value::Array(array)) => array.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unknown_element_type() {
    for unknown in [13, 255, u32::MAX] {
        array(unknown, 1)
            .filler()
            .fails(key("a"), TYPE_AT, Fault::ElementType(unknown));
    }
}

#[test]
fn unknown_element_type_of_an_empty_array() {
    array(13, 0).fails(key("a"), TYPE_AT, Fault::ElementType(13));
}

#[test]
fn array_count_2_to_the_63() {
    for element in [id::U8, id::F64, id::STRING, id::ARRAY] {
        let why = Fault::Count {
            what: "array elements",
            count: 1 << 63,
            left: 4096,
        };
        array(element, 1 << 63)
            .filler()
            .fails(key("a"), COUNT_AT, why);
    }
}

/// Counts that wrap to a small number when multiplied by the element's size.
#[test]
fn array_count_wrapping() {
    for (element, size) in [(id::U32, 4), (id::U64, 8), (id::STRING, 8), (id::ARRAY, 12)] {
        let count = u64::MAX / size + 1;
        assert!(count.wrapping_mul(size) < 4096);
        let why = Fault::Count {
            what: "array elements",
            count,
            left: 4096,
        };
        array(element, count)
            .filler()
            .fails(key("a"), COUNT_AT, why);
    }
}

#[test]
fn array_count_past_the_end() {
    for (element, size) in [
        (id::U8, 1),
        (id::I8, 1),
        (id::BOOL, 1),
        (id::U16, 2),
        (id::I16, 2),
        (id::U32, 4),
        (id::I32, 4),
        (id::F32, 4),
        (id::U64, 8),
        (id::I64, 8),
        (id::F64, 8),
        (id::STRING, 8),
        (id::ARRAY, 12),
    ] {
        let count = 4096 / size + 1;
        let why = Fault::Count {
            what: "array elements",
            count,
            left: 4096,
        };
        array(element, count)
            .filler()
            .fails(key("a"), COUNT_AT, why);
    }
}

#[test]
fn arrays_beyond_the_limit_of_elements() {
    let count = (1 << 24) + 1;
    let raw = array(id::U8, count).bytes(&vec![0; count as usize]);
    let what = "array elements in one file";
    raw.fails(
        key("a"),
        COUNT_AT,
        Fault::Limit {
            what,
            count,
            limit: 1 << 24,
        },
    );
}

/// The limit counts all arrays of a file together, nested ones too.
#[test]
fn arrays_beyond_the_limit_in_sum() {
    let half = 1 << 23;
    let raw = array(id::U8, half)
        .bytes(&vec![0; half as usize])
        .key("b", id::ARRAY);
    let raw = raw.u32(id::ARRAY).u64(1).u32(id::BOOL);
    let at = raw.len();
    let mut raw = raw.u64(half).bytes(&vec![1; half as usize]);
    raw.0[16] = 2;
    let what = "array elements in one file";
    let why = Fault::Limit {
        what,
        count: 2 * half + 1,
        limit: 1 << 24,
    };
    raw.fails(Place::Element("b".into(), 0), at, why);
}

#[test]
fn string_element_past_the_end() {
    let raw = array(id::STRING, 2).string("ok").u64(100).bytes(b"short");
    let why = Fault::Truncated {
        what: "the string",
        needed: 100,
        left: 5,
    };
    raw.fails(element(1), COUNT_AT + 8 + 10, why);
}

#[test]
fn string_element_not_utf8() {
    let raw = array(id::STRING, 3)
        .string("ok")
        .string("é")
        .u64(2)
        .bytes(b"a\x80");
    let why = Fault::NotUtf8 {
        what: "the string",
        valid: 1,
    };
    raw.fails(element(2), raw.len() - 1, why);
}

#[test]
fn bool_element_neither_0_nor_1() {
    let raw = array(id::BOOL, 4).bytes(&[0, 1, 2, 1]);
    raw.fails(element(2), COUNT_AT + 8 + 2, Fault::Bool(2));
}

#[test]
fn nested_arrays_are_read() {
    let inner = |raw: Raw| raw.u32(id::U16).u64(2).bytes(&[1, 0, 2, 0]);
    let raw = inner(array(id::ARRAY, 2))
        .u32(id::STRING)
        .u64(1)
        .string("x");
    let wanted = vec![
        Array::U16(vec![1, 2]),
        Array::String(Strings::from_iter(["x"])),
    ];
    assert_eq!(read(&raw), Array::Nested(wanted));
}

#[test]
fn nested_array_of_an_unknown_type() {
    let raw = array(id::ARRAY, 2).u32(id::U8).u64(0).u32(77).u64(0);
    raw.fails(element(1), COUNT_AT + 8 + 12, Fault::ElementType(77));
}

#[test]
fn nested_array_past_the_end() {
    let raw = array(id::ARRAY, 1).u32(id::U32).u64(3).bytes(&[0; 8]);
    let why = Fault::Count {
        what: "array elements",
        count: 3,
        left: 8,
    };
    raw.fails(element(0), COUNT_AT + 8 + 4, why);
}

#[test]
fn arrays_nested_four_deep_are_read() {
    let raw = array(id::ARRAY, 1)
        .u32(id::ARRAY)
        .u64(1)
        .u32(id::ARRAY)
        .u64(1)
        .u32(id::U8)
        .u64(1);
    let nested = |array| Array::Nested(vec![array]);
    let wanted = nested(nested(nested(Array::U8(vec![9]))));
    assert_eq!(read(&raw.bytes(&[9])), wanted);
}

#[test]
fn deeply_nested_arrays() {
    for depth in [5, 100, 1_000_000] {
        let mut raw = array(id::ARRAY, 1);
        for _ in 1..depth {
            raw = raw.u32(id::ARRAY).u64(1);
        }
        raw.fails(element(0), TYPE_AT + 4 * 12, Fault::Nesting { limit: 4 });
    }
}

#[test]
fn the_first_of_two_bad_strings_is_named() {
    let raw = array(id::STRING, 2).u64(2).bytes(&[b'a', 0xFF]).u64(99);
    let why = Fault::NotUtf8 {
        what: "the string",
        valid: 1,
    };
    raw.fails(element(0), COUNT_AT + 8 + 8 + 1, why);
}

#[test]
fn empty_arrays_keep_their_type() {
    assert_eq!(read(&array(id::F32, 0)), Array::F32(vec![]));
    assert_eq!(read(&array(id::STRING, 0)), Array::String(Strings::new()));
    assert_eq!(read(&array(id::ARRAY, 0)), Array::Nested(vec![]));
}
