//! The writer: what it writes is read back the same, and it refuses what a reader would.

use super::{Folder, Raw};
use crate::gguf::write::{GgufWriter, WriteError};
use crate::gguf::{Array, Fault, Gguf, GgufError, TensorType, Value};
use std::io::{self, Write};

fn everything() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer
        .set("u8", 1u8)
        .set("i8", -1i8)
        .set("u16", 2u16)
        .set("i16", -2i16)
        .set("u32", 3u32)
        .set("i32", -3i32)
        .set("f32", 0.1f32)
        .set("bool", true)
        .set("string", "päck\u{10348}")
        .set("u64", u64::MAX)
        .set("i64", i64::MIN)
        .set("f64", 0.1f64)
        .set("u8s", vec![1u8, 2])
        .set("i8s", vec![-1i8])
        .set("u16s", vec![1u16])
        .set("i16s", vec![-1i16])
        .set("u32s", vec![1u32])
        .set("i32s", vec![-1i32])
        .set("f32s", vec![0.1f32, f32::INFINITY])
        .set("bools", vec![false, true])
        .set("strings", vec!["", "a", "é"])
        .set("u64s", vec![1u64])
        .set("i64s", vec![-1i64])
        .set("f64s", vec![-0.0f64])
        .set(
            "nested",
            Value::Array(Array::Nested(vec![Array::U8(vec![1]), Array::F32(vec![])])),
        )
        .tensor("odd", &[3], TensorType::F32)
        .tensor("quantized", &[64, 2], TensorType::Q4_0)
        .tensor("last", &[1], TensorType::I8);
    writer
}

/// Data that tells tensors and positions apart.
fn fill(name: &str, n: u64) -> Vec<u8> {
    (0..n)
        .map(|i| (i as u8).wrapping_mul(7) ^ name.as_bytes()[0])
        .collect()
}

#[test]
fn everything_is_read_back_the_same() {
    let dir = Folder::new();
    for alignment in [None, Some(1u32), Some(8), Some(4096)] {
        let mut writer = everything();
        if let Some(alignment) = alignment {
            writer.set("general.alignment", alignment);
        }
        let bytes = writer.write_with(Vec::new(), fill).unwrap();
        let gguf = Gguf::open(&dir.write("m.gguf", &bytes)).unwrap();
        let again = {
            let mut writer = GgufWriter::new();
            gguf.metadata().iter().for_each(|(key, value)| {
                writer.set(key, value.clone());
            });
            gguf.tensors().iter().for_each(|t| {
                writer.tensor(&t.name, &t.shape, t.ty);
            });
            writer.write_with(Vec::new(), fill).unwrap()
        };
        assert!(again == bytes);
        assert_eq!(gguf.metadata().len(), 25 + usize::from(alignment.is_some()));
        let types: Vec<&str> = gguf.metadata().iter().map(|(_, v)| v.type_name()).collect();
        assert_eq!(types[..4], ["u8", "i8", "u16", "i16"]);
        assert_eq!(
            gguf.metadata().str("string").unwrap(),
            Some("päck\u{10348}")
        );
        let strings = gguf.metadata().strings("strings").unwrap().unwrap();
        assert!(strings.iter().eq(["", "a", "é"]));
        for tensor in gguf.tensors() {
            assert!(tensor.offset.is_multiple_of(alignment.unwrap_or(32).into()));
            assert_eq!(gguf.data(tensor), fill(&tensor.name, tensor.n_bytes));
        }
        assert_eq!(gguf.find("quantized").unwrap().n_bytes, 4 * 18);
    }
}

#[test]
fn data_may_come_in_any_pieces() {
    let whole = everything().write_with(Vec::new(), fill).unwrap();
    let data = [fill("odd", 12), fill("quantized", 72), fill("last", 1)].concat();
    for piece in [1, 5, 12, 50, 85] {
        let mut stream = everything().begin(Vec::new()).unwrap();
        data.chunks(piece)
            .for_each(|bytes| stream.data(bytes).unwrap());
        assert!(stream.finish().unwrap() == whole, "pieces of {piece}");
    }
}

#[test]
fn a_file_is_what_the_format_says() {
    let mut writer = GgufWriter::new();
    writer.set("k", 5u32).tensor("t", &[2], TensorType::F32);
    let written = writer.write_with(Vec::new(), |_, _| vec![9; 8]).unwrap();
    let raw = Raw::header(1, 1)
        .key("k", 4)
        .u32(5)
        .tensor("t", &[2], 0, 0)
        .data(32, 0);
    let raw = raw.bytes(&[9; 8]).data(32, 0);
    assert_eq!(written, raw.0);
}

