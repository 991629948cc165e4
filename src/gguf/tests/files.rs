//! Opening paths, overrides on an open file, and giving pages back.

use super::Folder;
use crate::gguf::write::GgufWriter;
use crate::gguf::{Fault, Gguf, GgufError, TensorType, Value};
use std::io::ErrorKind;
use std::path::Path;

#[test]
fn missing_file() {
    let error = Gguf::open(Path::new("no/such.gguf")).unwrap_err();
    let text = error.to_string();
    let GgufError::Open { source, .. } = error else {
        panic!("{text}")
    };
    assert_eq!(source.kind(), ErrorKind::NotFound);
    assert!(text.starts_with("no/such.gguf: cannot open"), "{text}");
}

#[test]
fn directory() {
    let dir = Folder::new();
    let error = Gguf::open(&dir.path("")).unwrap_err();
    assert!(
        matches!(
            error,
            GgufError::NotAFile {
                what: "a directory",
                ..
            }
        ),
        "{error}"
    );
}

#[cfg(unix)]
#[test]
fn device() {
    let error = Gguf::open(Path::new("/dev/null")).unwrap_err();
    assert!(
        matches!(
            error,
            GgufError::NotAFile {
                what: "a pipe or device",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn empty_and_text_files() {
    let dir = Folder::new();
    let error = Gguf::open(&dir.write("empty.gguf", b"")).unwrap_err();
    assert!(
        matches!(
            error,
            GgufError::Malformed {
                fault: Fault::Empty,
                ..
            }
        ),
        "{error}"
    );
    let error = Gguf::open(&dir.write("text.gguf", b"Once upon a time")).unwrap_err();
    let found = *b"Once";
    let GgufError::Malformed { fault, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(fault, Fault::Magic { found });
}

#[test]
fn overrides_replace_and_add() {
    let mut writer = GgufWriter::new();
    writer
        .set("a", 1u32)
        .set("b", "two")
        .set("general.alignment", 64u32);
    writer.tensor("t", &[4], TensorType::F32);
    let bytes = writer
        .write_with(Vec::new(), |_, n| vec![7; n as usize])
        .unwrap();
    let dir = Folder::new();
    let overrides = [
        ("a".to_owned(), Value::I64(5)),
        ("c".to_owned(), Value::Bool(true)),
        ("general.alignment".to_owned(), Value::I64(3)),
    ];
    let gguf = Gguf::open_with(&dir.write("m.gguf", &bytes), &overrides).unwrap();
    let metadata = gguf.metadata();
    assert_eq!(metadata.require_u32("a").unwrap(), 5);
    assert_eq!(metadata.require_str("b").unwrap(), "two");
    assert_eq!(metadata.bool("c").unwrap(), Some(true));
    let keys: Vec<&str> = metadata.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["a", "b", "general.alignment", "c"]);
    // The container is read by its own alignment.
    assert_eq!(gguf.data(gguf.find("t").unwrap()), [7; 16]);
    assert_eq!(gguf.version(), 3);
}

/// Lanes share an open model, and errors travel between them.
#[test]
fn models_and_errors_cross_threads() {
    fn crosses<T: Send + Sync>() {}
    crosses::<Gguf>();
    crosses::<GgufError>();
}

/// Bytes that tell tensors and positions apart.
#[cfg(target_os = "linux")]
fn pattern(name: &str, n: u64) -> impl Iterator<Item = u8> {
    let first = name.as_bytes()[0];
    (0..n).map(move |i| (i % 251) as u8 ^ first)
}

/// Resident bytes of the map that holds `address`, as Linux counts them.
#[cfg(target_os = "linux")]
fn resident_kib(address: usize) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut inside = false;
    for line in maps.lines() {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let range = range.and_then(|(from, to)| {
            let hex = |text| usize::from_str_radix(text, 16).ok();
            Some(hex(from)?..hex(to)?)
        });
        if let Some(range) = range {
            inside = range.contains(&address);
        } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| inside) {
            return rest.trim().trim_end_matches(" kB").parse().unwrap();
        }
    }
    panic!("no map holds {address:#x}");
}

#[cfg(target_os = "linux")]
#[test]
fn released_pages_leave_memory_and_come_back() {
    const BYTES: u64 = 8 << 20;
    let mut writer = GgufWriter::new();
    writer
        .tensor("kept", &[BYTES], TensorType::I8)
        .tensor("given", &[BYTES], TensorType::I8);
    let dir = Folder::new();
    let path = dir.path("m.gguf");
    let out = std::fs::File::create(&path).unwrap();
    drop(
        writer
            .write_with(out, |name, n| pattern(name, n).collect())
            .unwrap(),
    );

    let gguf = Gguf::open(&path).unwrap();
    let (kept, given) = (gguf.find("kept").unwrap(), gguf.find("given").unwrap());
    let check = |tensor, name| assert!(pattern(name, BYTES).eq(gguf.data(tensor).iter().copied()));
    check(kept, "kept");
    check(given, "given");
    let address = gguf.data(given).as_ptr().addr();
    let before = resident_kib(address);
    assert!(before >= 2 * BYTES / 1024, "{before} KiB resident");
    gguf.release(given);
    let after = resident_kib(address);
    assert!(
        after <= before - BYTES / 1024,
        "{before} KiB, then {after} KiB resident"
    );
    check(kept, "kept");
    check(given, "given");
}
