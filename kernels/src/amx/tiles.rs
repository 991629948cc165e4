//! The tile registers: eight of sixteen rows of 64 bytes.
//!
//! Rust has no types for them, so an operation names its tiles by number, as constants. The
//! compiler keeps nothing in tile registers, so what one operation leaves there the next one
//! finds, on the same thread, for as long as its [`Tiles`] lives.

use super::Amx;
use std::arch::asm;
use std::marker::PhantomData;

/// What `ldtilecfg` loads: palette 1, and each tile's shape.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Config([u8; 64]);

impl Config {
    /// All eight tiles at their largest: sixteen rows of 64 bytes.
    pub(crate) const FULL: Config = {
        let mut bytes = [0; 64];
        bytes[0] = 1;
        let mut tile = 0;
        while tile < 8 {
            bytes[16 + 2 * tile] = 64;
            bytes[48 + tile] = 16;
            tile += 1;
        }
        Config(bytes)
    };

    /// For products over 32 values of k: tiles 0 to 3 at their largest (sums), 4 and 5 of sixteen
    /// rows of 32 bytes (`A`), 6 and 7 of eight rows of 64 bytes (`B`).
    pub(crate) const K32: Config = {
        let mut bytes = Config::FULL.0;
        let mut tile = 4;
        while tile < 6 {
            bytes[16 + 2 * tile] = 32;
            bytes[48 + tile + 2] = 8;
            tile += 1;
        }
        Config(bytes)
    };
}

/// This thread's tile registers, configured; released when dropped.
///
/// There is one set a thread: a second value configures the same registers anew.
pub(crate) struct Tiles {
    /// Tile registers are a thread's own.
    thread: PhantomData<*const ()>,
}

/// An instruction on tiles, of which the compiler holds none.
macro_rules! tile_asm {
    ($text:literal $(, $($operand:tt)*)?) => {
        asm!(
            $text,
            $($($operand)*,)?
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack, preserves_flags)
        )
    };
}

impl Tiles {
    /// Configures this thread's tiles; all are zero then.
    ///
    /// # Safety
    ///
    /// - No other value of this type lives on this thread: the first to be dropped would take the
    ///   configuration from under the other.
    pub(crate) unsafe fn configure(_: Amx, config: &Config) -> Tiles {
        // SAFETY: the proof, and every `Config` is one that the instruction takes.
        unsafe { tile_asm!("ldtilecfg [{config}]", config = in(reg) config) };
        Tiles {
            thread: PhantomData,
        }
    }

    /// Zeros tile `T`.
    #[inline(always)]
    pub(crate) fn zero<const T: usize>(&self) {
        const { assert!(T < 8) };
        // SAFETY: `self` says that tiles are configured.
        unsafe { tile_asm!("tilezero tmm{t}", t = const T) };
    }

    /// Loads tile `T`, row `i` from `from + i * stride`.
    ///
    /// # Safety
    ///
    /// - Every row of the tile's shape can be read there.
    #[inline(always)]
    pub(crate) unsafe fn load<const T: usize>(&self, from: *const u8, stride: usize) {
        const { assert!(T < 8) };
        // SAFETY: configured; the caller vouches for the memory.
        unsafe {
            tile_asm!(
                "tileloadd tmm{t}, [{from} + {stride}]",
                t = const T, from = in(reg) from, stride = in(reg) stride
            );
        }
    }

    /// Stores tile `T`, row `i` to `to + i * stride`.
    ///
    /// # Safety
    ///
    /// - Every row of the tile's shape can be written there.
    #[inline(always)]
    pub(crate) unsafe fn store<const T: usize>(&self, to: *mut u8, stride: usize) {
        const { assert!(T < 8) };
        // SAFETY: configured; the caller vouches for the memory.
        unsafe {
            tile_asm!(
                "tilestored [{to} + {stride}], tmm{t}",
                t = const T, to = in(reg) to, stride = in(reg) stride
            );
        }
    }

    /// `C[m, n] += Σ_k A[m, k] B[k, n]` over signed bytes, sums in (wrapping) `i32`: row `m` of `A`
    /// holds `k` in order, row `k / 4` of `B` holds four `k` of each `n` side by side.
    ///
    /// # Safety
    ///
    /// - The tiles' shapes fit: as many rows of `A` as of `C`, as many bytes a row of `B` as of
    ///   `C`, four times as many bytes a row of `A` as rows of `B`.
    #[inline(always)]
    pub(crate) unsafe fn dot_i8<const C: usize, const A: usize, const B: usize>(&self) {
        const { assert!(C < 8 && A < 8 && B < 8 && C != A && C != B && A != B) };
        // SAFETY: configured; the caller vouches for the shapes.
        unsafe {
            tile_asm!(
                "tdpbssd tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B
            );
        }
    }

    /// As [`Tiles::dot_i8`], with unsigned bytes in `B`.
    ///
    /// # Safety
    ///
    /// - As [`Tiles::dot_i8`].
    #[inline(always)]
    pub(crate) unsafe fn dot_u8<const C: usize, const A: usize, const B: usize>(&self) {
        const { assert!(C < 8 && A < 8 && B < 8 && C != A && C != B && A != B) };
        // SAFETY: configured; the caller vouches for the shapes.
        unsafe {
            tile_asm!(
                "tdpbsud tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B
            );
        }
    }

