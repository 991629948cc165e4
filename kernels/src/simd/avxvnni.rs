//! AVX2 with AVX-VNNI: `vpdpbusd` and `vpdpwssd` on 256-bit registers, without AVX-512.

use super::Kernel;
use super::avx2::{Products, Ymm};
use crate::level::Level;
use std::arch::x86_64::*;

/// The products of AVX-VNNI: four unsigned-by-signed products summed in 32 bits, unsaturated.
#[derive(Clone, Copy)]
pub(crate) struct Vnni;

/// The AVX-VNNI level's token.
pub(crate) type AvxVnni = Ymm<Vnni>;

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avxvnni")]
fn enter<K: Kernel>(s: AvxVnni, args: K::Args<'_>) -> K::Out {
    K::run(s, args)
}

impl Products for Vnni {
    const LEVEL: Level = Level::AvxVnni;
    const I8_BIAS: i32 = 128;

    #[inline(always)]
    unsafe fn enter<K: Kernel>(s: AvxVnni, args: K::Args<'_>) -> K::Out {
        // SAFETY: the caller vouches for the features.
        unsafe { enter::<K>(s, args) }
    }
    #[inline(always)]
    unsafe fn dot_u8(acc: __m256i, u: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the features.
        unsafe { _mm256_dpbusd_avx_epi32(acc, u, x) }
    }
    #[inline(always)]
    unsafe fn i8_operand(w: __m256i) -> __m256i {
        // Flipping the sign bit adds 128 and leaves an unsigned byte.
        // SAFETY: the caller vouches for the features.
        unsafe { _mm256_xor_si256(w, _mm256_set1_epi8(-128)) }
    }
    #[inline(always)]
    unsafe fn dot_i8(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the features.
        unsafe { _mm256_dpbusd_avx_epi32(acc, w, x) }
    }
    #[inline(always)]
    unsafe fn dot_i16(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the features.
        unsafe { _mm256_dpwssd_avx_epi32(acc, a, b) }
    }
}
