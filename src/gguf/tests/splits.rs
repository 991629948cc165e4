//! Split models: shards missing, repeated, out of order, of another model.

use super::Folder;
use crate::gguf::write::GgufWriter;
use crate::gguf::{Fault, Gguf, GgufError, Place, SplitFault, TensorType, Value};
use std::fs;
use std::path::Path;

/// The bytes of a shard with one tensor of two floats.
fn shard(no: u16, count: u16, name: &str) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    if no == 0 {
        writer.set("general.architecture", "llama");
    }
    writer
        .set("split.no", no)
        .set("split.count", count)
        .set("split.tensors.count", 3i32);
    writer.tensor(name, &[2], TensorType::F32);
    writer
        .write_with(Vec::new(), |_, n| vec![no as u8 + 1; n as usize])
        .unwrap()
}

fn name(number: u16) -> String {
    format!("m-{number:05}-of-00003.gguf")
}

/// Three shards with one tensor each.
fn three() -> Folder {
    let dir = Folder::new();
    for no in 0..3 {
        dir.write(&name(no + 1), &shard(no, 3, &format!("t{no}")));
    }
    dir
}

#[track_caller]
fn fails(result: Result<Gguf, GgufError>, at: &Path, why: SplitFault) {
    let error = result.map(|_| "opened").expect_err("the shards are wrong");
    let text = error.to_string();
    let GgufError::Split { file, fault } = error else {
        panic!("another class: {text}")
    };
    assert_eq!((&*file, &fault), (at, &why), "{text}");
    assert_eq!(text, format!("{}: {why}", at.display()));
}

#[test]
fn siblings_are_found_from_any_shard() {
    let dir = three();
    for number in 1..=3 {
        let gguf = Gguf::open(&dir.path(&name(number))).unwrap();
        assert_eq!(gguf.path(), dir.path(&name(1)));
        assert!(
            gguf.paths()
                .eq([1, 2, 3].map(|n| dir.path(&name(n))).iter())
        );
        assert_eq!(
            gguf.metadata().require_str("general.architecture").unwrap(),
            "llama"
        );
        let names: Vec<&str> = gguf.tensors().iter().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["t0", "t1", "t2"]);
        for (no, tensor) in gguf.tensors().iter().enumerate() {
            assert_eq!(tensor.shard, no);
            assert_eq!(gguf.data(tensor), [no as u8 + 1; 8]);
            assert_eq!(gguf.find(&tensor.name), Some(tensor));
        }
        let sizes = [1, 2, 3].map(|n| fs::metadata(dir.path(&name(n))).unwrap().len());
        assert_eq!(gguf.file_bytes(), sizes.iter().sum::<u64>());
    }
}

#[test]
fn shard_missing() {
    for number in 1..=3 {
        let dir = three();
        fs::remove_file(dir.path(&name(number))).unwrap();
        let opened = Gguf::open(&dir.path(&name(if number == 1 { 2 } else { 1 })));
        let why = SplitFault::Missing {
            number: number.into(),
            count: 3,
        };
        fails(opened, &dir.path(&name(number)), why);
    }
}

#[test]
fn shard_repeated() {
    let dir = three();
    fs::copy(dir.path(&name(1)), dir.path(&name(3))).unwrap();
    let why = SplitFault::Repeated {
        number: 3,
        first: 1,
        no: 0,
    };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(3)), why);
}

#[test]
fn shards_out_of_order() {
    let dir = three();
    dir.write(&name(2), &shard(2, 3, "t2"));
    dir.write(&name(3), &shard(1, 3, "t1"));
    let why = SplitFault::OutOfOrder {
        number: 2,
        found: 2,
        wanted: 1,
    };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(2)), why);
}

#[test]
fn first_shard_under_another_shards_name() {
    let dir = three();
    dir.write(&name(1), &shard(1, 3, "t1"));
    dir.write(&name(2), &shard(0, 3, "t0"));
    let why = SplitFault::OutOfOrder {
        number: 1,
        found: 1,
        wanted: 0,
    };
    fails(Gguf::open(&dir.path(&name(2))), &dir.path(&name(1)), why);
}

