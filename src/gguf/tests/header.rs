//! Malformed headers: magic, version, counts.

use super::Raw;
use crate::gguf::value::id;
use crate::gguf::{Fault, GgufError, Place};

#[test]
fn empty_file() {
    Raw::default().fails(Place::Header, 0, Fault::Empty);
}

#[test]
fn magic_only() {
    let why = Fault::Truncated {
        what: "the version",
        needed: 4,
        left: 0,
    };
    Raw(b"GGUF".to_vec()).fails(Place::Header, 4, why);
}

#[test]
fn part_of_the_magic() {
    let why = Fault::Truncated {
        what: "the magic",
        needed: 4,
        left: 2,
    };
    Raw(b"GG".to_vec()).fails(Place::Header, 0, why);
}

#[test]
fn bad_magic() {
    for magic in [*b"GGUG", *b"gguf", *b"\0\0\0\0", *b"\xff\xfe\x00G"] {
        let raw = Raw(magic.to_vec()).filler();
        raw.fails(Place::Header, 0, Fault::Magic { found: magic });
    }
}

#[test]
fn bad_magic_says_what_the_file_is() {
    for (start, said) in [
        (*b"tjgg", "older ggml format"),
        (*b"vers", "Git LFS pointer"),
        (*b"<!DO", "a web page"),
        (*b"PK\x03\x04", "a zip archive"),
    ] {
        let text = Raw(start.to_vec())
            .filler()
            .parse()
            .unwrap_err()
            .to_string();
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn unsupported_versions() {
    for version in [0, 1, 4, 5, 1000, u32::MAX] {
        let raw = Raw(b"GGUF".to_vec()).u32(version).filler();
        raw.fails(Place::Header, 4, Fault::Version(version));
    }
}

#[test]
fn big_endian_is_refused_by_name() {
    for version in [1u32, 2, 3] {
        let raw = Raw(b"GGUF".to_vec()).bytes(&version.to_be_bytes()).filler();
        raw.fails(Place::Header, 4, Fault::BigEndian { version });
        assert!(raw.parse().unwrap_err().to_string().contains("big-endian"));
    }
    let swapped = Raw(b"FUGG".to_vec()).bytes(&3u32.to_be_bytes()).filler();
    swapped.fails(Place::Header, 4, Fault::BigEndian { version: 3 });
}

#[test]
fn versions_2_and_3_are_read_alike() {
    let three = Raw::header(1, 1)
        .key("a", id::U32)
        .u32(7)
        .tensor("t", &[2], 0, 0)
        .data(32, 8);
    let mut two = three.clone();
    two.0[4] = 2;
    let (three, two) = (three.parse().unwrap(), two.parse().unwrap());
    assert_eq!((three.version, two.version), (3, 2));
    assert_eq!(three.tensors, two.tensors);
    assert!(three.metadata.iter().eq(two.metadata.iter()));
}

#[test]
fn huge_pair_counts() {
    for count in [1 << 32, 1 << 62, u64::MAX >> 1] {
        let raw = Raw::header(0, count).filler();
        let why = Fault::Count {
            what: "metadata pairs",
            count,
            left: 4096,
        };
        raw.fails(Place::Header, 16, why);
    }
}

#[test]
fn huge_tensor_counts() {
    for count in [1 << 32, 1 << 62, u64::MAX >> 1] {
        let raw = Raw::header(count, 0).filler();
        raw.fails(
            Place::Header,
            8,
            Fault::Count {
                what: "tensors",
                count,
                left: 4096,
            },
        );
    }
}

#[test]
fn negative_counts() {
    let count = (-1i64).cast_unsigned();
    let pairs = Raw::header(0, count).filler();
    let why = Fault::Count {
        what: "metadata pairs",
        count,
        left: 4096,
    };
    pairs.fails(Place::Header, 16, why);
    let tensors = Raw::header(count, 0).filler();
    tensors.fails(
        Place::Header,
        8,
        Fault::Count {
            what: "tensors",
            count,
            left: 4096,
        },
    );
}

/// Counts chosen so that count times the least size of an item wraps to a small number.
#[test]
fn counts_that_wrap_when_multiplied() {
    let pairs = u64::MAX / 13 + 1;
    assert!(pairs.wrapping_mul(13) < 4096);
    let why = Fault::Count {
        what: "metadata pairs",
        count: pairs,
        left: 4096,
    };
    Raw::header(0, pairs).filler().fails(Place::Header, 16, why);
    let tensors = u64::MAX / 24 + 1;
    assert!(tensors.wrapping_mul(24) < 4096);
    let why = Fault::Count {
        what: "tensors",
        count: tensors,
        left: 4096,
    };
    Raw::header(tensors, 0)
        .filler()
        .fails(Place::Header, 8, why);
}

/// A large file of zeros does not make a large count right.
#[test]
fn counts_beyond_the_limits() {
    let (pairs, tensors) = ((1 << 16) + 1, (1 << 20) + 1);
    let raw = Raw::header(0, pairs).bytes(&vec![0; 13 * pairs as usize]);
    let why = Fault::Limit {
        what: "metadata pairs",
        count: pairs,
        limit: 1 << 16,
    };
    raw.fails(Place::Header, 16, why);
    let raw = Raw::header(tensors, 0).bytes(&vec![0; 24 * tensors as usize]);
    let why = Fault::Limit {
        what: "tensors",
        count: tensors,
        limit: 1 << 20,
    };
    raw.fails(Place::Header, 8, why);
}

/// Every prefix of a small file is refused as what it is: cut off.
#[test]
fn truncated_at_every_byte() {
    let whole = Raw::header(2, 4)
        .key("general.architecture", id::STRING)
        .string("llama")
        .key("general.alignment", id::U32)
        .u32(32)
        .key("list", id::ARRAY)
        .u32(id::STRING)
        .u64(2)
        .string("a")
        .string("bc")
        .key("flags", id::ARRAY)
        .u32(id::BOOL)
        .u64(2)
        .bytes(&[0, 1])
        .tensor("first", &[4], 0, 0)
        .tensor("second", &[2, 3], 0, 32)
        .data(32, 32 + 24);
    whole.parse().unwrap();
    for len in 0..whole.0.len() {
        let error = Raw(whole.0[..len].to_vec()).parse().unwrap_err();
        let GgufError::Malformed { offset, fault, .. } = &error else {
            panic!("{error}")
        };
        // The placement of data is checked for whole directories only; its fault points at the
        // entry.
        assert!(*offset <= len as u64, "{len}: {error}");
        let cut = match fault {
            Fault::Empty => len == 0,
            Fault::Truncated { .. } | Fault::Count { .. } => true,
            Fault::DataPastEnd { file_bytes, .. } => *file_bytes == len as u64,
            _ => false,
        };
        assert!(cut, "{len}: {error}");
    }
}
