//! Typed getters: absent keys, other types, ranges, lengths.

use crate::gguf::{Array, GgufError, Metadata, Origin, Value};
use std::borrow::Cow;
use std::path::Path;

fn metadata() -> Metadata {
    let mut metadata = Metadata::new(Path::new("some.gguf"));
    metadata.set("u8", 200u8);
    metadata.set("i64", -1i64);
    metadata.set("u64", u64::MAX);
    metadata.set("f32", 0.5f32);
    metadata.set("f64", 1e-5f64);
    metadata.set("bool", true);
    metadata.set("str", "text");
    metadata.set("strings", vec!["a", "b"]);
    metadata.set("f32s", vec![1.0f32, 2.0]);
    metadata.set("f64s", vec![1.0f64, 0.1]);
    metadata.set("i32s", vec![3i32, 1, 2]);
    metadata.set("u32s", vec![3u32, 1, u32::MAX]);
    metadata.set("mixed", vec![1i16, -2]);
    metadata.set("bools", vec![true, false]);
    metadata
}

#[test]
fn absent_keys_are_none() {
    let m = metadata();
    assert_eq!(m.u32("no").unwrap(), None);
    assert_eq!(m.f32("no").unwrap(), None);
    assert_eq!(m.bool("no").unwrap(), None);
    assert_eq!(m.str("no").unwrap(), None);
    assert_eq!(m.strings("no").unwrap(), None);
    assert_eq!(m.f32s("no").unwrap(), None);
    assert_eq!(m.u32s("no").unwrap(), None);
    assert_eq!(m.u32_or_array("no", 3).unwrap(), None);
}

#[test]
fn values_that_fit_are_given() {
    let m = metadata();
    assert_eq!(m.u32("u8").unwrap(), Some(200));
    assert_eq!(m.i32("i64").unwrap(), Some(-1));
    assert_eq!(m.u64("u64").unwrap(), Some(u64::MAX));
    assert_eq!(m.f32("f32").unwrap(), Some(0.5));
    assert_eq!(m.f32("f64").unwrap(), Some(1e-5));
    assert_eq!(m.bool("bool").unwrap(), Some(true));
    assert_eq!(m.str("str").unwrap(), Some("text"));
    assert!(m.strings("strings").unwrap().unwrap().iter().eq(["a", "b"]));
    assert!(matches!(
        m.f32s("f32s").unwrap(),
        Some(Cow::Borrowed([1.0, 2.0]))
    ));
    assert_eq!(m.f32s("f64s").unwrap().unwrap().as_ref(), [1.0, 0.1]);
    assert!(matches!(
        m.i32s("i32s").unwrap(),
        Some(Cow::Borrowed([3, 1, 2]))
    ));
    assert_eq!(m.u32s("i32s").unwrap().unwrap().as_ref(), [3, 1, 2]);
    assert_eq!(m.i32s("mixed").unwrap().unwrap().as_ref(), [1, -2]);
    assert_eq!(m.bools("bools").unwrap().unwrap(), [true, false]);
}

#[test]
fn required_key_missing() {
    let m = metadata();
    for error in [
        m.require_u32("general.x").unwrap_err(),
        m.require_f32("general.x").unwrap_err(),
        m.require_str("general.x").unwrap_err(),
        m.require_strings("general.x").map(|_| ()).unwrap_err(),
    ] {
        let GgufError::MissingKey { file, key } = &error else {
            panic!("{error}")
        };
        assert_eq!((&**file, &**key), (Path::new("some.gguf"), "general.x"));
        let text = error.to_string();
        assert!(
            text.starts_with("some.gguf: required key \"general.x\" is missing"),
            "{text}"
        );
    }
}

#[test]
fn required_key_of_the_wrong_type() {
    let m = metadata();
    for (error, wanted, found) in [
        (m.require_u32("str").unwrap_err(), "u32", "string"),
        (m.require_u32("f32").unwrap_err(), "u32", "f32"),
        (m.require_u32("bool").unwrap_err(), "u32", "bool"),
        (m.require_f32("u8").unwrap_err(), "f32", "u8"),
        (m.require_str("i64").unwrap_err(), "string", "i64"),
        (m.bool("u8").unwrap_err(), "bool", "u8"),
        (
            m.strings("f32s").map(|_| ()).unwrap_err(),
            "array of string",
            "array of f32",
        ),
        (
            m.f32s("i32s").map(|_| ()).unwrap_err(),
            "array of f32",
            "array of i32",
        ),
        (
            m.u32s("f32s").map(|_| ()).unwrap_err(),
            "array of u32",
            "array of f32",
        ),
        (
            m.bools("i32s").map(|_| ()).unwrap_err(),
            "array of bool",
            "array of i32",
        ),
    ] {
        let text = error.to_string();
        let GgufError::WrongType {
            wanted: w,
            found: f,
            ..
        } = error
        else {
            panic!("{text}")
        };
        assert_eq!((w, f), (wanted, found), "{text}");
        assert!(text.starts_with("some.gguf: key \""), "{text}");
    }
}

