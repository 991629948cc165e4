//! The wide route of two levels side by side, one lane: int8 operations a second and their ratio.
//!
//! Runs of the two alternate, so that what else the machine does strikes both, and the fastest of
//! each counts. Shapes are those of models' layers, 512 tokens.
//!
//! `cargo bench -p emel-kernels --bench ratio -- [LEVEL LEVEL] [TYPE...] [PART OF A MODEL'S NAME...]`, by
//! default `avx512 amx`.

use emel_kernels::{
    Activations, HugeBuffer, Kernels, Level, MatmulJob, MatmulPart, PackJob, PackedMatrix,
    QuantizeJob, Scratch, TileWide, WeightType, serial,
};
use std::time::Instant;

const TOKENS: usize = 512;

/// `[rows, k]` of feed-forward layers, and the formats that they come in.
const SHAPES: [(&str, usize, usize, &[WeightType]); 4] = [
    (
        "Qwen3 4B",
        2560,
        9728,
        &[WeightType::Q4_K, WeightType::Q6_K],
    ),
    (
        "Qwen3 0.6B",
        3072,
        1024,
        &[WeightType::Q4_K, WeightType::Q6_K, WeightType::Q8_0],
    ),
    (
        "Gemma 3 270M",
        640,
        2048,
        &[
            WeightType::Q4_K,
            WeightType::Q6_K,
            WeightType::Q5_0,
            WeightType::Q8_0,
        ],
    ),
    (
        "SmolLM2 135M",
        1536,
        576,
        &[
            WeightType::Q4_1,
            WeightType::Q4_0,
            WeightType::Q5_1,
            WeightType::IQ4_NL,
        ],
    ),
];

/// Other super-blocks, at one shape.
const OTHERS: [WeightType; 4] = [
    WeightType::Q2_K,
    WeightType::Q3_K,
    WeightType::Q5_K,
    WeightType::IQ4_XS,
];

/// One level's matrix, activations and output.
struct Side {
    matrix: PackedMatrix,
    activations: Activations,
    scratch: Scratch,
    out: HugeBuffer<f32>,
    best: f64,
}

impl Side {
    fn new(level: Level, ty: WeightType, rows: usize, k: usize) -> Side {
        let kernels = Kernels::new(level).expect("this machine has the level");
        let mut matrix = PackedMatrix::allocate(kernels, ty, rows, k).expect("memory");
        // Small numbers in all formats, and scales that are no NaN.
        let source = vec![0x11; matrix.source_bytes()];
        serial(&mut PackJob::new(&mut matrix, &source).expect("as long as it says"));
        let x: Vec<f32> = (0..TOKENS * k).map(|i| (i % 13) as f32 - 6.0).collect();
        let mut activations = Activations::new(TOKENS, k).expect("memory");
        let kind = matrix.activation();
        serial(&mut QuantizeJob::<TileWide>::new(
            kernels,
            &mut activations,
            kind,
            &x,
            TOKENS,
        ));
        Side {
            out: HugeBuffer::zeroed(TOKENS * rows).expect("memory"),
            matrix,
            activations,
            scratch: Scratch::new(1, TOKENS).expect("memory"),
            best: f64::INFINITY,
        }
    }

    fn run(&mut self) {
        let start = Instant::now();
        let part = MatmulPart::new(&self.matrix, self.activations.view(), &mut self.out);
        serial(&mut MatmulJob::<TileWide>::new([part], &mut self.scratch));
        self.best = self.best.min(start.elapsed().as_secs_f64());
    }
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let mut levels: Vec<Level> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if levels.len() != 2 {
        levels = vec![Level::Avx512, Level::Amx];
    }
    if let Some(level) = levels.iter().find(|level| !level.is_available()) {
        println!("this machine lacks {level}");
        return;
    }
    let types: Vec<WeightType> = words
        .iter()
        .filter_map(|word| WeightType::from_name(word))
        .collect();
    let models: Vec<&String> = words
        .iter()
        .filter(|word| word.parse::<Level>().is_err() && WeightType::from_name(word).is_none())
        .collect();
    println!(
        "TOP/s, one lane, {TOKENS} tokens: {} and {}",
        levels[0], levels[1]
    );
    let others = ("Qwen3 0.6B", 3072, 1024, &OTHERS[..]);
    for (model, rows, k, formats) in SHAPES.into_iter().chain([others]) {
        if !models.is_empty() && !models.iter().any(|part| model.contains(*part)) {
            continue;
        }
        for &ty in formats {
            if !types.is_empty() && !types.contains(&ty) {
                continue;
            }
            let mut sides: Vec<Side> = levels
                .iter()
                .map(|&level| Side::new(level, ty, rows, k))
                .collect();
            for _ in 0..15 {
                sides.iter_mut().for_each(Side::run);
            }
            assert_eq!(sides[0].out[..], sides[1].out[..], "the same bits");
            let rate = |side: &Side| 2.0 * (TOKENS * rows * k) as f64 / side.best / 1e12;
            let (one, other) = (rate(&sides[0]), rate(&sides[1]));
            println!(
                "{model:12} {:6} [{rows}, {k}]  {one:.3}  {other:.3}  x{:.2}",
                ty.name(),
                other / one
            );
        }
    }
}
