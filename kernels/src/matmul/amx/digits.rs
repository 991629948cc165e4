//! Weights times scales of super-blocks, as bytes.
//!
//! A weight times its sub-block's scale is an integer of up to 14 bits. Taken apart into digits of
//! eight, it needs no scaling between sub-blocks: a super-block's 256 products add up in the tile
//! unit, once for each digit, and the total is `(high << SHIFT) + low`. Nothing is rounded, so the
//! bits are those of the other routes. How a format is taken apart is its [`Digits`]:
//!
//! | | product | high | low | |
//! | --- | --- | --- | --- | --- |
//! | [`SplitScale`] | `u * sc`, at most 31 * 63 | `u * (sc / 8)` | `u * (sc % 8)` | Q4_K, Q5_K |
//! | [`SplitProduct`] | `w * sc`, 13 bits and a sign | its upper byte | its lower byte | Q6_K, IQ4_XS |
//! | [`Negated`] | `w * sc`, -124 to 128 | `-(w * sc)` | | Q3_K |
//! | [`Whole`] | `u * sc`, at most 45 | `u * sc` | | Q2_K |

use super::unpack::{both_halves, bytes, low_and_high, mul_i16, shl8_i16, shr8_i16, sub_i8};
use crate::format::Shape;
use crate::format::superblock::{self as sb, SuperBlock};
use crate::simd::{Avx512, Simd};

type Int = <Avx512 as Simd>::Int;

/// How weights times scales become bytes.
pub(super) trait Digits: 'static {
    /// Whether there are two digits.
    const TWO: bool;
    /// Whether the high digit, or the only one, is signed. The low one is not.
    const SIGNED: bool;
    /// Bits by which the high digit is worth more than the low one.
    const SHIFT: u32 = 0;
    /// Whether the digit has the wrong sign.
    const NEGATED: bool = false;
    /// What the digits are made with, from a sub-block's scales.
    fn factors(s: Avx512, scale: Int) -> [Int; 2];
    /// The digits of 64 weights of `F`.
    fn digits<H: Shape>(s: Avx512, chunk: Int, factors: [Int; 2]) -> [Int; 2];
}

/// Unsigned weights of at most 31 times the upper and the lower three bits of a 6-bit scale: no
/// product leaves its byte, so 16-bit multiplications make two each.
pub(super) struct SplitScale;

impl Digits for SplitScale {
    const TWO: bool = true;
    const SIGNED: bool = false;
    const SHIFT: u32 = 3;
    #[inline(always)]
    fn factors(s: Avx512, scale: Int) -> [Int; 2] {
        let lower = s.and(scale, s.splat_i32(7));
        [both_halves(s, s.shr(scale, 3)), both_halves(s, lower)]
    }
    #[inline(always)]
    fn digits<H: Shape>(s: Avx512, chunk: Int, [upper, lower]: [Int; 2]) -> [Int; 2] {
        [mul_i16(s, chunk, upper), mul_i16(s, chunk, lower)]
    }
}

/// Signed weights times signed scales: the bytes of 16-bit products.
pub(super) struct SplitProduct;

impl Digits for SplitProduct {
    const TWO: bool = true;
    const SIGNED: bool = true;
    const SHIFT: u32 = 8;
    #[inline(always)]
    fn factors(s: Avx512, scale: Int) -> [Int; 2] {
        [both_halves(s, scale), s.zero_i32()]
    }
    #[inline(always)]
    fn digits<H: Shape>(s: Avx512, chunk: Int, [scale, _]: [Int; 2]) -> [Int; 2] {
        let w = signed::<H>(s, chunk);
        let even = mul_i16(s, s.even_bytes_i16(w), scale);
        let odd = mul_i16(s, s.odd_bytes_i16(w), scale);
        [
            low_and_high(s, shr8_i16(s, even), odd),
            low_and_high(s, even, shl8_i16(s, odd)),
        ]
    }
}

/// Weights of -4 to 3 times scales of -32 to 31, negated: the one product that would not fit a
/// signed byte is 128.
pub(super) struct Negated;

impl Digits for Negated {
    const TWO: bool = false;
    const SIGNED: bool = true;
    const NEGATED: bool = true;
    #[inline(always)]
    fn factors(s: Avx512, scale: Int) -> [Int; 2] {
        [both_halves(s, scale), s.zero_i32()]
    }
    #[inline(always)]
    fn digits<H: Shape>(s: Avx512, chunk: Int, [scale, _]: [Int; 2]) -> [Int; 2] {
        let minus = sub_i8(s, s.splat_i32(bytes(H::OFFSET)), chunk);
        // The low byte of a product depends on low bytes alone; that of the odd ones is made in
        // the upper byte.
        let upper = s.and(minus, s.splat_i32(0xff00_ff00_u32 as i32));
        let digit = low_and_high(s, mul_i16(s, minus, scale), mul_i16(s, upper, scale));
        [digit, s.zero_i32()]
    }
}

/// Unsigned weights of at most 3 times unsigned scales of at most 15.
pub(super) struct Whole;

impl Digits for Whole {
    const TWO: bool = false;
    const SIGNED: bool = true;
    #[inline(always)]
    fn factors(s: Avx512, scale: Int) -> [Int; 2] {
        [both_halves(s, scale), s.zero_i32()]
    }
    #[inline(always)]
    fn digits<H: Shape>(s: Avx512, chunk: Int, [scale, _]: [Int; 2]) -> [Int; 2] {
        [mul_i16(s, chunk, scale), s.zero_i32()]
    }
}

/// A chunk's weights as signed bytes.
#[inline(always)]
fn signed<H: Shape>(s: Avx512, chunk: Int) -> Int {
    if H::SIGNED {
        s.i8_operand(chunk)
    } else {
        sub_i8(s, chunk, s.splat_i32(bytes(H::OFFSET)))
    }
}

/// A format with its way to digits.
pub(super) trait OnTiles: SuperBlock {
    type Digits: Digits;
}

macro_rules! on_tiles {
    ($($format:ident: $digits:ident),*) => {$(
        impl OnTiles for sb::$format {
            type Digits = $digits;
        }
    )*};
}
on_tiles!(Q2K: Whole, Q3K: Negated, Q4K: SplitScale, Q5K: SplitScale, Q6K: SplitProduct,
    Iq4Xs: SplitProduct);
