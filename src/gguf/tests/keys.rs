//! Malformed metadata: keys, value types, bools, alignment.

use super::{Raw, key};
use crate::gguf::value::id;
use crate::gguf::{Fault, Place, Value};

#[test]
fn empty_key() {
    let raw = Raw::header(0, 1).key("", id::U32).filler();
    raw.fails(Place::Pair(0), 24, Fault::KeyEmpty);
}

#[test]
fn duplicate_key() {
    let raw = Raw::header(0, 2).key("twice", id::U32).u32(1);
    let second = raw.len();
    let raw = raw.key("twice", id::U32).u32(1);
    raw.fails(key("twice"), second, Fault::KeyDuplicate { first: 24 });
}

#[test]
fn key_2_to_the_64_minus_1_long() {
    let raw = Raw::header(0, 1).u64(u64::MAX).filler();
    let why = Fault::Truncated {
        what: "the key",
        needed: u64::MAX,
        left: 4096,
    };
    raw.fails(Place::Pair(0), 24, why);
}

#[test]
fn key_past_the_end() {
    let raw = Raw::header(0, 1).u64(4097).filler();
    let why = Fault::Truncated {
        what: "the key",
        needed: 4097,
        left: 4096,
    };
    raw.fails(Place::Pair(0), 24, why);
}

#[test]
fn key_longer_than_the_format_allows() {
    let raw = Raw::header(0, 1)
        .key(&"k".repeat(65536), id::U8)
        .bytes(&[0]);
    let why = Fault::Limit {
        what: "bytes in one string",
        count: 65536,
        limit: 65535,
    };
    raw.fails(Place::Pair(0), 24, why);
    let raw = Raw::header(0, 1)
        .key(&"k".repeat(65535), id::U8)
        .bytes(&[0]);
    assert_eq!(raw.parse().unwrap().metadata.len(), 1);
}

#[test]
fn key_not_utf8() {
    let raw = Raw::header(0, 1).u64(4).bytes(b"ab\xffd").filler();
    let why = Fault::NotUtf8 {
        what: "the key",
        valid: 2,
    };
    raw.fails(Place::Pair(0), 24 + 8 + 2, why);
}

#[test]
fn key_with_nul() {
    let raw = Raw::header(0, 1).key("a\0b", id::U32).filler();
    raw.fails(Place::Pair(0), 24, Fault::KeyNul);
}

#[test]
fn long_and_odd_keys_are_quoted_in_part() {
    let name = format!("\u{1b}[31m{}", "k".repeat(2000));
    let text = Raw::header(0, 1)
        .key(&name, 99)
        .filler()
        .parse()
        .unwrap_err()
        .to_string();
    assert!(text.contains("key \"\\u{1b}[31mkkk"), "{text}");
    assert!(text.len() < 300, "{text}");
}

#[test]
fn unknown_value_type() {
    for unknown in [13, 255, u32::MAX] {
        let raw = Raw::header(0, 1).key("a", unknown).filler();
        raw.fails(key("a"), 24 + 9, Fault::ValueType(unknown));
    }
}

#[test]
fn bool_neither_0_nor_1() {
    for byte in [2, 255] {
        let raw = Raw::header(0, 1).key("a", id::BOOL).bytes(&[byte]);
        raw.fails(key("a"), 24 + 9 + 4, Fault::Bool(byte));
    }
}

#[test]
fn string_value_past_the_end() {
    for needed in [17, 1 << 63, u64::MAX] {
        let raw = Raw::header(0, 1)
            .key("a", id::STRING)
            .u64(needed)
            .bytes(&[b'x'; 16]);
        let why = Fault::Truncated {
            what: "the value",
            needed,
            left: 16,
        };
        raw.fails(key("a"), 24 + 9 + 4, why);
    }
}

