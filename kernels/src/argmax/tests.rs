use super::*;
use crate::test_util::{Rng, levels, run_everywhere};

fn check(values: &[f32], wanted: Result<usize, ArgmaxError>) {
    run_everywhere(|run| {
        for kernels in levels() {
            let mut job = ArgmaxJob::new(kernels, values);
            run(&mut job);
            let found = job.result();
            assert_eq!(
                found.map(|(index, _)| index),
                wanted,
                "{:?}",
                kernels.level()
            );
            if let Ok((index, value)) = found {
                assert_eq!(value.to_bits(), values[index].to_bits());
            }
        }
    });
}

#[test]
fn finds_the_first_of_the_largest() {
    let mut rng = Rng(7);
    for n in [1, 2, 15, 16, 17, 33, 1000, CHUNK, CHUNK + 1, 3 * CHUNK + 5] {
        for values_of in [2, 50, 1 << 20] {
            let values: Vec<f32> = (0..n).map(|_| rng.below(values_of) as f32 - 1e3).collect();
            let mut wanted = 0;
            for (i, &v) in values.iter().enumerate() {
                if v > values[wanted] {
                    wanted = i;
                }
            }
            check(&values, Ok(wanted));
        }
    }
}

#[test]
fn extremes() {
    let (inf, tiny) = (f32::INFINITY, f32::from_bits(1));
    check(&[], Err(ArgmaxError::Empty));
    for n in [1, 5, 16, 40, CHUNK + 20] {
        check(&vec![-inf; n], Ok(0));
        check(&vec![inf; n], Ok(0));
        check(&vec![-0.0; n], Ok(0));
        for at in [0, n / 2, n - 1] {
            let with = |fill: f32, value: f32| {
                let mut values = vec![fill; n];
                values[at] = value;
                values
            };
            check(&with(-inf, f32::MIN), Ok(at));
            check(&with(-0.0, tiny), Ok(at));
            check(&with(-tiny, -0.0), Ok(at));
            check(&with(1.0, inf), Ok(at));
            // Zeros of both signs tie.
            check(&with(-0.0, 0.0), Ok(0));
            check(&with(0.0, -0.0), Ok(0));
            let nan = ArgmaxError::Nan { index: at };
            check(&with(1.0, f32::NAN), Err(nan));
            check(&with(inf, -f32::NAN), Err(nan));
        }
    }
    let mut two = vec![0.0; 3 * CHUNK];
    two[2 * CHUNK + 1] = f32::NAN;
    two[CHUNK + 7] = f32::NAN;
    check(&two, Err(ArgmaxError::Nan { index: CHUNK + 7 }));
}
