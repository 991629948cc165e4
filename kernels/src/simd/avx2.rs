//! AVX2 with FMA and F16C: two 256-bit registers a vector, masks as vectors of all-ones lanes.
//!
//! The 256-bit levels differ in their integer products alone, so they are one type,
//! [`Ymm`], over a [`Products`] choice: this file's [`Maddubs`], or AVX-VNNI's.

use super::{Kernel, Simd};
use crate::level::Level;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// A 256-bit level's token: the processor has AVX2, FMA, F16C and what `P` needs.
pub(crate) struct Ymm<P>(PhantomData<P>);

impl<P> Clone for Ymm<P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<P> Copy for Ymm<P> {}

/// How a 256-bit level multiplies bytes.
///
/// The methods' obligation, upheld by whoever holds a [`Ymm`] token: the processor has AVX2,
/// FMA, F16C and [`Products::LEVEL`]'s own instructions.
pub(crate) trait Products: Copy + Send + Sync + 'static {
    /// The level's name.
    const LEVEL: Level;
    /// As [`Simd::I8_BIAS`].
    const I8_BIAS: i32;
    /// As [`Simd::enter`].
    ///
    /// # Safety
    ///
    /// - The processor has the level.
    unsafe fn enter<K: Kernel>(s: Ymm<Self>, args: K::Args<'_>) -> K::Out;
    /// As [`Simd::dot_u8`], on eight lanes.
    ///
    /// # Safety
    ///
    /// - The processor has the level.
    unsafe fn dot_u8(acc: __m256i, u: __m256i, x: __m256i) -> __m256i;
    /// As [`Simd::i8_operand`], on eight lanes.
    ///
    /// # Safety
    ///
    /// - The processor has the level.
    unsafe fn i8_operand(w: __m256i) -> __m256i;
    /// As [`Simd::dot_i8`], on eight lanes.
    ///
    /// # Safety
    ///
    /// - The processor has the level.
    unsafe fn dot_i8(acc: __m256i, w: __m256i, x: __m256i) -> __m256i;
    /// As [`Simd::dot_i16`], on eight lanes.
    ///
    /// # Safety
    ///
    /// - The processor has the level.
    unsafe fn dot_i16(acc: __m256i, a: __m256i, b: __m256i) -> __m256i;
}

/// The products of plain AVX2: `vpmaddubsw` sums two unsigned-by-signed products in 16 bits,
/// with saturation, and `vpmaddwd` with ones sums pairs of those in 32.
#[derive(Clone, Copy)]
pub(crate) struct Maddubs;

/// The AVX2 level's token.
pub(crate) type Avx2 = Ymm<Maddubs>;

#[inline(never)]
#[target_feature(enable = "avx2,fma,f16c")]
fn enter<K: Kernel>(s: Avx2, args: K::Args<'_>) -> K::Out {
    K::run(s, args)
}

impl Products for Maddubs {
    const LEVEL: Level = Level::Avx2;
    const I8_BIAS: i32 = 0;

    #[inline(always)]
    unsafe fn enter<K: Kernel>(s: Avx2, args: K::Args<'_>) -> K::Out {
        // SAFETY: the caller vouches for the features.
        unsafe { enter::<K>(s, args) }
    }
    #[inline(always)]
    unsafe fn dot_u8(acc: __m256i, u: __m256i, x: __m256i) -> __m256i {
        // Two products are at most 2 * 128 * 127 = 32512 and at least -32768: no saturation.
        // SAFETY: the caller vouches for the features.
        unsafe {
            let pairs = _mm256_maddubs_epi16(u, x);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }
    #[inline(always)]
    unsafe fn i8_operand(w: __m256i) -> __m256i {
        w
    }
    #[inline(always)]
    unsafe fn dot_i8(acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
        // |w| is at most 128 (as an unsigned byte), and `x` with w's sign is exact since x is
        // never -128; two products are within +-2 * 128 * 127 = 32512: no saturation.
        // SAFETY: the caller vouches for the features.
        unsafe { Self::dot_u8(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) }
    }
    #[inline(always)]
    unsafe fn dot_i16(acc: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller vouches for the features.
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)) }
    }
}

/// Two registers: lanes 0 to 7, then 8 to 15.
type F = [__m256; 2];
/// Two registers: lanes 0 to 7, then 8 to 15.
type I = [__m256i; 2];

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

/// The same instruction on both registers of its operands.
macro_rules! both {
    ($f:path, $($arg:ident),+) => {
        [$f($($arg[0]),+), $f($($arg[1]),+)]
    };
}

#[inline(always)]
unsafe fn cmp<const OP: i32>(a: F, b: F) -> I {
    // SAFETY: the caller vouches for the features.
    unsafe {
        [
            _mm256_castps_si256(_mm256_cmp_ps::<OP>(a[0], b[0])),
            _mm256_castps_si256(_mm256_cmp_ps::<OP>(a[1], b[1])),
        ]
    }
}

