//! Weights to the bytes that tiles are multiplied with.

use crate::simd::{Avx512, Simd};
use std::arch::x86_64::*;

type Int = <Avx512 as Simd>::Int;

/// Operations on 32 numbers of 16 bits, which no other kernel needs.
macro_rules! words {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name(_: Avx512, $($arg: $ty),*) -> $out {
            // SAFETY: the token proves that the processor has the instructions.
            unsafe { $body }
        }
    )*};
}

words! {
    /// The low 16 bits of the products.
    fn mul_i16(a: Int, b: Int) -> Int { _mm512_mullo_epi16(a, b) }
    /// `a << 8` in each number.
    fn shl8_i16(a: Int) -> Int { _mm512_slli_epi16::<8>(a) }
    /// `a >> 8` in each number, zeros shifted in.
    fn shr8_i16(a: Int) -> Int { _mm512_srli_epi16::<8>(a) }
    /// The low bytes of `low`'s numbers with the high bytes of `high`'s.
    fn low_and_high(low: Int, high: Int) -> Int {
        // mask ? low : high, bit by bit.
        _mm512_ternarylogic_epi32::<0xca>(_mm512_set1_epi16(0xff), low, high)
    }
    /// `a - b` in each byte, wrapping.
    fn sub_i8(a: Int, b: Int) -> Int { _mm512_sub_epi8(a, b) }
}

/// Signed `i32` to both 16-bit halves.
#[inline(always)]
pub(super) fn both_halves(s: Avx512, a: Int) -> Int {
    s.or(s.and(a, s.splat_i32(0xffff)), s.shl(a, 16))
}

/// Integers of up to eight bits, as bfloat16 in both halves.
#[inline(always)]
pub(super) fn both_halves_bf16(s: Avx512, a: Int) -> Int {
    let bits = s.f32_bits(s.i32_to_f32(a));
    s.or(bits, s.shr(bits, 16))
}

/// `n` in each byte.
pub(super) const fn bytes(n: i32) -> i32 {
    i32::from_le_bytes([n as u8; 4])
}
