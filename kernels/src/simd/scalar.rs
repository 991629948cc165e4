//! The portable level: sixteen-lane vectors as arrays. It defines what the others compute.

use super::{Kernel, Simd};
use crate::level::Level;
use half::f16;

/// The portable level's token. Every processor has it.
///
/// The longer operations are calls: unrolled in every kernel they would be a megabyte of code.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// Applies `f` lane by lane.
#[inline(always)]
fn map<A: Copy, R: Copy + Default>(a: [A; 16], f: impl Fn(A) -> R) -> [R; 16] {
    let mut out = [R::default(); 16];
    for i in 0..16 {
        out[i] = f(a[i]);
    }
    out
}

/// Applies `f` to pairs of lanes.
#[inline(always)]
fn zip<A: Copy, B: Copy, R: Copy + Default>(
    a: [A; 16],
    b: [B; 16],
    f: impl Fn(A, B) -> R,
) -> [R; 16] {
    let mut out = [R::default(); 16];
    for i in 0..16 {
        out[i] = f(a[i], b[i]);
    }
    out
}

/// The four bytes of each lane changed by `f`.
#[inline(always)]
fn map_bytes(a: [i32; 16], f: impl Fn(u8) -> u8) -> [i32; 16] {
    map(a, |x| i32::from_le_bytes(x.to_le_bytes().map(&f)))
}

/// The two 16-bit halves of a lane, the lower first.
#[inline(always)]
fn halves(x: i32) -> [i32; 2] {
    [x as i16 as i32, x >> 16]
}

/// `a * b + c` rounded once, sixteen times over.
///
/// Without a hardware instruction that is a call for each element; this is several times faster. The product of two `f32` is exact in `f64`, so only the sum is rounded, to 53 bits, and
/// the conversion rounds it again, to 24. Two roundings differ from one only when the first lands
/// exactly in the middle between two `f32` (its low 29 bits are a one and zeros), or where `f32`
/// has fewer bits (below its smallest normal number). Then, and only then, the
/// correctly rounded software form decides.
#[inline(always)]
fn fused(a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
    const LOW: u64 = (1 << 29) - 1;
    const MIDDLE: u64 = 1 << 28;
    let mut out = [0.0; 16];
    let mut doubtful = 0u32;
    for i in 0..16 {
        let sum = f64::from(a[i]) * f64::from(b[i]) + f64::from(c[i]);
        out[i] = sum as f32;
        let middle = sum.to_bits() & LOW == MIDDLE;
        let subnormal = sum.abs() < f64::from(f32::MIN_POSITIVE);
        doubtful |= u32::from(middle) | (u32::from(subnormal) & u32::from(sum != 0.0));
    }
    if doubtful != 0 {
        for i in 0..16 {
            out[i] = libm::fmaf(a[i], b[i], c[i]);
        }
    }
    out
}

impl Simd for Scalar {
    type F32 = [f32; 16];
    type Int = [i32; 16];
    type Mask = [bool; 16];