#[test]
fn scalar_for_array_and_array_for_scalar() {
    let m = metadata();
    for error in [
        m.require_strings("str").map(|_| ()).unwrap_err(),
        m.f32s("f32").map(|_| ()).unwrap_err(),
        m.i32s("u8").map(|_| ()).unwrap_err(),
        m.bools("bool").map(|_| ()).unwrap_err(),
        m.require_u32("u32s").map(|_| ()).unwrap_err(),
        m.require_str("strings").map(|_| ()).unwrap_err(),
    ] {
        assert!(matches!(error, GgufError::WrongType { .. }), "{error}");
    }
}

#[test]
fn integers_out_of_range() {
    let m = metadata();
    let check = |error: GgufError, at: Option<usize>, number: i128| {
        let text = error.to_string();
        let GgufError::OutOfRange { index, value, .. } = error else {
            panic!("{text}")
        };
        assert_eq!((index, value), (at, number), "{text}");
    };
    check(m.u32("i64").unwrap_err(), None, -1);
    check(m.u32("u64").unwrap_err(), None, u64::MAX.into());
    check(m.i32("u64").unwrap_err(), None, u64::MAX.into());
    check(m.u32s("mixed").unwrap_err(), Some(1), -2);
    check(m.i32s("u32s").unwrap_err(), Some(2), u32::MAX.into());
    check(m.u32_or_array("mixed", 2).unwrap_err(), Some(1), -2);
    check(m.u32_or_array("i64", 2).unwrap_err(), None, -1);
}

#[test]
fn a_scalar_or_an_array_for_every_layer() {
    let m = metadata();
    assert_eq!(m.u32_or_array("u8", 3).unwrap(), Some(vec![200; 3]));
    assert_eq!(
        m.u32_or_array("u32s", 3).unwrap(),
        Some(vec![3, 1, u32::MAX])
    );
    assert_eq!(m.u32_or_array("i32s", 2).unwrap(), Some(vec![3, 1]));
    let error = m.u32_or_array("i32s", 4).unwrap_err();
    let text = error.to_string();
    let GgufError::ArrayTooShort {
        found: 3,
        needed: 4,
        ..
    } = error
    else {
        panic!("{text}")
    };
    for key in ["str", "f32"] {
        assert!(matches!(
            m.u32_or_array(key, 1),
            Err(GgufError::WrongType { .. })
        ));
    }
    assert!(matches!(
        m.u32_or_array("f32s", 1),
        Err(GgufError::WrongType { .. })
    ));
}

#[test]
fn errors_say_where_the_value_was_read() {
    use super::Raw;
    let raw = Raw::header(0, 1)
        .key("a", crate::gguf::value::id::U32)
        .u32(1);
    let mut metadata = raw.parse().unwrap().metadata;
    let error = metadata.require_str("a").unwrap_err();
    assert!(matches!(
        error,
        GgufError::WrongType {
            origin: Origin::File(24),
            ..
        }
    ));
    assert_eq!(
        error.to_string(),
        "some.gguf: key \"a\" (byte 24) is u32, but string is needed"
    );
    metadata.set("a", 1u32);
    let error = metadata.require_str("a").unwrap_err().to_string();
    assert_eq!(
        error,
        "some.gguf: key \"a\" (overridden) is u32, but string is needed"
    );
}

#[test]
fn set_keeps_the_place_of_a_key() {
    let mut m = Metadata::new(Path::new(""));
    assert!(m.is_empty());
    m.set("a", 1u32);
    m.set("b", Value::Array(Array::U8(vec![])));
    m.set("a", "again");
    let keys: Vec<&str> = m.iter().map(|(key, _)| key).collect();
    assert_eq!((keys, m.len()), (vec!["a", "b"], 2));
    assert_eq!(m.get("a"), Some(&Value::String("again".into())));
}
