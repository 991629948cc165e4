use super::*;
use crate::test_util::{self, Rng, assert_same, levels, run_everywhere};

const LENGTHS: [usize; 10] = [
    0,
    1,
    15,
    16,
    17,
    100,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    3 * CHUNK + 7,
];

#[test]
fn pairs() {
    let mut rng = Rng(1);
    for n in LENGTHS {
        let (x, y) = (rng.wilds(n), rng.wilds(n));
        let wanted = |f: fn(f32, f32) -> f32| -> Vec<f32> {
            x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect()
        };
        let add = wanted(|x, y| x + y);
        let silu = wanted(|x, y| test_util::silu(x) * y);
        let gelu = wanted(|x, y| test_util::gelu(x) * y);
        run_everywhere(|run| {
            for kernels in levels() {
                let mut out = x.clone();
                run(&mut AddJob::new(kernels, &mut out, &y));
                assert_same("add", &out, &add);
                out.copy_from_slice(&x);
                run(&mut GluJob::silu(kernels, &mut out, &y));
                assert_same("silu", &out, &silu);
                out.copy_from_slice(&x);
                run(&mut GluJob::gelu(kernels, &mut out, &y));
                assert_same("gelu", &out, &gelu);
            }
        });
    }
}

#[test]
fn singles() {
    let mut rng = Rng(2);
    for n in LENGTHS {
        let x = rng.wilds(n);
        let scaled: Vec<f32> = x.iter().map(|x| x * 25.298_221).collect();
        let capped: Vec<f32> = x.iter().map(|x| 30.0 * test_util::tanh(x / 30.0)).collect();
        run_everywhere(|run| {
            for kernels in levels() {
                let mut out = x.clone();
                run(&mut ScaleJob::new(kernels, &mut out, 25.298_221));
                assert_same("scale", &out, &scaled);
                out.copy_from_slice(&x);
                run(&mut SoftcapJob::new(kernels, &mut out, 30.0));
                assert_same("softcap", &out, &capped);
            }
        });
    }
}

#[test]
fn biases() {
    let mut rng = Rng(3);
    for (rows, d) in [(0, 5), (1, 1), (1, 16), (3, 17), (9, 576), (5, CHUNK + 3)] {
        let (x, bias) = (rng.wilds(rows * d), rng.wilds(d));
        let wanted: Vec<f32> = x.iter().enumerate().map(|(i, x)| x + bias[i % d]).collect();
        run_everywhere(|run| {
            for kernels in levels() {
                let mut out = x.clone();
                run(&mut AddBiasJob::new(kernels, &mut out, &bias));
                assert_same("bias", &out, &wanted);
            }
        });
    }
}

#[test]
fn a_soft_cap_is_nearly_the_identity_near_zero_and_bounded() {
    for kernels in levels() {
        let mut x = [1e-3, -1e-3, 1e6, -1e6, f32::INFINITY, 0.0, -0.0];
        crate::serial(&mut SoftcapJob::new(kernels, &mut x, 50.0));
        assert!(
            (x[0] - 1e-3).abs() < 1e-9 && (x[1] + 1e-3).abs() < 1e-9,
            "{x:?}"
        );
        assert_same("cap", &x[2..], &[50.0, -50.0, 50.0, 0.0, -0.0]);
    }
}

#[test]
#[should_panic(expected = "unequal lengths")]
fn unequal_operands_are_refused() {
    let kernels = levels()[0];
    let _ = AddJob::new(kernels, &mut [0.0; 3], &[0.0; 4]);
}

#[test]
#[should_panic(expected = "not rows")]
fn a_bias_of_another_length_is_refused() {
    let kernels = levels()[0];
    let _ = AddBiasJob::new(kernels, &mut [0.0; 5], &[0.0; 4]);
}
