//! Damages a small valid model in thousands of ways: opening it must fail with a message or
//! give consistent tensors, and never panic, hang or reserve memory beyond the file's measure.
//!
//! The only test in its file, so that the address space it measures is its own.

use emel::gguf::write::GgufWriter;
use emel::gguf::{Gguf, TensorType, Value};
use std::fs;

const ROUNDS: u32 = 20_000;

/// Numbers that parsers stumble over.
const ODD: [u64; 12] = [
    0,
    1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    u64::MAX / 24 + 1,
    u64::MAX / 13 + 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// splitmix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

fn valid() -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer
        .set("general.architecture", "llama")
        .set("general.alignment", 32u32)
        .set("llama.block_count", 2u32)
        .set("llama.rope.freq_base", 10000.0f32)
        .set("tokenizer.ggml.tokens", vec!["<s>", "a", "é", ""])
        .set("tokenizer.ggml.scores", vec![0.0f32, -1.0, -2.0, -3.0])
        .set("tokenizer.ggml.token_type", vec![3i32, 1, 1, 1])
        .set("tokenizer.ggml.add_bos_token", true)
        .set("flags", vec![true, false])
        .set("split.count", 0u16)
        .tensor("token_embd.weight", &[32, 4], TensorType::Q8_0)
        .tensor("blk.0.attn_q.weight", &[32, 2], TensorType::Q4_0)
        .tensor("output_norm.weight", &[3], TensorType::F32);
    writer
        .write_with(Vec::new(), |_, n| vec![0x5A; n as usize])
        .expect("the file is valid")
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    // Most damage goes into the header, where the structure is.
    let at = match random.below(4) {
        0 => random.below(bytes.len()),
        1 => random.below(64.min(bytes.len())),
        _ => random.below(bytes.len().saturating_sub(300)),
    };
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => {
            let count = random.below(16);
            let new: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
            drop(bytes.splice(at..at, new));
        }
        2 => {
            let end = (at + 1 + random.below(16)).min(bytes.len());
            drop(bytes.drain(at.min(end)..end));
        }
        3 => overwrite(bytes, at, &ODD[random.below(ODD.len())].to_le_bytes()),
        4 => overwrite(
            bytes,
            at,
            &(ODD[random.below(ODD.len())] as u32).to_le_bytes(),
        ),
        // Type ids and small counts are small numbers.
        5 => overwrite(bytes, at, &[random.below(16) as u8]),
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
    }
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes
        .iter_mut()
        .skip(at)
        .zip(with)
        .for_each(|(byte, &new)| *byte = new);
}

/// Uses everything that an opened model offers.
fn use_all(gguf: &Gguf) {
    let metadata = gguf.metadata();
    for (key, value) in metadata.iter() {
        assert_eq!(
            metadata.get(key).map(Value::type_name),
            Some(value.type_name())
        );
        let _each_is_a_value_or_a_typed_error = (
            metadata.u32(key).is_ok(),
            metadata.i32(key).is_ok(),
            metadata.u64(key).is_ok(),
            metadata.f32(key).is_ok(),
            metadata.bool(key).is_ok(),
            metadata.str(key).is_ok(),
            metadata.strings(key).is_ok(),
            metadata.f32s(key).is_ok(),
            metadata.u32s(key).is_ok(),
            metadata.i32s(key).is_ok(),
            metadata.bools(key).is_ok(),
            metadata.u32_or_array(key, 4).is_ok(),
        );
    }
    let mut data = 0;
    for tensor in gguf.tensors() {
        assert_eq!(gguf.find(&tensor.name), Some(tensor));
        assert_eq!(gguf.data(tensor).len() as u64, tensor.n_bytes);
        assert_eq!(tensor.row_bytes() * tensor.n_rows(), tensor.n_bytes);
        gguf.release(tensor);
        data += tensor.n_bytes;
    }
    assert!(data < gguf.file_bytes());
}

/// The largest address space the process has had, in KiB; `None` where it cannot be known.
fn peak_kib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPeak:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn damaged_files_never_panic_or_take_memory() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("damaged.gguf");
    let whole = valid();
    fs::write(&path, &whole).expect("room for a small file");
    use_all(&Gguf::open(&path).expect("the file is valid"));

    let before = peak_kib();
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..ROUNDS {
        let mut random = Random(seed.into());
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(3) {
            damage(&mut bytes, &mut random);
        }
        fs::write(&path, &bytes).expect("room for a small file");
        match Gguf::open(&path) {
            Ok(gguf) => {
                use_all(&gguf);
                opened += 1;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.starts_with(&path.display().to_string()),
                    "seed {seed}: {text}"
                );
                assert!(text.len() < 1000, "seed {seed}: {text}");
                refused += 1;
            }
        }
    }
    // Damage to data and to the letters of names is none the container can see.
    assert!(
        opened > ROUNDS / 50 && refused > ROUNDS / 2,
        "{opened} opened, {refused} refused"
    );
    if let (Some(before), Some(after)) = (before, peak_kib()) {
        assert!(
            after - before < 32 * 1024,
            "{before} KiB, then {after} KiB reserved"
        );
    }
}
