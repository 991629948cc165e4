//! The memory map of a file: the only `unsafe` outside the kernels crate.

use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::io;
use std::ops::Range;

/// A read-only map of a whole file.
#[derive(Debug)]
pub(crate) struct Map {
    inner: Mmap,
}

#[allow(unsafe_code)] // the map and its advice; audited here, both read-only
impl Map {
    /// Maps all of `file`.
    pub(crate) fn of(file: &File) -> io::Result<Map> {
        // SAFETY: the map is read-only and nothing in this process writes to the file. Another
        // process that truncates or rewrites it meanwhile can change the bytes or raise SIGBUS;
        // that is inherent in mapping a file. References into the map are typed as bytes and
        // nothing else, so changed contents cannot form an invalid value, and the header is
        // copied out and checked once.
        let inner = unsafe { Mmap::map(file)? };
        Ok(Map { inner })
    }

    /// Gives the pages of `offset..offset + len` back to the system, to be read again from the
    /// file if they are touched again. Advice only: a refusal changes nothing.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        if len == 0
            || offset
                .checked_add(len)
                .is_none_or(|end| end > self.inner.len())
        {
            return;
        }
        // SAFETY: the range lies inside the map (checked above). `MADV_DONTNEED` loses contents
        // only where pages were written or have no file behind them. This map is read-only,
        // shared and backed by the file, so a later read of a dropped page, through any live
        // reference, yields the file's bytes again.
        let _advice = unsafe {
            self.inner
                .unchecked_advise_range(UncheckedAdvice::DontNeed, offset, len)
        };
    }
}

impl Map {
    /// Reads a part of the file and makes its pages present, so that no access waits for one. Advice
    /// only: where the system does not know it, pages come as they are touched.
    pub(crate) fn populate(&self, part: Range<usize>) {
        #[cfg(target_os = "linux")]
        let _advice =
            self.inner
                .advise_range(memmap2::Advice::PopulateRead, part.start, part.len());
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.inner
    }
}
