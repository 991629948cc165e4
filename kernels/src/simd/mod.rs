//! The vector trait that every kernel is generic over.
//!
//! # How a kernel is written
//!
//! A kernel is a type that implements [`Kernel`]: its `run` is generic over [`Simd`] and marked
//! `#[inline(always)]`, and so is every helper it calls with vectors. [`entry`] compiles it for
//! one level: inside a function that carries the level's `#[target_feature]`s, all of it is
//! inlined, and only there do the vector operations become instructions. So:
//!
//! - mark `#[inline(always)]` on each function that takes or returns vectors,
//! - use loops, not iterator closures, around vector operations (a closure is a function of its
//!   own, without the features),
//! - never ask which level runs: an algorithm that differs by level does so by an associated
//!   constant of the trait.
//!
//! # Vectors
//!
//! [`Simd::F32`] is sixteen `f32`; [`Simd::Int`] is 512 bits that are sixteen `i32` or 64 bytes,
//! as the operation says, lane 0 in the lowest bytes; [`Simd::Mask`] is sixteen booleans. Each
//! operation's documentation defines its result on every input, the extremes and NaNs included;
//! only which NaN results when a NaN results is left open.
//!
//! The token `Self` proves that the processor has the level: it cannot be made in safe code.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avxvnni;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) use avxvnni::AvxVnni;
pub(crate) use scalar::Scalar;

use crate::level::Level;

/// An algorithm that is compiled once for each level.
pub(crate) trait Kernel {
    /// What it works on.
    type Args<'a>;
    /// What it returns.
    type Out;
    /// Runs it. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(s: S, args: Self::Args<'_>) -> Self::Out;
}

/// `K` compiled for `S`: what the function tables point to.
///
/// # Safety
///
/// - The processor has the level `S::LEVEL`.
pub(crate) unsafe fn entry<S: Simd, K: Kernel>(args: K::Args<'_>) -> K::Out {
    // SAFETY: the caller's obligation is `assume`'s.
    let s = unsafe { S::assume() };
    s.enter::<K>(args)
}

