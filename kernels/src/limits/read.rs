//! Reading memory and doing nothing with it.

use crate::lanes::{Job, Part};
use crate::level::Kernels;
use crate::memory::{AllocError, HugeBuffer};
use crate::simd::{Entry, Kernel, Simd, entry};
use std::sync::atomic::{AtomicU32, Ordering};

/// The size of the pages that a buffer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

impl Pages {
    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        match self {
            Pages::Small => 4 << 10,
            Pages::Huge => 2 << 20,
        }
    }
}

/// Memory to be read: every page its own, none of them zero.
#[derive(Debug)]
pub struct ReadBuffer {
    data: HugeBuffer,
    advised: bool,
}

impl ReadBuffer {
    /// `bytes` (rounded up to whole 2 MiB) of memory on pages of the size asked for, as far as the
    /// system goes along; [`ReadBuffer::huge_bytes`] says how far.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(bytes: usize, pages: Pages) -> Result<ReadBuffer, AllocError> {
        let fail = AllocError { bytes };
        let unit = Pages::Huge.bytes();
        let rounded = bytes.max(1).checked_next_multiple_of(unit).ok_or(fail)?;
        let mut data = HugeBuffer::zeroed(rounded)?;
        let advised = advise(&mut data, pages);
        // One write a page is what gives the buffer its memory.
        data.fill(0x5a);
        Ok(ReadBuffer { data, advised })
    }

    /// Bytes in the buffer.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Whether the system took the request for the pages' size. It may still not follow it.
    pub fn advised(&self) -> bool {
        self.advised
    }

    /// Bytes that really lie on huge pages, where the system says.
    pub fn huge_bytes(&self) -> Option<usize> {
        let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
        let start = self.data.as_ptr().addr();
        huge_bytes(&smaps, start, start + self.data.len())
    }
}

/// Bytes on huge pages in `smaps`, of the mappings that meet `start..end`, at most its length.
fn huge_bytes(smaps: &str, start: usize, end: usize) -> Option<usize> {
    let (mut inside, mut sum) = (false, None);
    for line in smaps.lines() {
        let word = line.split_ascii_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = word.split_once('-') {
            let from = usize::from_str_radix(from, 16).ok()?;
            let to = usize::from_str_radix(to, 16).ok()?;
            inside = from < end && start < to;
        } else if inside && let Some(size) = line.strip_prefix("AnonHugePages:") {
            let kib: usize = size.trim().strip_suffix(" kB")?.parse().ok()?;
            sum = Some(sum.unwrap_or(0) + kib * 1024);
        }
    }
    sum.map(|sum: usize| sum.min(end - start))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn advise(data: &mut HugeBuffer, pages: Pages) -> bool {
    let advice = match pages {
        Pages::Small => libc::MADV_NOHUGEPAGE,
        Pages::Huge => libc::MADV_HUGEPAGE,
    };
    // SAFETY: advice on the buffer's own mapping, whose contents it leaves alone.
    unsafe { libc::madvise(data.as_mut_ptr().cast(), data.len(), advice) == 0 }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn advise(_: &mut HugeBuffer, pages: Pages) -> bool {
    pages == Pages::Small
}

/// Reads some bytes a number of times.
pub(crate) struct ReadArgs<'a> {
    bytes: &'a [u8],
    passes: usize,
}

/// Bytes that a turn of the loop reads.
const TURN: usize = 8 * 64;

/// The sum of all 32-bit words: what keeps the compiler from leaving the loads out.
pub(crate) struct Read;

impl Kernel for Read {
    type Args<'a> = ReadArgs<'a>;
    type Out = i32;

    #[inline(always)]
    fn run<S: Simd>(s: S, args: ReadArgs<'_>) -> i32 {
        let mut sums = [s.zero_i32(); 4];
        for _ in 0..args.passes {
            // A pass must not be known to read what the one before it read.
            let (vectors, _) = std::hint::black_box(args.bytes).as_chunks::<64>();
            for turn in vectors.as_chunks::<{ TURN / 64 }>().0 {
                for i in 0..4 {
                    sums[i] = s.add_i32(sums[i], s.load_bytes(&turn[i]));
                }
                for i in 0..4 {
                    sums[i] = s.add_i32(sums[i], s.load_bytes(&turn[4 + i]));
                }
            }
        }
        let (a, b) = (s.add_i32(sums[0], sums[1]), s.add_i32(sums[2], sums[3]));
        s.reduce_add_i32(s.add_i32(a, b))
    }
}

/// A level's way of reading.
pub(crate) type ReadFn = Entry<Read>;

/// [`Read`] compiled for `S`.
pub(crate) const fn read<S: Simd>() -> ReadFn {
    entry::<S, Read>
}

/// Reads a buffer, or the beginning of it, share by share.
pub struct ReadJob<'a> {
    kernels: Kernels,
    bytes: &'a [u8],
    share: usize,
    passes: usize,
    sum: AtomicU32,
}

