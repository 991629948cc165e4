use super::*;
use crate::lanes::serial;
use crate::test_util::{Rng, assert_same, levels, run_everywhere};

fn table(pairs: RopePairs, n_rot: usize, n_ctx: usize, filled: usize) -> RopeTable {
    let frequencies = rope_frequencies(n_rot, 10_000.0, 1.0, None);
    let mut table = RopeTable::new(pairs, frequencies, 1.0, n_ctx).unwrap();
    serial(&mut RopeFillJob::new(&mut table, filled));
    table
}

/// The module's description, one pair at a time.
fn turn_all(x: &mut [f32], pairs: RopePairs, n_rot: usize, width: usize, dim: usize, pos0: usize) {
    for (t, row) in x.chunks_mut(width).enumerate() {
        for head in row.chunks_mut(dim) {
            for i in 0..n_rot / 2 {
                let frequency = libm::pow(10_000.0, -2.0 * i as f64 / n_rot as f64);
                let angle = (pos0 + t) as f64 * frequency;
                let (cos, sin) = (libm::cos(angle) as f32, libm::sin(angle) as f32);
                let (a, b) = match pairs {
                    RopePairs::Adjacent => (2 * i, 2 * i + 1),
                    RopePairs::Halves => (i, i + n_rot / 2),
                };
                let (x0, x1) = (head[a], head[b]);
                head[a] = x1.mul_add(-sin, x0 * cos);
                head[b] = x0.mul_add(sin, x1 * cos);
            }
        }
    }
}

#[test]
fn both_kinds_equal_the_description() {
    let mut rng = Rng(6);
    let shapes = [
        // n_rot, head_dim, heads, tokens, pos0
        (2, 2, 1, 1, 0),
        (6, 7, 2, 3, 1),
        (32, 64, 3, 5, 1000),
        (64, 64, 9, 7, 63),
        (80, 80, 2, 4, 5),
        (96, 96, 1, 2, 2000),
        (128, 128, 4, 1, 3),
        (256, 256, 1, 2, 40),
    ];
    for (n_rot, dim, heads, tokens, pos0) in shapes {
        for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
            let table = table(pairs, n_rot, 2048, pos0 + tokens);
            let width = heads * dim;
            let x = rng.wilds(tokens * width);
            let mut wanted = x.clone();
            turn_all(&mut wanted, pairs, n_rot, width, dim, pos0);
            run_everywhere(|run| {
                for k in levels() {
                    let mut out = x.clone();
                    run(&mut RopeJob::new(k, &table, pos0, &mut out, heads, dim));
                    assert_same(&format!("{pairs:?} {n_rot} of {dim}"), &out, &wanted);
                }
            });
        }
    }
}

#[test]
fn a_quarter_turn() {
    let mut t = RopeTable::new(
        RopePairs::Adjacent,
        vec![std::f64::consts::FRAC_PI_2],
        1.0,
        2,
    )
    .unwrap();
    serial(&mut RopeFillJob::new(&mut t, 2));
    let mut x = [3.0, 4.0];
    serial(&mut RopeJob::new(levels()[0], &t, 1, &mut x, 1, 2));
    assert!(
        (x[0] + 4.0).abs() < 1e-6 && (x[1] - 3.0).abs() < 1e-6,
        "{x:?}"
    );
}

#[test]
fn filling_in_steps_and_on_lanes_gives_the_same_table() {
    for pairs in [RopePairs::Adjacent, RopePairs::Halves] {
        let whole = table(pairs, 64, 300, 300);
        run_everywhere(|run| {
            let mut steps = table(pairs, 64, 300, 0);
            for end in [1, 1, 7, 3, 200, 300] {
                run(&mut RopeFillJob::new(&mut steps, end));
            }
            assert_eq!(steps.filled(), 300);
            assert_same("rows", &steps.rows, &whole.rows);
        });
    }
}

#[test]
fn frequencies() {
    let plain = rope_frequencies(4, 100.0, 1.0, None);
    assert!((plain[0] - 1.0).abs() < 1e-15 && (plain[1] - 0.1).abs() < 1e-15);
    let scaled = rope_frequencies(4, 100.0, 0.5, Some(&[1.0, 8.0]));
    assert!((scaled[0] - 0.5).abs() < 1e-15 && (scaled[1] - 0.1 * 0.5 / 8.0).abs() < 1e-15);
}

#[test]
fn impossible_tables_are_errors() {
    let new = |f: Vec<f64>, n| RopeTable::new(RopePairs::Halves, f, 1.0, n).map(|_| ());
    assert_eq!(new(vec![], 8), Err(RopeError::Empty));
    let infinite = rope_frequencies(4, 10.0, 1.0, Some(&[1.0, 0.0]));
    assert_eq!(
        new(infinite, 8),
        Err(RopeError::NotFinite {
            pair: 1,
            value: f64::INFINITY
        })
    );
    for n_ctx in [usize::MAX, usize::MAX / 8, 1 << 58] {
        assert!(matches!(
            new(vec![1.0; 8], n_ctx),
            Err(RopeError::OutOfMemory(_))
        ));
    }
}

#[test]
#[should_panic(expected = "filled to 3")]
fn positions_that_are_not_filled_are_refused() {
    let t = table(RopePairs::Halves, 2, 8, 3);
    let _ = RopeJob::new(levels()[0], &t, 2, &mut [0.0; 4], 1, 2);
}