#[test]
fn string_value_not_utf8() {
    let raw = Raw::header(0, 1)
        .key("a", id::STRING)
        .u64(3)
        .bytes(b"\xc3\xa9\xc3");
    let why = Fault::NotUtf8 {
        what: "the value",
        valid: 2,
    };
    raw.fails(key("a"), 24 + 9 + 4 + 8 + 2, why);
}

#[test]
fn string_value_beyond_the_limit() {
    let count = (1 << 26) + 1;
    let raw = Raw::header(0, 1)
        .key("a", id::STRING)
        .u64(count)
        .bytes(&vec![0; count as usize]);
    let why = Fault::Limit {
        what: "bytes in one string",
        count,
        limit: 1 << 26,
    };
    raw.fails(key("a"), 24 + 9 + 4, why);
}

#[test]
fn values_of_every_type_are_read() {
    let raw = Raw::header(0, 12)
        .key("u8", id::U8)
        .bytes(&[200])
        .key("i8", id::I8)
        .bytes(&(-5i8).to_le_bytes())
        .key("u16", id::U16)
        .bytes(&65000u16.to_le_bytes())
        .key("i16", id::I16)
        .bytes(&(-300i16).to_le_bytes())
        .key("u32", id::U32)
        .u32(4_000_000_000)
        .key("i32", id::I32)
        .bytes(&(-70_000i32).to_le_bytes())
        .key("f32", id::F32)
        .bytes(&1.5f32.to_le_bytes())
        .key("bool", id::BOOL)
        .bytes(&[1])
        .key("string", id::STRING)
        .string("héllo\0")
        .key("u64", id::U64)
        .u64(u64::MAX)
        .key("i64", id::I64)
        .bytes(&i64::MIN.to_le_bytes())
        .key("f64", id::F64)
        .bytes(&(-0.1f64).to_le_bytes());
    let metadata = raw.parse().unwrap().metadata;
    let wanted = [
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-5)),
        ("u16", Value::U16(65000)),
        ("i16", Value::I16(-300)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-70_000)),
        ("f32", Value::F32(1.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("héllo\0".into())),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(-0.1)),
    ];
    assert!(
        metadata
            .iter()
            .eq(wanted.iter().map(|(key, value)| (*key, value)))
    );
}

fn aligned(value: u32) -> Raw {
    Raw::header(0, 1)
        .key("general.alignment", id::U32)
        .u32(value)
}

#[test]
fn alignment_0() {
    let why = Fault::Alignment {
        value: 0,
        limit: 1 << 21,
    };
    aligned(0).fails(key("general.alignment"), 24, why);
}

#[test]
fn alignment_not_a_power_of_two() {
    for value in [3, 24, 33, u32::MAX] {
        let why = Fault::Alignment {
            value,
            limit: 1 << 21,
        };
        aligned(value).fails(key("general.alignment"), 24, why);
    }
}

#[test]
fn alignment_2_to_the_31() {
    let why = Fault::Alignment {
        value: 1 << 31,
        limit: 1 << 21,
    };
    aligned(1 << 31).fails(key("general.alignment"), 24, why);
}

#[test]
fn alignment_of_the_wrong_type() {
    let raw = Raw::header(0, 1).key("general.alignment", id::U64).u64(32);
    raw.fails(
        key("general.alignment"),
        24,
        Fault::AlignmentType { found: "u64" },
    );
    let raw = Raw::header(0, 1)
        .key("general.alignment", id::STRING)
        .string("32");
    raw.fails(
        key("general.alignment"),
        24,
        Fault::AlignmentType { found: "string" },
    );
}

#[test]
fn alignments_that_are_right() {
    for value in [1, 8, 64, 4096, 1 << 21] {
        let raw = Raw::header(1, 1)
            .key("general.alignment", id::U32)
            .u32(value);
        let raw = raw.tensor("t", &[2], 0, 0).data(value as usize, 8);
        let tensor = raw.parse().unwrap().tensors.remove(0);
        assert_eq!(tensor.offset, raw.len() - 8);
    }
}