#[test]
fn too_little_data() {
    let mut stream = everything().begin(Vec::new()).unwrap();
    stream.data(&[0; 20]).unwrap();
    let error = stream.finish().unwrap_err();
    let text = error.to_string();
    let WriteError::TooLittle { tensor, needed } = error else {
        panic!("{text}")
    };
    assert_eq!((tensor.as_str(), needed), ("quantized", 64));
    let error = everything()
        .write_with(Vec::new(), |_, n| vec![0; n as usize - 1])
        .unwrap_err();
    assert!(
        matches!(error, WriteError::TooLittle { needed: 1, .. }),
        "{error}"
    );
}

#[test]
fn too_much_data() {
    let mut stream = everything().begin(Vec::new()).unwrap();
    let error = stream.data(&[0; 88]).unwrap_err();
    assert!(matches!(error, WriteError::TooMuch { extra: 3 }), "{error}");
    let error = everything()
        .write_with(Vec::new(), |_, n| vec![0; n as usize + 1])
        .unwrap_err();
    assert!(matches!(error, WriteError::TooMuch { extra: 1 }), "{error}");
}

/// Why the writer refuses what `declare` declares.
fn refused(declare: impl FnOnce(&mut GgufWriter) -> &mut GgufWriter) -> Fault {
    let mut writer = GgufWriter::new();
    declare(&mut writer);
    let mut out = Vec::new();
    let error = writer.begin(&mut out).map(|_| "begun").unwrap_err();
    assert!(out.is_empty());
    let text = error.to_string();
    let WriteError::Invalid(GgufError::Malformed { fault, .. }) = error else {
        panic!("{text}")
    };
    fault
}

#[test]
fn what_a_reader_would_refuse_is_not_written() {
    let mut deep = Array::U8(vec![]);
    for _ in 0..4 {
        deep = Array::Nested(vec![deep]);
    }
    let f32 = TensorType::F32;
    let max = i64::MAX as u64;
    let alignment = |value| Fault::Alignment {
        value,
        limit: 1 << 21,
    };
    let pairs = [
        (refused(|w| w.set("", 1u8)), Fault::KeyEmpty),
        (refused(|w| w.set("a\0", 1u8)), Fault::KeyNul),
        (
            refused(|w| w.set("a", Value::Array(deep.clone()))),
            Fault::Nesting { limit: 4 },
        ),
        (refused(|w| w.set("general.alignment", 0u32)), alignment(0)),
        (
            refused(|w| w.set("general.alignment", 48u32)),
            alignment(48),
        ),
        (refused(|w| w.tensor("", &[1], f32)), Fault::NameEmpty),
        (refused(|w| w.tensor("t", &[], f32)), Fault::Dimensions(0)),
        (
            refused(|w| w.tensor("t", &[0], f32)),
            Fault::Dimension { axis: 0, size: 0 },
        ),
        (
            refused(|w| w.tensor("t", &[1; 5], f32)),
            Fault::Dimensions(5),
        ),
        (
            refused(|w| w.tensor("t", &[33], TensorType::Q8_0)),
            Fault::RowNotBlocks {
                row: 33,
                ty: TensorType::Q8_0,
                block: 32,
            },
        ),
        (
            refused(|w| w.tensor("t", &[max, 2], f32)),
            Fault::ElementsOverflow([max, 2].into()),
        ),
        (
            refused(|w| w.tensor("t", &[1], f32).tensor("t", &[1], f32)),
            Fault::NameDuplicate { first: 24 },
        ),
    ];
    for (fault, wanted) in pairs {
        assert_eq!(fault, wanted);
    }
    // Each tensor has a size, but the file would not.
    let i8 = TensorType::I8;
    let fault = refused(|w| {
        w.tensor("a", &[max], i8)
            .tensor("b", &[max], i8)
            .tensor("c", &[1], i8)
    });
    assert!(matches!(fault, Fault::DataWraps { .. }), "{fault}");
}

/// Takes some bytes, then fails, as a full disk does.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let count = self.0.min(bytes.len());
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_wherever_it_fills() {
    let len = everything().write_with(Vec::new(), fill).unwrap().len();
    for room in 0..len {
        let error = everything()
            .write_with(Full(room), fill)
            .map(|_| "written")
            .unwrap_err();
        let WriteError::Io(error) = error else {
            panic!("{error}")
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
    everything()
        .write_with(Full(len), fill)
        .map(|_| ())
        .unwrap();
}