#[test]
fn shard_number_beyond_the_count() {
    let dir = three();
    dir.write(&name(3), &shard(9, 3, "t2"));
    let why = SplitFault::OutOfOrder {
        number: 3,
        found: 9,
        wanted: 2,
    };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(3)), why);
}

#[test]
fn renamed_without_a_number() {
    let dir = Folder::new();
    let path = dir.write("model.gguf", &shard(0, 3, "t0"));
    fails(Gguf::open(&path), &path, SplitFault::Name { count: 3 });
}

#[test]
fn name_and_metadata_disagree_on_the_count() {
    let dir = Folder::new();
    let path = dir.write("m-00001-of-00003.gguf", &shard(0, 4, "t0"));
    fails(
        Gguf::open(&path),
        &path,
        SplitFault::CountNamed { named: 3, count: 4 },
    );
}

#[test]
fn shards_disagree_on_the_count() {
    let dir = three();
    dir.write(&name(2), &shard(1, 2, "t1"));
    let why = SplitFault::CountDiffers { found: 2, count: 3 };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(2)), why);
}

#[test]
fn whole_file_among_the_shards() {
    let dir = three();
    let whole = GgufWriter::new()
        .begin(Vec::new())
        .unwrap()
        .finish()
        .unwrap();
    dir.write(&name(2), &whole);
    let why = SplitFault::KeyMissing {
        number: 2,
        key: "split.no",
    };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(2)), why);
}

#[test]
fn tensor_count_differs() {
    let dir = three();
    let mut writer = GgufWriter::new();
    writer
        .set("split.no", 2u16)
        .set("split.count", 3u16)
        .set("split.tensors.count", 3i32);
    dir.write(
        &name(3),
        &writer.begin(Vec::new()).unwrap().finish().unwrap(),
    );
    let why = SplitFault::TensorCount {
        found: 2,
        wanted: 3,
    };
    fails(Gguf::open(&dir.path(&name(1))), &dir.path(&name(1)), why);
}

#[test]
fn tensor_in_two_shards() {
    let dir = three();
    dir.write(&name(3), &shard(2, 3, "t0"));
    let error = Gguf::open(&dir.path(&name(1))).unwrap_err();
    let text = error.to_string();
    let GgufError::Malformed {
        file, place, fault, ..
    } = error
    else {
        panic!("{text}")
    };
    assert_eq!(&*file, dir.path(&name(3)));
    assert_eq!(place, Place::Tensor("t0".into()));
    assert!(
        matches!(fault, Fault::NameElsewhere { shard: 1, .. }),
        "{text}"
    );
}

#[test]
fn shard_malformed_names_that_shard() {
    let dir = three();
    let path = dir.write(&name(2), b"GGUF");
    let error = Gguf::open(&dir.path(&name(1))).unwrap_err();
    assert!(
        error.to_string().starts_with(&path.display().to_string()),
        "{error}"
    );
}

#[test]
fn split_keys_of_the_wrong_type() {
    let mut writer = GgufWriter::new();
    writer.set("split.count", "three");
    let dir = Folder::new();
    let path = dir.write(
        &name(1),
        &writer.begin(Vec::new()).unwrap().finish().unwrap(),
    );
    let error = Gguf::open(&path).unwrap_err();
    assert!(matches!(error, GgufError::WrongType { .. }), "{error}");
    let mut writer = GgufWriter::new();
    writer.set("split.count", -1i32);
    dir.write(
        &name(1),
        &writer.begin(Vec::new()).unwrap().finish().unwrap(),
    );
    let error = Gguf::open(&path).unwrap_err();
    assert!(
        matches!(error, GgufError::OutOfRange { value: -1, .. }),
        "{error}"
    );
}

/// Merging shards leaves a count of 0; a model in one shard has 1.
#[test]
fn counts_of_0_and_1_are_whole_files() {
    let dir = Folder::new();
    for count in [0u16, 1] {
        let mut writer = GgufWriter::new();
        writer.set("split.count", Value::U16(count));
        let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
        let gguf = Gguf::open(&dir.write("any.gguf", &bytes)).unwrap();
        assert_eq!(gguf.paths().len(), 1);
    }
}
