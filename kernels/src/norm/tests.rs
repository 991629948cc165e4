use super::*;
use crate::test_util::{Rng, assert_same, levels, run_everywhere, tree};

const EPS: f32 = 1e-5;

/// The module's description, one value at a time.
fn norm(x: &[f32], w: Option<&[f32]>) -> Vec<f32> {
    let mut acc = [0.0f32; 16];
    for (i, &x) in x.iter().enumerate() {
        acc[i % 16] = x.mul_add(x, acc[i % 16]);
    }
    let scale = 1.0 / (tree(acc) / x.len() as f32 + EPS).sqrt();
    let weight = |i| w.map_or(1.0, |w: &[f32]| w[i]);
    x.iter()
        .enumerate()
        .map(|(i, &x)| (x * scale) * weight(i))
        .collect()
}

fn norm_rows(x: &[f32], w: &[f32]) -> Vec<f32> {
    x.chunks(w.len()).flat_map(|x| norm(x, Some(w))).collect()
}

fn sum(x: &[f32], y: &[f32]) -> Vec<f32> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

const SHAPES: [(usize, usize); 11] = [
    (0, 8),
    (1, 1),
    (3, 5),
    (2, 16),
    (7, 17),
    (4, 64),
    (5, 80),
    (3, 576),
    (2, 640),
    (1, 1000),
    (3, CHUNK + 9),
];

#[test]
fn plain_fused_and_post_norms() {
    let mut rng = Rng(4);
    for (rows, d) in SHAPES {
        for wild in [false, true] {
            let mut values = |n| if wild { rng.wilds(n) } else { rng.units(n) };
            let (x, y) = (values(rows * d), values(rows * d));
            let (w, w_next) = (values(d), values(d));
            let plain = norm_rows(&x, &w);
            let added = sum(&x, &y);
            let added_norm = norm_rows(&added, &w);
            let post = sum(&x, &norm_rows(&y, &w));
            let post_next = norm_rows(&post, &w_next);
            run_everywhere(|run| {
                for k in levels() {
                    let mut out = vec![0.0; rows * d];
                    run(&mut RmsNormJob::new(k, &x, &w, EPS, &mut out));
                    assert_same("norm", &out, &plain);

                    let mut residual = x.clone();
                    run(&mut AddRmsNormJob::new(
                        k,
                        &mut residual,
                        &y,
                        &w,
                        EPS,
                        &mut out,
                    ));
                    assert_same("sum", &residual, &added);
                    assert_same("norm of sum", &out, &added_norm);

                    residual.copy_from_slice(&x);
                    run(&mut PostNormJob::new(k, &mut residual, &y, &w, EPS));
                    assert_same("post norm", &residual, &post);

                    residual.copy_from_slice(&x);
                    let job = PostNormJob::new(k, &mut residual, &y, &w, EPS);
                    run(&mut PostNormThenNormJob::new(job, &w_next, &mut out));
                    assert_same("post norm", &residual, &post);
                    assert_same("norm after post norm", &out, &post_next);
                }
            });
        }
    }
}

#[test]
fn head_norms() {
    let mut rng = Rng(5);
    for (rows, d) in SHAPES {
        let (x, w) = (rng.wilds(rows * d), rng.wilds(d));
        let weighted = norm_rows(&x, &w);
        let unweighted: Vec<f32> = x.chunks(d).flat_map(|x| norm(x, None)).collect();
        run_everywhere(|run| {
            for k in levels() {
                let mut out = x.clone();
                run(&mut HeadNormJob::new(k, &mut out, &w, EPS));
                assert_same("weighted", &out, &weighted);
                out.copy_from_slice(&x);
                run(&mut UnweightedHeadNormJob::new(k, &mut out, d, EPS));
                assert_same("unweighted", &out, &unweighted);
            }
        });
    }
}

#[test]
fn a_hand_computed_row() {
    // The mean square of 3, 4, 0, ... (8 values) is 25 / 8; 5 / sqrt(25 / 8) = sqrt(8).
    let x = [3.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let mut out = [0.0; 8];
    crate::serial(&mut RmsNormJob::new(
        levels()[0],
        &x,
        &[2.0; 8],
        0.0,
        &mut out,
    ));
    let unit = 8f32.sqrt() / 5.0 * 2.0;
    assert!((out[0] - 3.0 * unit).abs() < 1e-6 && (out[1] - 4.0 * unit).abs() < 1e-6);
    assert_same("zeros", &out[2..], &[0.0; 6]);
}

#[test]
#[should_panic(expected = "not rows")]
fn a_weight_of_another_length_is_refused() {
    let _ = RmsNormJob::new(levels()[0], &[0.0; 7], &[0.0; 4], EPS, &mut [0.0; 7]);
}
