//! The loops of x86-64, in assembly: what a compiler would make of intrinsics, it would also move
//! out of the loop.
//!
//! A turn is one product into each of so many accumulators as hide its latency: two products start
//! in a cycle at best, and take 4 (fused multiply-add) or 5 (`vpdpbusd`) to finish.

use std::arch::asm;

/// A function that runs a loop: `setup` once, then `product` for each of the `accumulators`, by
/// number as `\i`. At `setup`, `eax` is four bytes and `edx` an `f32`.
macro_rules! compute_loop {
    (
        $(#[$doc:meta])* $name:ident, $features:literal, accumulators: $accumulators:literal,
        setup: [$($setup:literal),*], product: [$($product:literal),*]
    ) => {
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// - The processor has the instructions; `turns` is at least one.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(turns: u64) {
            // SAFETY: the loop changes its counter, flags and vector registers alone.
            unsafe {
                asm!(
                    $($setup,)*
                    "2:",
                    concat!(".irp i, ", $accumulators),
                    $($product,)*
                    ".endr",
                    "sub rcx, 1",
                    "jnz 2b",
                    "vzeroupper",
                    inout("rcx") turns => _,
                    in("eax") 0x0102_0304u32,
                    in("edx") 1f32.to_bits(),
                    clobber_abi("sysv64"),
                    options(nomem, nostack)
                );
            }
        }
    };
}

/// Twelve accumulators of 32 bytes.
pub(super) const AVX2_INT8: u64 = 2 * 12 * 32;
compute_loop! {
    /// Three instructions make AVX2's product: pairs in 16 bits, pairs of them in 32, the sum.
    avx2_int8, "avx2", accumulators: "0,1,2,3,4,5,6,7,8,9,10,11",
    setup: [
        "vmovd xmm15, eax",
        "vpbroadcastd ymm15, xmm15",
        "vpcmpeqw ymm14, ymm14, ymm14",
        "vpabsw ymm14, ymm14"
    ],
    product: [
        "vpmaddubsw ymm13, ymm15, ymm15",
        "vpmaddwd ymm13, ymm13, ymm14",
        "vpaddd ymm\\i, ymm\\i, ymm13"
    ]
}

/// Fourteen accumulators of 32 bytes.
pub(super) const AVXVNNI_INT8: u64 = 2 * 14 * 32;
compute_loop! {
    /// `vpdpbusd` in its 256-bit form with a VEX prefix.
    avxvnni_int8, "avx2", accumulators: "0,1,2,3,4,5,6,7,8,9,10,11,12,13",
    setup: [
        "vmovd xmm15, eax",
        "vpbroadcastd ymm15, xmm15",
        "vpbroadcastd ymm14, xmm15"
    ],
    product: ["{{vex}} vpdpbusd ymm\\i, ymm14, ymm15"]
}

/// Sixteen accumulators of 64 bytes.
pub(super) const AVX512_INT8: u64 = 2 * 16 * 64;
compute_loop! {
    /// `vpdpbusd` in its 512-bit form.
    avx512_int8, "avx512f,avx512vnni",
    accumulators: "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    setup: ["vpbroadcastd zmm30, eax", "vpbroadcastd zmm31, eax"],
    product: ["vpdpbusd zmm\\i, zmm30, zmm31"]
}

/// Twelve accumulators of 8 values.
pub(super) const AVX2_F32: u64 = 2 * 12 * 8;
compute_loop! {
    /// `vfmadd231ps` on 256 bits.
    avx2_f32, "avx2,fma", accumulators: "0,1,2,3,4,5,6,7,8,9,10,11",
    setup: [
        "vzeroall",
        "vmovd xmm15, edx",
        "vbroadcastss ymm15, xmm15",
        "vbroadcastss ymm14, xmm15"
    ],
    product: ["vfmadd231ps ymm\\i, ymm14, ymm15"]
}

/// Sixteen accumulators of 16 values.
pub(super) const AVX512_F32: u64 = 2 * 16 * 16;
compute_loop! {
    /// `vfmadd231ps` on 512 bits.
    avx512_f32, "avx512f", accumulators: "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
    setup: [
        "vzeroall",
        "vpbroadcastd zmm30, edx",
        "vpbroadcastd zmm31, edx"
    ],
    product: ["vfmadd231ps zmm\\i, zmm30, zmm31"]
}