impl<P: Products> Simd for Ymm<P> {
    type F32 = F;
    type Int = I;
    type Mask = I;

    const LEVEL: Level = P::LEVEL;
    const I8_BIAS: i32 = P::I8_BIAS;
    const TOKENS: usize = 4;
    const MANY_REGISTERS: bool = false;
    const ONE_BY_ONE: bool = false;

    #[inline(always)]
    unsafe fn assume() -> Self {
        Ymm(PhantomData)
    }

    #[inline(always)]
    fn enter<K: Kernel>(self, args: K::Args<'_>) -> K::Out {
        // SAFETY: `self` proves that the processor has the level.
        unsafe { P::enter::<K>(self, args) }
    }

    instructions! {
        fn prefetch(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
        fn prefetch_far(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        fn splat(x: f32) -> F { [_mm256_set1_ps(x); 2] }
        fn load(from: &[f32; 16]) -> F {
            [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))]
        }
        fn store(v: F, to: &mut [f32; 16]) -> () {{
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1])
        }}
        fn add(a: F, b: F) -> F { both!(_mm256_add_ps, a, b) }
        fn sub(a: F, b: F) -> F { both!(_mm256_sub_ps, a, b) }
        fn mul(a: F, b: F) -> F { both!(_mm256_mul_ps, a, b) }
        fn div(a: F, b: F) -> F { both!(_mm256_div_ps, a, b) }
        fn fma(a: F, b: F, c: F) -> F { both!(_mm256_fmadd_ps, a, b, c) }
        fn fnma(a: F, b: F, c: F) -> F { both!(_mm256_fnmadd_ps, a, b, c) }
        fn max(a: F, b: F) -> F { both!(_mm256_max_ps, a, b) }
        fn reduce_add(a: F) -> f32 {{
            let a = _mm256_add_ps(a[0], a[1]);
            let a = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_add_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_add_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }}
        fn reduce_max(a: F) -> f32 {{
            let a = _mm256_max_ps(a[0], a[1]);
            let a = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let a = _mm_max_ps(a, _mm_movehl_ps(a, a));
            _mm_cvtss_f32(_mm_max_ss(a, _mm_shuffle_ps::<1>(a, a)))
        }}
        fn swap_pairs(a: F) -> F {
            [
                _mm256_permute_ps::<0b10_11_00_01>(a[0]),
                _mm256_permute_ps::<0b10_11_00_01>(a[1]),
            ]
        }
        fn lt(a: F, b: F) -> I { cmp::<_CMP_LT_OQ>(a, b) }
        fn le(a: F, b: F) -> I { cmp::<_CMP_LE_OQ>(a, b) }
        fn eq(a: F, b: F) -> I { cmp::<_CMP_EQ_OQ>(a, b) }
        fn select(m: I, a: F, b: F) -> F {
            [
                _mm256_blendv_ps(b[0], a[0], _mm256_castsi256_ps(m[0])),
                _mm256_blendv_ps(b[1], a[1], _mm256_castsi256_ps(m[1])),
            ]
        }
        fn round_i32(a: F) -> I {
            // Rounds by MXCSR, which Rust keeps at round-to-nearest-even.
            both!(_mm256_cvtps_epi32, a)
        }
        fn i32_to_f32(a: I) -> F { both!(_mm256_cvtepi32_ps, a) }
        fn f32_bits(a: F) -> I { both!(_mm256_castps_si256, a) }
        fn f32_from_bits(a: I) -> F { both!(_mm256_castsi256_ps, a) }
        fn load_f16(from: &[u16; 16]) -> F {
            [
                _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())),
                _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().add(8).cast())),
            ]
        }
        fn store_f16(v: F, to: &mut [u16; 16]) -> () {{
            let p = to.as_mut_ptr();
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]))
        }}
        fn load_u16(from: &[u16; 16]) -> I {
            [
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast())),
                _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(8).cast())),
            ]
        }
        fn load_i8(from: &[i8; 16]) -> I {
            [
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().cast())),
                _mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(8).cast())),
            ]
        }
        fn store_low_bytes(v: I, to: &mut [u8; 16]) -> () {{
            // Keep the low bytes, pack them to the front of each 128-bit half, join the halves.
            let front = _mm256_setr_epi8(
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
            );
            let a = _mm256_shuffle_epi8(v[0], front);
            let b = _mm256_shuffle_epi8(v[1], front);
            let a = _mm_unpacklo_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let b = _mm_unpacklo_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256::<1>(b));
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm_unpacklo_epi64(a, b))
        }}
        fn store_low_halves(v: I, to: &mut [u16; 16]) -> () {{
            // Cleared upper halves pack without saturation; packing works in 128-bit halves.
            let low = _mm256_set1_epi32(0xffff);
            let v = _mm256_packus_epi32(_mm256_and_si256(v[0], low), _mm256_and_si256(v[1], low));
            let v = _mm256_permute4x64_epi64::<0b11_01_10_00>(v);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v)
        }}
        fn pair_i16(low: I, high: I) -> I {
            [
                _mm256_blend_epi16::<0b1010_1010>(low[0], _mm256_slli_epi32::<16>(high[0])),
                _mm256_blend_epi16::<0b1010_1010>(low[1], _mm256_slli_epi32::<16>(high[1])),
            ]
        }
        fn splat_i32(x: i32) -> I { [_mm256_set1_epi32(x); 2] }
        fn load_i32(from: &[i32; 16]) -> I {
            [
                _mm256_loadu_si256(from.as_ptr().cast()),
                _mm256_loadu_si256(from.as_ptr().add(8).cast()),
            ]
        }
        fn store_i32(v: I, to: &mut [i32; 16]) -> () {{
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), v[1])
        }}
        fn add_i32(a: I, b: I) -> I { both!(_mm256_add_epi32, a, b) }
        fn sub_i32(a: I, b: I) -> I { both!(_mm256_sub_epi32, a, b) }
        fn mul_i32(a: I, b: I) -> I { both!(_mm256_mullo_epi32, a, b) }
        fn max_u32(a: I, b: I) -> I { both!(_mm256_max_epu32, a, b) }
        fn and(a: I, b: I) -> I { both!(_mm256_and_si256, a, b) }
        fn or(a: I, b: I) -> I { both!(_mm256_or_si256, a, b) }
        fn xor(a: I, b: I) -> I { both!(_mm256_xor_si256, a, b) }
        fn shl(a: I, n: u32) -> I {{
            let n = [_mm256_set1_epi32(n as i32); 2];
            both!(_mm256_sllv_epi32, a, n)
        }}
        fn shr(a: I, n: u32) -> I {{
            let n = [_mm256_set1_epi32(n as i32); 2];
            both!(_mm256_srlv_epi32, a, n)
        }}
        fn sar(a: I, n: u32) -> I {{
            let n = [_mm256_set1_epi32(n as i32); 2];
            both!(_mm256_srav_epi32, a, n)
        }}
        fn gt_i32(a: I, b: I) -> I { both!(_mm256_cmpgt_epi32, a, b) }
        fn select_i32(m: I, a: I, b: I) -> I { both!(_mm256_blendv_epi8, b, a, m) }
        fn reduce_add_i32(a: I) -> i32 {{
            let a = _mm256_add_epi32(a[0], a[1]);
            let a = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_add_epi32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a)))
        }}
        fn reduce_max_u32(a: I) -> u32 {{
            let a = _mm256_max_epu32(a[0], a[1]);
            let a = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a));
            let a = _mm_max_epu32(a, _mm_shuffle_epi32::<0b01_00_11_10>(a));
            _mm_cvtsi128_si32(_mm_max_epu32(a, _mm_shuffle_epi32::<0b10_11_00_01>(a))) as u32
        }}
        fn first(n: usize) -> I {{
            let n = _mm256_set1_epi32(n.min(16) as i32);
            [
                _mm256_cmpgt_epi32(n, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                _mm256_cmpgt_epi32(n, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)),
            ]
        }}
        fn and_mask(a: I, b: I) -> I { both!(_mm256_and_si256, a, b) }
        fn mask_bits(m: I) -> u16 {{
            let low = _mm256_movemask_ps(_mm256_castsi256_ps(m[0]));
            let high = _mm256_movemask_ps(_mm256_castsi256_ps(m[1]));
            (low | high << 8) as u16
        }}
        fn load_bytes(from: &[u8; 64]) -> I {
            [
                _mm256_loadu_si256(from.as_ptr().cast()),
                _mm256_loadu_si256(from.as_ptr().add(32).cast()),
            ]
        }
        fn store_bytes(v: I, to: &mut [u8; 64]) -> () {{
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(32).cast(), v[1])
        }}
        fn sub_u8(a: I, b: I) -> I { both!(_mm256_sub_epi8, a, b) }
        fn lookup(table: &[i8; 16], index: I) -> I {{
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, index[0]), _mm256_shuffle_epi8(table, index[1])]
        }}
        fn dot_u8(acc: I, u: I, x: I) -> I { both!(P::dot_u8, acc, u, x) }
        fn i8_operand(w: I) -> I { both!(P::i8_operand, w) }
        fn dot_i8(acc: I, w: I, x: I) -> I { both!(P::dot_i8, acc, w, x) }
        fn dot_i16(acc: I, a: I, b: I) -> I { both!(P::dot_i16, acc, a, b) }
        fn even_bytes_i16(a: I) -> I {
            [
                _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a[0])),
                _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a[1])),
            ]
        }
        fn odd_bytes_i16(a: I) -> I {
            [_mm256_srai_epi16::<8>(a[0]), _mm256_srai_epi16::<8>(a[1])]
        }
    }
}