    const LEVEL: Level = Level::Scalar;
    const I8_BIAS: i32 = 0;
    const TOKENS: usize = 1;
    const MANY_REGISTERS: bool = false;
    const ONE_BY_ONE: bool = true;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Scalar
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, args: K::Args<'_>) -> K::Out {
        K::run(self, args)
    }

    #[inline(always)]
    fn prefetch(self, _: *const u8) {}
    #[inline(always)]
    fn prefetch_far(self, _: *const u8) {}

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, from: &[f32; 16]) -> [f32; 16] {
        *from
    }
    #[inline(always)]
    fn store(self, v: [f32; 16], to: &mut [f32; 16]) {
        *to = v;
    }
    #[inline(always)]
    fn add(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a * b)
    }
    #[inline(never)]
    fn div(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| a / b)
    }
    #[inline(never)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        fused(a, b, c)
    }
    #[inline(never)]
    fn fnma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        self.fma(map(a, |a| -a), b, c)
    }
    #[inline(always)]
    fn max(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(never)]
    fn reduce_add(self, mut a: [f32; 16]) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                a[i] += a[i + half];
            }
        }
        a[0]
    }
    #[inline(always)]
    fn reduce_max(self, mut a: [f32; 16]) -> f32 {
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                a[i] = if a[i] > a[i + half] {
                    a[i]
                } else {
                    a[i + half]
                };
            }
        }
        a[0]
    }
    #[inline(always)]
    fn swap_pairs(self, a: [f32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| a[i ^ 1])
    }
    #[inline(always)]
    fn lt(self, a: [f32; 16], b: [f32; 16]) -> [bool; 16] {
        zip(a, b, |a, b| a < b)
    }
    #[inline(always)]
    fn le(self, a: [f32; 16], b: [f32; 16]) -> [bool; 16] {
        zip(a, b, |a, b| a <= b)
    }
    #[inline(always)]
    fn eq(self, a: [f32; 16], b: [f32; 16]) -> [bool; 16] {
        zip(a, b, |a, b| a == b)
    }
    #[inline(always)]
    fn select(self, m: [bool; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        let mut out = b;
        for i in 0..16 {
            out[i] = if m[i] { a[i] } else { b[i] };
        }
        out
    }

    #[inline(never)]
    fn round_i32(self, a: [f32; 16]) -> [i32; 16] {
        map(a, |a| {
            let r = a.round_ties_even();
            // -2^31 fits and is also what everything outside becomes.
            if (-2147483648.0..2147483648.0).contains(&r) {
                r as i32
            } else {
                i32::MIN
            }
        })
    }
    #[inline(never)]
    fn i32_to_f32(self, a: [i32; 16]) -> [f32; 16] {
        map(a, |a| a as f32)
    }
    #[inline(always)]
    fn f32_bits(self, a: [f32; 16]) -> [i32; 16] {
        map(a, |a| a.to_bits() as i32)
    }
    #[inline(always)]
    fn f32_from_bits(self, a: [i32; 16]) -> [f32; 16] {
        map(a, |a| f32::from_bits(a as u32))
    }
    #[inline(never)]
    fn load_f16(self, from: &[u16; 16]) -> [f32; 16] {
        map(*from, |h| f16::from_bits(h).to_f32_const())
    }
    #[inline(never)]
    fn store_f16(self, v: [f32; 16], to: &mut [u16; 16]) {
        *to = map(v, |x| f16::from_f32_const(x).to_bits());
    }
    #[inline(never)]
    fn load_u16(self, from: &[u16; 16]) -> [i32; 16] {
        map(*from, i32::from)
    }
    #[inline(never)]
    fn load_i8(self, from: &[i8; 16]) -> [i32; 16] {
        map(*from, i32::from)
    }
    #[inline(never)]
    fn store_low_bytes(self, v: [i32; 16], to: &mut [u8; 16]) {
        *to = map(v, |x| x as u8);
    }

    #[inline(never)]
    fn store_low_halves(self, v: [i32; 16], to: &mut [u16; 16]) {
        *to = map(v, |x| x as u16);
    }
    #[inline(never)]
    fn pair_i16(self, low: [i32; 16], high: [i32; 16]) -> [i32; 16] {
        zip(low, high, |low, high| (low & 0xffff) | high << 16)
    }

    #[inline(never)]
    fn splat_i32(self, x: i32) -> [i32; 16] {
        [x; 16]
    }
    #[inline(never)]
    fn load_i32(self, from: &[i32; 16]) -> [i32; 16] {
        *from
    }
    #[inline(always)]
    fn store_i32(self, v: [i32; 16], to: &mut [i32; 16]) {
        *to = v;
    }
    #[inline(never)]
    fn add_i32(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, i32::wrapping_add)
    }
    #[inline(never)]
    fn sub_i32(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, i32::wrapping_sub)
    }
    #[inline(never)]
    fn mul_i32(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, i32::wrapping_mul)
    }
    #[inline(never)]
    fn max_u32(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, |a, b| (a as u32).max(b as u32) as i32)
    }
    #[inline(never)]
    fn and(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, |a, b| a & b)
    }
    #[inline(never)]
    fn or(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, |a, b| a | b)
    }
    #[inline(never)]
    fn xor(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, |a, b| a ^ b)
    }
    #[inline(never)]
    fn shl(self, a: [i32; 16], n: u32) -> [i32; 16] {
        map(a, |a| a << n)
    }
    #[inline(never)]
    fn shr(self, a: [i32; 16], n: u32) -> [i32; 16] {
        map(a, |a| ((a as u32) >> n) as i32)
    }
    #[inline(never)]
    fn sar(self, a: [i32; 16], n: u32) -> [i32; 16] {
        map(a, |a| a >> n)
    }
    #[inline(never)]
    fn gt_i32(self, a: [i32; 16], b: [i32; 16]) -> [bool; 16] {
        zip(a, b, |a, b| a > b)
    }
    #[inline(never)]
    fn select_i32(self, m: [bool; 16], a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        let mut out = b;
        for i in 0..16 {
            out[i] = if m[i] { a[i] } else { b[i] };
        }
        out
    }
    #[inline(never)]
    fn reduce_add_i32(self, a: [i32; 16]) -> i32 {
        a.into_iter().fold(0, i32::wrapping_add)
    }
    #[inline(never)]
    fn reduce_max_u32(self, a: [i32; 16]) -> u32 {
        a.into_iter().fold(0, |m, x| m.max(x as u32))
    }

    #[inline(always)]
    fn first(self, n: usize) -> [bool; 16] {
        let mut out = [false; 16];
        out[..n.min(16)].fill(true);
        out
    }
    #[inline(always)]
    fn and_mask(self, a: [bool; 16], b: [bool; 16]) -> [bool; 16] {
        zip(a, b, |a, b| a && b)
    }
    #[inline(always)]
    fn mask_bits(self, m: [bool; 16]) -> u16 {
        let mut bits = 0;
        for (i, lane) in m.into_iter().enumerate() {
            bits |= u16::from(lane) << i;
        }
        bits
    }

    #[inline(never)]
    fn load_bytes(self, from: &[u8; 64]) -> [i32; 16] {
        let mut out = [0; 16];
        for i in 0..16 {
            out[i] = i32::from_le_bytes([
                from[4 * i],
                from[4 * i + 1],
                from[4 * i + 2],
                from[4 * i + 3],
            ]);
        }
        out
    }
    #[inline(never)]
    fn store_bytes(self, v: [i32; 16], to: &mut [u8; 64]) {
        for i in 0..16 {
            to[4 * i..4 * i + 4].copy_from_slice(&v[i].to_le_bytes());
        }
    }
    #[inline(never)]
    fn sub_u8(self, a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        zip(a, b, |a, b| {
            let (mut a, b) = (a.to_le_bytes(), b.to_le_bytes());
            for j in 0..4 {
                a[j] = a[j].wrapping_sub(b[j]);
            }
            i32::from_le_bytes(a)
        })
    }
    #[inline(never)]
    fn lookup(self, table: &[i8; 16], index: [i32; 16]) -> [i32; 16] {
        map_bytes(index, |i| table[usize::from(i & 15)] as u8)
    }
    #[inline(never)]
    fn dot_u8(self, acc: [i32; 16], u: [i32; 16], x: [i32; 16]) -> [i32; 16] {
        let mut out = acc;
        for i in 0..16 {
            let (u, x) = (u[i].to_le_bytes(), x[i].to_le_bytes());
            for j in 0..4 {
                out[i] = out[i].wrapping_add(i32::from(u[j]) * i32::from(x[j] as i8));
            }
        }
        out
    }
    #[inline(never)]
    fn i8_operand(self, w: [i32; 16]) -> [i32; 16] {
        w
    }
    #[inline(never)]
    fn dot_i8(self, acc: [i32; 16], w: [i32; 16], x: [i32; 16]) -> [i32; 16] {
        let mut out = acc;
        for i in 0..16 {
            let (w, x) = (w[i].to_le_bytes(), x[i].to_le_bytes());
            for j in 0..4 {
                out[i] = out[i].wrapping_add(i32::from(w[j] as i8) * i32::from(x[j] as i8));
            }
        }
        out
    }
    #[inline(never)]
    fn dot_i16(self, acc: [i32; 16], a: [i32; 16], b: [i32; 16]) -> [i32; 16] {
        let mut out = acc;
        for i in 0..16 {
            let (a, b) = (halves(a[i]), halves(b[i]));
            out[i] = out[i].wrapping_add(a[0] * b[0]).wrapping_add(a[1] * b[1]);
        }
        out
    }
    #[inline(never)]
    fn even_bytes_i16(self, a: [i32; 16]) -> [i32; 16] {
        map(a, |a| {
            (i32::from(a as i8) & 0xffff) | (i32::from((a >> 16) as i8) << 16)
        })
    }
    #[inline(never)]
    fn odd_bytes_i16(self, a: [i32; 16]) -> [i32; 16] {
        map(a, |a| {
            (i32::from((a >> 8) as i8) & 0xffff) | (i32::from((a >> 24) as i8) << 16)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bits, and values around each doubtful case: products that end in the middle of two
    /// `f32` with a small addend on either side, subnormal results, overflow, zeros.
    #[test]
    fn fused_rounds_once() {
        let mut state = 1u64;
        let mut bits = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 32) as u32
        };
        let check = |a: [f32; 16], b: [f32; 16], c: [f32; 16]| {
            let found = fused(a, b, c);
            for i in 0..16 {
                let wanted = a[i].mul_add(b[i], c[i]);
                let same = found[i].to_bits() == wanted.to_bits();
                assert!(
                    same || found[i].is_nan() && wanted.is_nan(),
                    "{} {} {}",
                    a[i],
                    b[i],
                    c[i]
                );
            }
        };
        for _ in 0..20_000 {
            let mut any = || std::array::from_fn(|_| f32::from_bits(bits()));
            check(any(), any(), any());
        }
        for _ in 0..20_000 {
            // 1 + k 2^-23 plus half a unit, plus or minus next to nothing.
            let odd = std::array::from_fn(|_| 1.0 + (bits() >> 9) as f32 * f32::EPSILON);
            let half = [f32::EPSILON / 2.0; 16];
            let tiny = std::array::from_fn(|_| {
                let sign = if bits() & 1 == 0 { 1.0 } else { -1.0 };
                sign * f32::from_bits((bits() % 120) << 23)
            });
            check(half, [1.0; 16], odd);
            check(
                odd,
                std::array::from_fn(|_| 1.0 + f32::EPSILON * (bits() % 64) as f32),
                tiny,
            );
            let small = std::array::from_fn(|_| f32::from_bits(bits() % (40 << 23)));
            check(
                small,
                std::array::from_fn(|_| f32::from_bits((90 + bits() % 40) << 23)),
                tiny,
            );
            let large =
                std::array::from_fn(|_| f32::from_bits((240 + bits() % 14) << 23 | bits() >> 9));
            check(
                large,
                odd,
                std::array::from_fn(|_| f32::from_bits((200 + bits() % 54) << 23)),
            );
        }
    }
}
