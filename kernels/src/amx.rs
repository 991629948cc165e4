//! AMX: the proof that this process may use the tile registers, and their operations.
//!
//! A processor that lists AMX may still be out of bounds: the operating system must save the tile
//! registers, the process must ask for them (Linux grants 8 KiB more of state to each of its
//! threads), and a hypervisor may refuse all the same. So [`Amx::new`] looks at every bit and then
//! has a child process compute one tile product: if that is killed, or wrong, there is no AMX.
//!
//! [`Level::Amx`](crate::Level::Amx) is AVX-512 with tiles in the products of prompts: tiles stand
//! beside vectors, not in their place.
//! Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18,
//! and volume 2, CPUID; Linux, Documentation/arch/x86/xstate.rst.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) mod tiles;

/// Proof that this process may use AMX with 8-bit integers and bfloat16, on any of its threads.
#[derive(Clone, Copy, Debug)]
pub struct Amx(());

impl Amx {
    /// The proof, or `None` where the processor, the operating system or the hypervisor says no.
    ///
    /// The first call asks the system for the tile registers and forks a child process that tries
    /// them; do it before the process has mapped much memory. Later calls return its answer.
    pub fn new() -> Option<Amx> {
        static USABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        USABLE.get_or_init(probe::usable).then_some(Amx(()))
    }

    /// The proof, on the caller's word.
    ///
    /// # Safety
    ///
    /// - [`Amx::new`] gave it out before, to whoever let the caller come here.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub(crate) unsafe fn assume() -> Amx {
        Amx(())
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod probe {
    pub(super) fn usable() -> bool {
        false
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod probe {
    use super::Amx;
    use super::tiles::{Config, Tiles};
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    pub(super) fn usable() -> bool {
        listed() && saved_by_the_system() && permitted() && a_child_can()
    }

    /// CPUID: tiles, products of bfloat16 and of 8-bit integers, and palette 1 as every processor so
    /// far has it.
    fn listed() -> bool {
        const BF16: u32 = 1 << 22;
        const TILE: u32 = 1 << 24;
        const INT8: u32 = 1 << 25;
        const TILE_PALETTES: u32 = 0x1d;
        if __cpuid(0).eax < TILE_PALETTES {
            return false;
        }
        let features = __cpuid_count(7, 0).edx;
        let palette = __cpuid_count(TILE_PALETTES, 1);
        // EBX: bytes a row and number of tiles; ECX: rows.
        let as_expected = palette.ebx == 8 << 16 | 64 && palette.ecx & 0xffff == 16;
        let all = BF16 | TILE | INT8;
        features & all == all && as_expected
    }

    /// XCR0: the system saves the tile configuration (17) and the tiles (18).
    fn saved_by_the_system() -> bool {
        const OSXSAVE: u32 = 1 << 27;
        const TILES: u32 = 1 << 17 | 1 << 18;
        if __cpuid(1).ecx & OSXSAVE == 0 {
            return false;
        }
        let low: u32;
        // SAFETY: OSXSAVE says that the instruction exists; it reads one register.
        unsafe {
            std::arch::asm!(
                "xgetbv",
                in("ecx") 0,
                out("eax") low,
                out("edx") _,
                options(nomem, nostack, preserves_flags)
            );
        }
        low & TILES == TILES
    }

    /// Asks Linux for the tiles, for this process and the threads it has and will have.
    fn permitted() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: the call changes what the process may do and touches no memory.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_arch_prctl,
                ARCH_REQ_XCOMP_PERM,
                XFEATURE_XTILEDATA,
            )
        };
        refused == 0
    }

    /// Whether a child process computes a tile product rightly, instead of dying of it.
    fn a_child_can() -> bool {
        let size = 4096;
        // SAFETY: a new mapping, placed by the system.
        let shared = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if shared == libc::MAP_FAILED {
            return false;
        }
        let verdict: *mut u8 = shared.cast();
        // SAFETY: the child calls nothing but system calls and code that takes no lock and
        // allocates nothing, as a child of a process of several threads must, and it ends here.
        // The page is this function's until it is given back.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let no_core = libc::rlimit {
                    rlim_cur: 0,
                    rlim_max: 0,
                };
                libc::setrlimit(libc::RLIMIT_CORE, &no_core);
                libc::signal(libc::SIGILL, libc::SIG_DFL);
                verdict.write_volatile(u8::from(product_is_right()));
                libc::_exit(0);
            }
            // The status does not matter: the byte was written, or not. Where children are reaped
            // by someone else, the wait ends with an error, after the child.
            while child > 0
                && libc::waitpid(child, std::ptr::null_mut(), 0) < 0
                && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
            {
            }
            let right = verdict.read_volatile() == 1;
            libc::munmap(shared, size);
            right
        }
    }

    /// One full tile product of bytes and one of bfloat16, against the sums that they stand for.
    fn product_is_right() -> bool {
        // Made for the trial: that AMX may be used is what it finds out.
        // SAFETY: the only one on this thread until it is dropped here.
        let tiles = unsafe { Tiles::configure(Amx(()), &Config::FULL) };
        let (mut a, mut b) = ([[0i8; 64]; 16], [[0i8; 64]; 16]);
        for row in 0..16 {
            for k in 0..64 {
                a[row][k] = (row * 7 + k * 3) as u8 as i8;
                b[row][k] = (row * 5 + k * 11) as u8 as i8;
            }
        }
        let one = [[0x3f80u16; 32]; 16];
        let (mut c, mut ones) = ([[0i32; 16]; 16], [[0f32; 16]; 16]);
        // SAFETY: full tiles, from and to arrays of sixteen rows of 64 bytes.
        unsafe {
            tiles.zero::<0>();
            tiles.load::<1>(a.as_ptr().cast(), 64);
            tiles.load::<2>(b.as_ptr().cast(), 64);
            tiles.dot_i8::<0, 1, 2>();
            tiles.store::<0>(c.as_mut_ptr().cast(), 64);
            tiles.zero::<3>();
            tiles.load::<4>(one.as_ptr().cast(), 64);
            tiles.load::<5>(one.as_ptr().cast(), 64);
            tiles.dot_bf16::<3, 4, 5>();
            tiles.store::<3>(ones.as_mut_ptr().cast(), 64);
        }
        let bf16_right = ones == [[32.0; 16]; 16];
        bf16_right
            && (0..16).all(|m| {
                (0..16).all(|n| {
                    let products =
                        (0..64).map(|k| i32::from(a[m][k]) * i32::from(b[k / 4][n * 4 + k % 4]));
                    c[m][n] == products.sum::<i32>()
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::Amx;

    #[test]
    fn the_answer_stays_the_same_on_every_thread() {
        let here = Amx::new().is_some();
        let there = std::thread::spawn(|| Amx::new().is_some()).join();
        assert_eq!(there.ok(), Some(here));
    }
}
