use super::*;
use crate::level::{Kernels, Level};
use crate::simd::{Kernel, Scalar, entry};
use crate::test_util::{self, assert_same, levels};
use std::marker::PhantomData;

trait Function: 'static {
    fn apply<S: Simd>(s: S, x: S::F32) -> S::F32;
    /// The same, once more.
    fn scalar(x: f32) -> f32;
    fn exact(x: f64) -> f64;
}

macro_rules! function {
    ($name:ident, $f:ident, |$x:ident| $exact:expr) => {
        struct $name;
        impl Function for $name {
            #[inline(always)]
            fn apply<S: Simd>(s: S, x: S::F32) -> S::F32 {
                $f(s, x)
            }
            fn scalar(x: f32) -> f32 {
                test_util::$f(x)
            }
            fn exact($x: f64) -> f64 {
                $exact
            }
        }
    };
}

function!(Exp, exp, |x| libm::exp(x));
function!(Tanh, tanh, |x| libm::tanh(x));
function!(Silu, silu, |x| x / (1.0 + libm::exp(-x)));
function!(Gelu, gelu, |x| {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    x / (1.0 + libm::exp(-2.0 * u))
});

struct Apply<F>(PhantomData<F>);

impl<F: Function> Kernel for Apply<F> {
    type Args<'a> = &'a mut [[f32; 16]];
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, values: &mut [[f32; 16]]) {
        for v in values {
            let y = F::apply(s, s.load(v));
            s.store(y, v);
        }
    }
}

fn apply<F: Function>(kernels: Kernels, values: &mut [[f32; 16]]) {
    // SAFETY: the processor has the level that `kernels` proves.
    unsafe {
        match kernels.level() {
            Level::Scalar => entry::<Scalar, Apply<F>>(values),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => entry::<crate::simd::Avx2, Apply<F>>(values),
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni => entry::<crate::simd::AvxVnni, Apply<F>>(values),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Amx => entry::<crate::simd::Avx512, Apply<F>>(values),
            #[cfg(not(target_arch = "x86_64"))]
            _ => unreachable!(),
        }
    }
}

/// Every `step`th bit pattern and its successors, in batches.
fn patterns(step: u64, mut each: impl FnMut(&[[f32; 16]])) {
    let mut batch = vec![[0.0; 16]; 1 << 12];
    let mut next = 0;
    while next < 1 << 32 {
        for x in batch.as_flattened_mut() {
            *x = f32::from_bits(next as u32);
            next += step;
        }
        each(&batch);
    }
}

/// Distance from `exact` in units of the last place of the `f32` nearest to it.
fn ulps(y: f32, exact: f64) -> f64 {
    let exponent = libm::ilogb(exact).max(-126);
    (f64::from(y) - exact).abs() / libm::ldexp(1.0, exponent - 23)
}

/// The largest error over a sample of all finite arguments whose result is at least `least` in
/// size.
fn worst<F: Function>(kernels: Kernels, step: u64, least: f64) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    let mut ys = vec![[0.0; 16]; 1 << 12];
    patterns(step, |xs| {
        ys.copy_from_slice(xs);
        apply::<F>(kernels, &mut ys);
        for (&x, &y) in xs.as_flattened().iter().zip(ys.as_flattened()) {
            let exact = F::exact(f64::from(x));
            let counts = (least..=f64::from(f32::MAX)).contains(&exact.abs());
            if x.is_finite() && counts {
                let error = ulps(y, exact);
                if error > worst.0 {
                    worst = (error, x);
                }
            }
        }
    });
    worst
}

fn agree<F: Function>(name: &str) {
    let kernels = levels();
    let mut ys = vec![[0.0; 16]; 1 << 12];
    let mut wanted = vec![0.0; 1 << 16];
    patterns(7919, |xs| {
        for (w, &x) in wanted.iter_mut().zip(xs.as_flattened()) {
            *w = F::scalar(x);
        }
        for &kernels in &kernels {
            ys.copy_from_slice(xs);
            apply::<F>(kernels, &mut ys);
            assert_same(
                &format!("{name} {}", kernels.level()),
                ys.as_flattened(),
                &wanted,
            );
        }
    });
}

#[test]
fn levels_agree_with_the_description() {
    agree::<Exp>("exp");
    agree::<Tanh>("tanh");
    agree::<Silu>("silu");
    agree::<Gelu>("gelu");
}

/// Where the smallest normal number, and 1e-30, end what is compared: see the module's words.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;
const SMALL: f64 = 1e-30;

fn errors_within_bounds(step: u64) {
    let kernels = Kernels::new(Level::best()).unwrap();
    for (name, (error, x), bound) in [
        ("exp", worst::<Exp>(kernels, step, NORMAL), 0.9),
        ("tanh", worst::<Tanh>(kernels, step, NORMAL), 1.4),
        ("silu", worst::<Silu>(kernels, step, SMALL), 2.4),
        ("gelu", worst::<Gelu>(kernels, step, SMALL), 171.0),
    ] {
        println!("{name}: {error} at {x:e}");
        assert!(error < bound, "{name}({x:e}) is off by {error}");
    }
}

#[test]
fn errors_are_within_the_documented_bounds() {
    errors_within_bounds(1021);
}

#[test]
#[ignore = "takes minutes: every f32; run with --nocapture after changing a polynomial"]
fn errors_over_all_arguments() {
    errors_within_bounds(1);
}

#[test]
fn edges() {
    let inf = f32::INFINITY;
    let cases: [(f32, f32); 16] = [
        (0.0, 1.0),
        (-0.0, 1.0),
        (1e-30, 1.0),
        (f32::from_bits(1), 1.0),
        (-inf, 0.0),
        (inf, inf),
        (f32::MAX, inf),
        (f32::MIN, 0.0),
        (-87.336_55, 0.0),
        (-87.34, 0.0),
        (-1e10, 0.0),
        (88.722_84, inf),
        (89.0, inf),
        (1e10, inf),
        (std::f32::consts::LN_2, 2.0),
        (-std::f32::consts::LN_2, 0.5),
    ];
    let xs: [f32; 16] = cases.map(|c| c.0);
    for kernels in levels() {
        let mut ys = [xs];
        apply::<Exp>(kernels, &mut ys);
        assert_same("exp", &ys[0], &cases.map(|c| c.1));
        let mut ys = [[f32::NAN; 16]];
        apply::<Exp>(kernels, &mut ys);
        assert!(ys[0].iter().all(|y| y.is_nan()));

        // The last argument on the near side of each threshold.
        let mut ys = [[
            -87.336_54, 88.722_83, 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.,
        ]];
        apply::<Exp>(kernels, &mut ys);
        assert!(
            ys[0][0] >= f32::MIN_POSITIVE && ys[0][0] < 1.2e-38,
            "{:e}",
            ys[0][0]
        );
        assert!(ys[0][1] > 3.4e38 && ys[0][1].is_finite(), "{:e}", ys[0][1]);
    }
}
