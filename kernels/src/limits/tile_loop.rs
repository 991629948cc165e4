//! The tile product, again and again.

use crate::amx::Amx;
use crate::amx::tiles::{Config, Tiles};
use std::arch::asm;

/// Four products of 16 by 64 and 64 by 16 bytes.
pub(super) const OPERATIONS: u64 = 4 * 2 * 16 * 64 * 16;

/// `turns` times four products into four accumulators: one starts every 16 cycles and takes 52
/// (Granite Rapids and before), so four keep the unit busy.
///
/// # Safety
///
/// - This process may use AMX; `turns` is at least one.
pub(super) unsafe fn run(turns: u64) {
    let Some(amx) = Amx::new() else { return };
    // SAFETY: the only one on this thread until it is dropped here.
    let tiles = unsafe { Tiles::configure(amx, &Config::FULL) };
    let bytes = [0x11u8; 1024];
    // SAFETY: full tiles from 1024 bytes; the loop changes its counter, flags and tiles alone.
    unsafe {
        tiles.load::<4>(bytes.as_ptr(), 64);
        tiles.load::<5>(bytes.as_ptr(), 64);
        tiles.load::<6>(bytes.as_ptr(), 64);
        tiles.load::<7>(bytes.as_ptr(), 64);
        asm!(
            "2:",
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm4, tmm7",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7",
            "sub {turns}, 1",
            "jnz 2b",
            turns = inout(reg) turns => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            options(nomem, nostack)
        );
    }
}