/// [`entry`] of `K` at some level.
pub(crate) type Entry<K> = unsafe fn(<K as Kernel>::Args<'_>) -> <K as Kernel>::Out;

/// Sixteen-lane vector operations at one instruction-set level.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen `f32`.
    type F32: Copy;
    /// Sixteen `i32`, or 64 bytes.
    type Int: Copy;
    /// Sixteen booleans.
    type Mask: Copy;

    /// The level that these operations need.
    const LEVEL: Level;

    /// What [`Simd::dot_i8`] adds too much, for each unit of the sum of its second operand.
    const I8_BIAS: i32;

    /// How many tokens a matmul keeps in registers at once: eight with thirty-two registers of
    /// 512 bits, four with sixteen of 256, one without any (where code size is what counts).
    const TOKENS: usize;

    /// Whether there are thirty-two registers of a whole vector each, not sixteen of half a one.
    const MANY_REGISTERS: bool;

    /// Whether register tiles are pointless, since a vector is no register: then kernels work on
    /// one vector at a time, which keeps the portable code small.
    const ONE_BY_ONE: bool;

    /// The token, on the caller's word.
    ///
    /// # Safety
    ///
    /// - The processor has the level [`Simd::LEVEL`].
    unsafe fn assume() -> Self;

    /// Runs `K` in a function that carries the level's target features.
    fn enter<K: Kernel>(self, args: K::Args<'_>) -> K::Out;

    /// Asks for the cache line at `p` to be brought near. `p` may point anywhere.
    fn prefetch(self, p: *const u8);
    /// Asks for the cache line at `p` to be brought to the second cache, which takes more requests
    /// at a time than the first: for what is thousands of cycles away. `p` may point anywhere.
    fn prefetch_far(self, p: *const u8);

    // ---- f32: each operation is the IEEE-754 one, rounding to nearest even ----

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::F32;
    /// Loads sixteen values.
    fn load(self, from: &[f32; 16]) -> Self::F32;
    /// Stores sixteen values.
    fn store(self, v: Self::F32, to: &mut [f32; 16]);
    /// `a + b`.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `-(a * b) + c`, rounded once.
    fn fnma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `if a > b { a } else { b }`: `b` when either is NaN.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The sum of all lanes in one fixed tree: lane `i` with `i + 8`, then `i + 4`, `i + 2`,
    /// `i + 1`.
    fn reduce_add(self, a: Self::F32) -> f32;
    /// The largest lane, by [`Simd::max`] in the tree of [`Simd::reduce_add`].
    fn reduce_max(self, a: Self::F32) -> f32;
    /// Lanes `2i` and `2i + 1` exchanged.
    fn swap_pairs(self, a: Self::F32) -> Self::F32;
    /// `a < b`; false when either is NaN.
    fn lt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a <= b`; false when either is NaN.
    fn le(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a == b`; false when either is NaN.
    fn eq(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// Lanes of `a` where `m`, of `b` elsewhere.
    fn select(self, m: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;

    // ---- conversions ----

    /// The nearest integer, halves to even; `i32::MIN` for NaN and for what does not fit.
    fn round_i32(self, a: Self::F32) -> Self::Int;
    /// The nearest `f32`, halves to even.
    fn i32_to_f32(self, a: Self::Int) -> Self::F32;
    /// The same bits.
    fn f32_bits(self, a: Self::F32) -> Self::Int;
    /// The same bits.
    fn f32_from_bits(self, a: Self::Int) -> Self::F32;
    /// Sixteen IEEE half-precision values, exactly.
    fn load_f16(self, from: &[u16; 16]) -> Self::F32;
    /// Rounds to half precision, halves to even, overflow to infinity.
    fn store_f16(self, v: Self::F32, to: &mut [u16; 16]);
    /// Sixteen `u16`, zero-extended.
    fn load_u16(self, from: &[u16; 16]) -> Self::Int;
    /// Sixteen signed bytes, sign-extended.
    fn load_i8(self, from: &[i8; 16]) -> Self::Int;
    /// The low byte of each `i32`.
    fn store_low_bytes(self, v: Self::Int, to: &mut [u8; 16]);
    /// The low sixteen bits of each `i32`.
    fn store_low_halves(self, v: Self::Int, to: &mut [u16; 16]);
    /// The low sixteen bits of each `i32` of `low`, and above them those of `high`.
    fn pair_i16(self, low: Self::Int, high: Self::Int) -> Self::Int;

    // ---- sixteen i32 (arithmetic wraps) ----

    /// All lanes `x`. As 64 bytes: `x`'s four, lowest first, sixteen times.
    fn splat_i32(self, x: i32) -> Self::Int;
    /// Loads sixteen values.
    fn load_i32(self, from: &[i32; 16]) -> Self::Int;
    /// Stores sixteen values.
    fn store_i32(self, v: Self::Int, to: &mut [i32; 16]);
    /// `a + b`.
    fn add_i32(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a - b`.
    fn sub_i32(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The low 32 bits of `a * b`.
    fn mul_i32(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The larger, as unsigned.
    fn max_u32(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a & b`.
    fn and(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a | b`.
    fn or(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a ^ b`.
    fn xor(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// `a << n` in each `i32`, for `n < 32`.
    fn shl(self, a: Self::Int, n: u32) -> Self::Int;
    /// `a >> n` in each `i32`, zeros shifted in, for `n < 32`.
    fn shr(self, a: Self::Int, n: u32) -> Self::Int;
    /// `a >> n` in each `i32`, signs shifted in, for `n < 32`.
    fn sar(self, a: Self::Int, n: u32) -> Self::Int;
    /// `a > b`, signed.
    fn gt_i32(self, a: Self::Int, b: Self::Int) -> Self::Mask;
    /// Lanes of `a` where `m`, of `b` elsewhere.
    fn select_i32(self, m: Self::Mask, a: Self::Int, b: Self::Int) -> Self::Int;
    /// The sum of all lanes.
    fn reduce_add_i32(self, a: Self::Int) -> i32;
    /// The largest lane, as unsigned.
    fn reduce_max_u32(self, a: Self::Int) -> u32;

    // ---- masks ----

    /// The first `n` lanes (all when `n >= 16`).
    fn first(self, n: usize) -> Self::Mask;
    /// Both.
    fn and_mask(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// One bit a lane, lane 0 the lowest.
    fn mask_bits(self, m: Self::Mask) -> u16;

    // ---- 64 bytes ----

    /// Loads 64 bytes.
    fn load_bytes(self, from: &[u8; 64]) -> Self::Int;
    /// Stores 64 bytes.
    fn store_bytes(self, v: Self::Int, to: &mut [u8; 64]);
    /// `a - b` in each byte, wrapping.
    fn sub_u8(self, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Byte `i` of the result is `table[index[i]]`. Index bytes are below 16.
    fn lookup(self, table: &[i8; 16], index: Self::Int) -> Self::Int;

    /// `acc[i] + Σ_j u[4i+j] * x[4i+j]`, `u` unsigned bytes **at most 128**, `x` signed bytes.
    fn dot_u8(self, acc: Self::Int, u: Self::Int, x: Self::Int) -> Self::Int;
    /// Signed bytes in the form that [`Simd::dot_i8`] takes (its own inverse).
    fn i8_operand(self, w: Self::Int) -> Self::Int;
    /// `acc[i] + Σ_j (w[4i+j] + I8_BIAS) * x[4i+j]`, `w` from [`Simd::i8_operand`], `x` signed
    /// bytes **above -128**. Take `I8_BIAS * Σ x` off for the product itself.
    fn dot_i8(self, acc: Self::Int, w: Self::Int, x: Self::Int) -> Self::Int;
    /// `acc[i] + Σ_{j<2} a[2i+j] * b[2i+j]` over signed 16-bit halves, not both -32768 twice.
    fn dot_i16(self, acc: Self::Int, a: Self::Int, b: Self::Int) -> Self::Int;
    /// Bytes 0 and 2 of each `i32`, sign-extended to its two 16-bit halves.
    fn even_bytes_i16(self, a: Self::Int) -> Self::Int;
    /// Bytes 1 and 3 of each `i32`, sign-extended to its two 16-bit halves.
    fn odd_bytes_i16(self, a: Self::Int) -> Self::Int;

    // ---- built from the above ----

    /// All lanes zero.
    #[inline(always)]
    fn zero(self) -> Self::F32 {
        self.splat(0.0)
    }

    /// All lanes zero.
    #[inline(always)]
    fn zero_i32(self) -> Self::Int {
        self.splat_i32(0)
    }

    /// The first `from.len()` lanes (at most 16) from memory, the rest zero.
    #[inline(always)]
    fn load_partial(self, from: &[f32]) -> Self::F32 {
        let mut lanes = [0.0; 16];
        let n = from.len().min(16);
        lanes[..n].copy_from_slice(&from[..n]);
        self.load(&lanes)
    }

    /// Stores the first `to.len()` lanes (at most 16).
    #[inline(always)]
    fn store_partial(self, v: Self::F32, to: &mut [f32]) {
        let mut lanes = [0.0; 16];
        self.store(v, &mut lanes);
        let n = to.len().min(16);
        to[..n].copy_from_slice(&lanes[..n]);
    }

    /// Sixteen bfloat16 values, exactly.
    #[inline(always)]
    fn load_bf16(self, from: &[u16; 16]) -> Self::F32 {
        self.f32_from_bits(self.shl(self.load_u16(from), 16))
    }

    /// `|a|`: the sign bit cleared.
    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        self.f32_from_bits(self.and(self.f32_bits(a), self.splat_i32(0x7fff_ffff)))
    }

    /// `-a`: the sign bit flipped.
    #[inline(always)]
    fn neg(self, a: Self::F32) -> Self::F32 {
        self.f32_from_bits(self.xor(self.f32_bits(a), self.splat_i32(i32::MIN)))
    }

    /// Byte `b` of each `i32`, sign-extended.
    #[inline(always)]
    fn byte_i32(self, a: Self::Int, b: u32) -> Self::Int {
        self.sar(self.shl(a, 24 - 8 * b), 24)
    }
}
