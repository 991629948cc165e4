//! Packed copies through `emel-run --packed-cache`: made, mapped, refused, and always the same bits.
#![cfg(unix)]

mod common;

use common::names;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::{TempDir, tempdir};

/// A folder of its own with a link to a model, removed at the end.
struct Folder(TempDir);

impl Folder {
    fn with(name: &str) -> (Folder, PathBuf, PathBuf) {
        let folder = tempdir().expect("a folder");
        let model = folder.path().join("model.gguf");
        symlink(common::model(name), &model).expect("a link");
        let copy = folder.path().join("model.gguf.emel-packed");
        (Folder(folder), model, copy)
    }
}

/// What a run prints of checksums, and what it says besides.
fn run(model: &Path, flags: &[&str]) -> (String, Vec<String>) {
    let output = common::emel_run()
        .arg("-m")
        .arg(model)
        .args("-p One -no-cnv -n 4 --temp 0 -c 64 --logits-checksum".split(' '))
        .args(flags)
        .output()
        .expect("emel-run starts");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{said}");
    let (sums, rest): (Vec<_>, Vec<_>) = said.lines().partition(|line| line.contains("logits="));
    let rest = rest.into_iter().filter(|line| line.contains("packed copy"));
    (sums.concat(), rest.map(str::to_owned).collect())
}

const PACKED: &[&str] = &["--packed-cache"];

#[test]
fn a_copy_is_made_once_and_gives_the_same_bits() {
    for name in [common::SMOLLM2, common::GEMMA3] {
        let (folder, model, copy) = Folder::with(name);
        let (plain, said) = run(&model, &[]);
        assert!(plain.contains("logits=") && said.is_empty(), "{said:?}");
        assert!(!copy.exists());
        let (first, said) = run(&model, PACKED);
        assert!(
            said.len() == 1 && said[0].contains("for the next start"),
            "{said:?}"
        );
        assert_eq!(first, plain);
        let made = fs::metadata(&copy)
            .expect("a copy")
            .modified()
            .expect("a time");
        for flags in [
            &["-t", "1"][..],
            &["--isa", "scalar", "-n", "1"],
            &["-ctk", "f32"],
        ] {
            let all: Vec<&str> = PACKED.iter().chain(flags).copied().collect();
            let (mapped, said) = run(&model, &all);
            assert_eq!((mapped, said), (run(&model, flags).0, vec![]), "{flags:?}");
        }
        let after = fs::metadata(&copy)
            .expect("a copy")
            .modified()
            .expect("a time");
        assert_eq!(made, after, "it was made again");
        assert_eq!(names(&folder.0), ["model.gguf", "model.gguf.emel-packed"]);
    }
}

#[test]
fn what_follows_a_copy_is_not_read() {
    let (_folder, model, copy) = Folder::with(common::SMOLLM2);
    let (plain, _) = run(&model, PACKED);
    let file = fs::File::options().write(true).open(&copy);
    let longer = file.and_then(|file| file.set_len(1 << 40));
    longer.expect("a file with a hole");
    assert_eq!(run(&model, PACKED), (plain, vec![]));
}

#[test]
fn what_is_no_copy_of_the_model_is_told_and_made_anew() {
    let (_folder, model, copy) = Folder::with(common::SMOLLM2);
    let (_other_folder, other, other_copy) = Folder::with(common::GEMMA3);
    let (plain, _) = run(&model, PACKED);
    run(&other, PACKED);
    let good = fs::read(&copy).expect("a copy");
    let edited = |from: &str, to: &str| {
        let at = good
            .windows(from.len())
            .position(|part| part == from.as_bytes());
        let at = at.expect("the header has it");
        let mut bytes = good.clone();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        let length = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes")) as usize;
        let digest = Sha256::digest(&bytes[48..][..length]);
        bytes[16..48].copy_from_slice(&digest);
        bytes
    };
    let bad: [(&str, Vec<u8>); 9] = [
        ("it is not a packed copy", vec![]),
        ("ends within its header", good[..200].to_vec()),
        ("was given 0 bytes", good[..good.len() / 2].to_vec()),
        (
            "made of another model",
            fs::read(&other_copy).expect("a copy"),
        ),
        ("it has format 9", edited(r#""format":2"#, r#""format":9"#)),
        ("header has another digest", {
            let mut bytes = good.clone();
            bytes[100] ^= 1;
            bytes
        }),
        (
            "as the model has it",
            edited("blk.3.attn_q", "blk.3.attn_x"),
        ),
        (
            "as the model has it",
            edited(r#""rows":576"#, r#""rows":577"#),
        ),
        ("header: ", edited(r#""rows":576"#, r#""rows":-57"#)),
    ];
    for (why, bytes) in bad {
        fs::write(&copy, bytes).expect("a file");
        let (sums, said) = run(&model, PACKED);
        assert_eq!(sums, plain);
        assert!(
            said.len() == 2 && said[0].contains("is not used") && said[0].contains(why),
            "{said:?}"
        );
        assert!(said[1].contains("for the next start"), "{said:?}");
        assert_eq!(run(&model, PACKED), (plain.clone(), vec![]));
    }
}

#[test]
fn a_model_that_changed_has_no_copy_any_more() {
    let (_folder, model, copy) = Folder::with(common::SMOLLM2);
    let (plain, _) = run(&model, PACKED);
    let before = fs::read(&copy).expect("a copy");
    let mut bytes = fs::read(&model).expect("the model");
    fs::remove_file(&model).expect("a link");
    // The last byte is a weight's.
    *bytes.last_mut().expect("bytes") ^= 1;
    fs::write(&model, bytes).expect("a model");
    let (changed, said) = run(&model, PACKED);
    assert!(
        said.len() == 2 && said[0].contains("before it changed"),
        "{said:?}"
    );
    assert_ne!(fs::read(&copy).expect("a copy"), before);
    assert_eq!(changed, run(&model, &[]).0);
    assert_ne!(changed, plain);
}

#[test]
fn what_is_in_a_copy_s_place_stays_and_is_no_failure() {
    let (folder, model, copy) = Folder::with(common::SMOLLM2);
    let plain = run(&model, &[]).0;
    let refused = || {
        let (sums, said) = run(&model, PACKED);
        assert_eq!(sums, plain);
        assert!(
            said.len() == 2 && said[1].contains("no packed copy is kept"),
            "{said:?}"
        );
    };
    fs::create_dir(&copy).expect("a folder");
    refused();
    fs::remove_dir(&copy).expect("the folder");
    let made = Command::new("mkfifo").arg(&copy).status();
    assert!(made.expect("mkfifo").success());
    refused();
    fs::remove_file(&copy).expect("the pipe");
    fs::write(&copy, "EMEL's notes").expect("a file");
    refused();
    assert_eq!(fs::read(&copy).expect("the file"), b"EMEL's notes");
    fs::remove_file(&copy).expect("the file");
    symlink("elsewhere", &copy).expect("a link");
    let (sums, said) = run(&model, PACKED);
    assert_eq!(sums, plain);
    assert!(said.len() == 1 && said[0].contains("remove it"), "{said:?}");
    fs::remove_file(&copy).expect("the link");
    fs::create_dir(&copy).expect("a folder");
    assert_eq!(names(&folder.0), ["model.gguf", "model.gguf.emel-packed"]);
    let quiet = ["--packed-cache", "--log-verbosity", "1"];
    assert_eq!(run(&model, &quiet).1, Vec::<String>::new());
}
