//! Matmul speed by weight type, level and tile, one lane.
//!
//! `t1` streams a matrix far larger than the caches, as decode does: its throughput is in bytes
//! of packed weights. `wide` multiplies a batch of 256 tokens, as prefill does: its throughput is
//! in multiplications, half the usual count of operations.
//!
//! `cargo bench -p emel-kernels --bench matmul -- t1/avx512`

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use emel_kernels::{
    ActivationKind, ActivationView, Activations, Kernels, Level, MatmulJob, MatmulPart, PackJob,
    PackedMatrix, QuantizeJob, Scratch, Tile, TileT1, TileT4, TileT8, TileWide, WeightType, serial,
};
use std::time::Duration;

/// A matrix of blocks whose every byte is 0x11: small numbers in all formats.
/// Runs a closure again and again under the harness.
type Timed<'a> = &'a dyn Fn(&mut dyn FnMut(&mut dyn FnMut()));

fn matrix(kernels: Kernels, ty: WeightType, rows: usize, k: usize) -> PackedMatrix {
    let mut matrix = PackedMatrix::allocate(kernels, ty, rows, k).expect("memory");
    let source = vec![0x11; matrix.source_bytes()];
    serial(&mut PackJob::new(&mut matrix, &source).expect("as long as it says"));
    matrix
}

fn product<T: Tile>(
    kernels: Kernels,
    matrix: &PackedMatrix,
    tokens: usize,
    mut measure: impl FnMut(&mut dyn FnMut()),
) {
    let k = matrix.cols();
    let x: Vec<f32> = (0..tokens * k).map(|i| (i % 13) as f32 - 6.0).collect();
    let mut activations = Activations::new(tokens, k).expect("memory");
    let view = match matrix.activation() {
        ActivationKind::F32 => ActivationView::f32(&x, tokens, k),
        kind => {
            serial(&mut QuantizeJob::<T>::new(
                kernels,
                &mut activations,
                kind,
                &x,
                tokens,
            ));
            activations.view()
        }
    };
    let mut out = vec![0.0; tokens * matrix.rows()];
    let mut scratch = Scratch::new(1, tokens).expect("memory");
    measure(&mut || {
        let part = MatmulPart::new(matrix, view, &mut out);
        serial(&mut MatmulJob::<T>::new([part], &mut scratch));
    });
}

fn bench(c: &mut Criterion) {
    for level in Level::available() {
        let kernels = Kernels::new(level).expect("available");
        let scalar = level == Level::Scalar;
        for ty in WeightType::ALL {
            let k = 2560;
            // Some 256 MiB, twice as much as most caches; the portable level takes its time.
            let bytes = if scalar { 4 << 20 } else { 256 << 20 };
            let rows = bytes / (k / ty.block_len() * ty.block_bytes());
            let big = matrix(kernels, ty, rows, k);
            let mut group = c.benchmark_group("t1");
            group.throughput(Throughput::Bytes(big.packed_bytes() as u64));
            product::<TileT1>(kernels, &big, 1, |run| {
                group.bench_function(format!("{level}/{}", ty.name()), |b| b.iter(&mut *run));
            });
            group.finish();
            drop(big);

            let rows = if scalar { 64 } else { 1024 };
            let small = matrix(kernels, ty, rows, k);
            let mut tile = |name: &str, tokens: usize, f: Timed<'_>| {
                let mut group = c.benchmark_group(name);
                group.throughput(Throughput::Elements((tokens * rows * k) as u64));
                f(&mut |run| {
                    group.bench_function(format!("{level}/{}", ty.name()), |b| b.iter(&mut *run));
                });
                group.finish();
            };
            tile("t4", 4, &|m| product::<TileT4>(kernels, &small, 4, m));
            tile("t8", 8, &|m| product::<TileT8>(kernels, &small, 8, m));
            tile("wide", 256, &|m| {
                product::<TileWide>(kernels, &small, 256, m)
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400));
    targets = bench
}
criterion_main!(benches);