    /// `C[m, n] += Σ_k A[m, k] B[k, n]` over bfloat16, sums in `f32`: exact where every partial sum
    /// is. Row `m` of `A` holds `k` in order, row `k / 2` of `B` two `k` of each `n` side by side.
    ///
    /// # Safety
    ///
    /// - As [`Tiles::dot_i8`].
    #[inline(always)]
    pub(crate) unsafe fn dot_bf16<const C: usize, const A: usize, const B: usize>(&self) {
        const { assert!(C < 8 && A < 8 && B < 8 && C != A && C != B && A != B) };
        // SAFETY: configured; the caller vouches for the shapes.
        unsafe {
            tile_asm!(
                "tdpbf16ps tmm{c}, tmm{a}, tmm{b}",
                c = const C, a = const A, b = const B
            );
        }
    }
}

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: configured, so the instruction exists.
        unsafe { tile_asm!("tilerelease") };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_util::Rng;

    #[test]
    fn a_product_is_the_sum_that_it_stands_for_and_adds_to_what_was_there() {
        let Some(amx) = Amx::new() else {
            eprintln!("no AMX here: nothing to test");
            return;
        };
        let mut rng = Rng(1);
        for _ in 0..20 {
            let mut byte = || rng.next() as i8;
            let a: [[i8; 64]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| byte()));
            let b: [[i8; 64]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| byte()));
            let mut c = [[i32::MAX; 16]; 16];
            // SAFETY: the only one on this thread until it is dropped here.
            let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
            // SAFETY: full tiles, from and to arrays of sixteen rows of 64 bytes.
            unsafe {
                tiles.load::<7>(c.as_ptr().cast(), 64);
                tiles.load::<0>(a.as_ptr().cast(), 64);
                tiles.load::<3>(b.as_ptr().cast(), 64);
                tiles.dot_i8::<7, 0, 3>();
                tiles.dot_i8::<7, 0, 3>();
                tiles.store::<7>(c.as_mut_ptr().cast(), 64);
            }
            for m in 0..16 {
                for n in 0..16 {
                    let once: i32 = (0..64)
                        .map(|k| i32::from(a[m][k]) * i32::from(b[k / 4][4 * n + k % 4]))
                        .sum();
                    assert_eq!(c[m][n], i32::MAX.wrapping_add(2 * once), "{m}, {n}");
                }
            }
        }
    }

    #[test]
    fn unsigned_bytes_and_bfloat16_are_summed_exactly_and_shapes_may_be_smaller() {
        let Some(amx) = Amx::new() else {
            eprintln!("no AMX here: nothing to test");
            return;
        };
        let mut rng = Rng(2);
        for _ in 0..20 {
            let mut byte = || rng.next() as u8;
            let a: [[u8; 32]; 16] = std::array::from_fn(|_| std::array::from_fn(|_| byte()));
            let b: [[u8; 64]; 8] = std::array::from_fn(|_| std::array::from_fn(|_| byte()));
            let (mut bytes, mut floats) = ([[0i32; 16]; 16], [[0f32; 16]; 16]);
            // Every byte as a bfloat16, which holds it exactly.
            let half = |n: i32| ((n as f32).to_bits() >> 16) as u16;
            let a_half = a.map(|row| row.map(|n| half(i32::from(n as i8))));
            let b_half: [[u16; 32]; 16] = std::array::from_fn(|pair| {
                std::array::from_fn(|i| {
                    half(i32::from(b[pair / 2][i / 2 * 4 + pair % 2 * 2 + i % 2]))
                })
            });
            {
                // SAFETY: the only one on this thread until it is dropped here.
                let tiles = unsafe { Tiles::configure(amx, &Config::K32) };
                // SAFETY: sixteen rows of 32 bytes, eight of 64, and sixteen of 64.
                unsafe {
                    tiles.load::<4>(a.as_ptr().cast(), 32);
                    tiles.load::<7>(b.as_ptr().cast(), 64);
                    tiles.dot_u8::<2, 4, 7>();
                    tiles.store::<2>(bytes.as_mut_ptr().cast(), 64);
                }
            }
            // SAFETY: as above.
            let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
            // SAFETY: full tiles, from and to arrays of sixteen rows of 64 bytes.
            unsafe {
                tiles.load::<4>(a_half.as_ptr().cast(), 64);
                tiles.load::<7>(b_half.as_ptr().cast(), 64);
                tiles.dot_bf16::<2, 4, 7>();
                tiles.store::<2>(floats.as_mut_ptr().cast(), 64);
            }
            for m in 0..16 {
                for n in 0..16 {
                    let sum: i32 = (0..32)
                        .map(|k| i32::from(a[m][k] as i8) * i32::from(b[k / 4][4 * n + k % 4]))
                        .sum();
                    assert_eq!(bytes[m][n], sum, "{m}, {n}");
                    assert_eq!(floats[m][n], sum as f32, "{m}, {n}");
                }
            }
        }
    }

    #[test]
    fn configured_tiles_are_zero_and_rows_follow_the_stride() {
        let Some(amx) = Amx::new() else {
            eprintln!("no AMX here: nothing to test");
            return;
        };
        let from: [u8; 16 * 100] = std::array::from_fn(|i| i as u8);
        let mut to = [1u8; 16 * 80];
        // SAFETY: the only one on this thread until it is dropped here.
        let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
        // SAFETY: sixteen rows of 64 bytes, 100 and 80 apart, lie in the arrays.
        unsafe {
            tiles.store::<5>(to.as_mut_ptr(), 80);
            assert!(
                to.chunks(80)
                    .all(|row| row[..64] == [0; 64] && row[64..] == [1; 16])
            );
            tiles.load::<5>(from.as_ptr(), 100);
            tiles.store::<5>(to.as_mut_ptr(), 80);
            let rows = to.chunks(80).zip(from.chunks(100));
            assert!(
                rows.map(|(to, from)| (&to[..64], &from[..64]))
                    .all(|(to, from)| to == from)
            );
            tiles.zero::<5>();
            tiles.store::<5>(to.as_mut_ptr(), 80);
            assert!(to.chunks(80).all(|row| row[..64] == [0; 64]));
        }
    }
}