impl<'a> ReadJob<'a> {
    /// Reads the first `bytes` of `buffer` in shares of `share` bytes, which lanes claim; whoever
    /// has a share reads it `passes` times before the next.
    ///
    /// # Panics
    ///
    /// When the buffer is shorter, or a share is not a positive multiple of 512 bytes.
    pub fn new(
        kernels: Kernels,
        buffer: &'a ReadBuffer,
        bytes: usize,
        share: usize,
        passes: usize,
    ) -> ReadJob<'a> {
        assert!(
            share > 0 && share.is_multiple_of(TURN),
            "a share of {share} bytes is not whole turns"
        );
        ReadJob {
            kernels,
            bytes: &buffer.data[..bytes],
            share,
            passes,
            sum: AtomicU32::new(0),
        }
    }

    /// Bytes that running the job reads.
    pub fn bytes(&self) -> u64 {
        (self.bytes.len() / self.share * self.share) as u64 * self.passes as u64
    }

    /// The wrapping sum of all 32-bit words that were read.
    pub fn sum(&self) -> u32 {
        self.sum.load(Ordering::Relaxed)
    }
}

impl Job for ReadJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        while let Some(share) = part.claim_one(self.bytes.len() / self.share) {
            let args = ReadArgs {
                bytes: &self.bytes[share * self.share..(share + 1) * self.share],
                passes: self.passes,
            };
            // SAFETY: `kernels` proves the level.
            let sum = unsafe { (self.kernels.0.read)(args) };
            self.sum.fetch_add(sum as u32, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Lanes, Patience, parallel};
    use crate::level::Level;

    #[test]
    fn every_level_reads_every_byte_of_every_pass() {
        let mut buffer = ReadBuffer::new(1 << 20, Pages::Small).unwrap();
        for (i, byte) in buffer.data.iter_mut().enumerate() {
            *byte = (i * 7 + i / 251) as u8;
        }
        let bytes = 100 * 2048;
        let words = buffer.data[..bytes].as_chunks::<4>().0;
        let once = words.iter().fold(0u32, |sum, word| {
            sum.wrapping_add(u32::from_le_bytes(*word))
        });
        let mut lanes = Lanes::new(3, Patience::SharedCores).unwrap();
        for kernels in Level::available().into_iter().filter_map(Kernels::new) {
            let mut job = ReadJob::new(kernels, &buffer, bytes, 2048, 3);
            parallel(&mut lanes, &mut job).unwrap();
            assert_eq!(job.sum(), once.wrapping_mul(3), "{kernels:?}");
            assert_eq!(job.bytes(), 3 * bytes as u64);
        }
    }

    #[test]
    fn a_buffer_is_whole_huge_pages_and_small_ones_are_kept_small() {
        let buffer = ReadBuffer::new((2 << 20) + 1, Pages::Small).unwrap();
        assert_eq!(buffer.bytes(), 4 << 20);
        if cfg!(target_os = "linux") && buffer.advised() {
            assert!(buffer.huge_bytes().is_none_or(|bytes| bytes == 0));
        }
        assert!(ReadBuffer::new(usize::MAX, Pages::Huge).is_err());
    }

    #[test]
    fn huge_pages_are_counted_in_the_buffers_own_mappings() {
        let smaps = "1000-3000 rw-p 00000000 00:00 0\nSize: 8 kB\nAnonHugePages:      4 kB\n\
                     3000-9000 rw-p 00000000 00:00 0 [heap]\nAnonHugePages:  2048 kB\n\
                     9000-a000 rw-p 00000000 00:00 0\nAnonHugePages:  8 kB\n";
        assert_eq!(huge_bytes(smaps, 0x1000, 0x3000), Some(4096));
        assert_eq!(huge_bytes(smaps, 0x2000, 0x4000), Some(0x2000));
        assert_eq!(huge_bytes(smaps, 0xa000, 0xb000), None);
        assert_eq!(huge_bytes("", 0, 1), None);
    }
}
