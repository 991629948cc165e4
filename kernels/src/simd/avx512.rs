//! AVX-512 with VNNI: one 512-bit register a vector, masks in mask registers.

use super::{Kernel, Simd};
use crate::level::Level;
use std::arch::x86_64::*;

/// The AVX-512 level's token: the processor has AVX-512 F, BW, VL, DQ and VNNI, with AVX2, FMA
/// and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn enter<K: Kernel>(s: Avx512, args: K::Args<'_>) -> K::Out {
    K::run(s, args)
}

/// Methods whose body is one expression of this level's instructions.
macro_rules! instructions {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty { $body:expr })*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) -> $out {
            // SAFETY: `self` proves that the processor has the instructions, and pointers come
            // from references to arrays of at least the size that is read or written.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    type F32 = __m512;
    type Int = __m512i;
    type Mask = __mmask16;

    const LEVEL: Level = Level::Avx512;
    const I8_BIAS: i32 = 128;
    const TOKENS: usize = 8;
    const MANY_REGISTERS: bool = true;
    const ONE_BY_ONE: bool = false;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Avx512(())
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, args: K::Args<'_>) -> K::Out {
        // SAFETY: `self` proves that the processor has the target features.
        unsafe { enter::<K>(self, args) }
    }

    instructions! {
        fn prefetch(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        fn prefetch_far(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn load(from: &[f32; 16]) -> __m512 { _mm512_loadu_ps(from.as_ptr()) }
        fn store(v: __m512, to: &mut [f32; 16]) -> () { _mm512_storeu_ps(to.as_mut_ptr(), v) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fnmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn reduce_add(a: __m512) -> f32 {{
            let a = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }}
        fn reduce_max(a: __m512) -> f32 {{
            let a = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }}
        fn swap_pairs(a: __m512) -> __m512 { _mm512_permute_ps::<0b10_11_00_01>(a) }
        fn lt(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
        fn le(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
        fn eq(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
        fn select(m: __mmask16, a: __m512, b: __m512) -> __m512 {
            _mm512_mask_blend_ps(m, b, a)
        }
        fn round_i32(a: __m512) -> __m512i {
            _mm512_cvt_roundps_epi32::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn i32_to_f32(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        fn f32_bits(a: __m512) -> __m512i { _mm512_castps_si512(a) }
        fn f32_from_bits(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        fn load_f16(from: &[u16; 16]) -> __m512 {
            _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast()))
        }
        fn store_f16(v: __m512, to: &mut [u16; 16]) -> () {
            _mm256_storeu_si256(
                to.as_mut_ptr().cast(),
                _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v),
            )
        }
        fn load_u16(from: &[u16; 16]) -> __m512i {
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()))
        }
        fn load_i8(from: &[i8; 16]) -> __m512i {
            _mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))
        }
        fn store_low_bytes(v: __m512i, to: &mut [u8; 16]) -> () {
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v))
        }
        fn store_low_halves(v: __m512i, to: &mut [u16; 16]) -> () {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(v))
        }
        fn pair_i16(low: __m512i, high: __m512i) -> __m512i {
            _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_slli_epi32::<16>(high))
        }
        fn splat_i32(x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn load_i32(from: &[i32; 16]) -> __m512i { _mm512_loadu_si512(from.as_ptr().cast()) }
        fn store_i32(v: __m512i, to: &mut [i32; 16]) -> () {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), v)
        }
        fn add_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        fn sub_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        fn mul_i32(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
        fn max_u32(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epu32(a, b) }
        fn and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        fn or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        fn xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        fn shl(a: __m512i, n: u32) -> __m512i {
            _mm512_sllv_epi32(a, _mm512_set1_epi32(n as i32))
        }
        fn shr(a: __m512i, n: u32) -> __m512i {
            _mm512_srlv_epi32(a, _mm512_set1_epi32(n as i32))
        }
        fn sar(a: __m512i, n: u32) -> __m512i {
            _mm512_srav_epi32(a, _mm512_set1_epi32(n as i32))
        }
        fn gt_i32(a: __m512i, b: __m512i) -> __mmask16 { _mm512_cmpgt_epi32_mask(a, b) }
        fn select_i32(m: __mmask16, a: __m512i, b: __m512i) -> __m512i {
            _mm512_mask_blend_epi32(m, b, a)
        }
        fn reduce_add_i32(a: __m512i) -> i32 { _mm512_reduce_add_epi32(a) }
        fn reduce_max_u32(a: __m512i) -> u32 { _mm512_reduce_max_epu32(a) }
        fn load_bytes(from: &[u8; 64]) -> __m512i { _mm512_loadu_si512(from.as_ptr().cast()) }
        fn store_bytes(v: __m512i, to: &mut [u8; 64]) -> () {
            _mm512_storeu_si512(to.as_mut_ptr().cast(), v)
        }
        fn sub_u8(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi8(a, b) }
        fn lookup(table: &[i8; 16], index: __m512i) -> __m512i {
            _mm512_shuffle_epi8(
                _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())),
                index,
            )
        }
        fn dot_u8(acc: __m512i, u: __m512i, x: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(acc, u, x)
        }
        fn i8_operand(w: __m512i) -> __m512i { _mm512_xor_si512(w, _mm512_set1_epi8(-128)) }
        fn dot_i8(acc: __m512i, w: __m512i, x: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(acc, w, x)
        }
        fn dot_i16(acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
            _mm512_dpwssd_epi32(acc, a, b)
        }
        fn even_bytes_i16(a: __m512i) -> __m512i {
            _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(a))
        }
        fn odd_bytes_i16(a: __m512i) -> __m512i { _mm512_srai_epi16::<8>(a) }
    }

    #[inline(always)]
    fn first(self, n: usize) -> __mmask16 {
        ((1u32 << n.min(16)) - 1) as u16
    }
    #[inline(always)]
    fn and_mask(self, a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn mask_bits(self, m: __mmask16) -> u16 {
        m
    }
}
