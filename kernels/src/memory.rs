//! Large zeroed buffers on huge pages, and safe views of plain bytes.
//!
//! Weights and caches are read at the speed of memory, and with 4 KiB pages a core loses a tenth
//! of it to address translation. [`HugeBuffer`] maps anonymous memory aligned to 2 MiB and asks
//! for huge pages. Pages that are never touched cost nothing and read as zero.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Types that any bytes make a value of.
///
/// # Safety
///
/// - Every bit pattern is a value, the all-zero one included.
/// - There is no padding, and nothing to drop.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: a number; every bit pattern is a value.
        unsafe impl Plain for $t {}
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, f32, u64);

// SAFETY: an array has its element's patterns and no padding.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Bytes as values of `T`. Panics unless they are aligned and a whole number of values.
#[inline(always)]
pub(crate) fn cast<T: Plain>(bytes: &[u8]) -> &[T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>()));
    // SAFETY: aligned, in bounds, and `Plain` takes any bytes.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) }
}

/// As [`cast`], for writing.
#[inline(always)]
pub(crate) fn cast_mut<T: Plain>(bytes: &mut [u8]) -> &mut [T] {
    assert!(bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>()));
    let len = bytes.len() / size_of::<T>();
    // SAFETY: aligned, in bounds, exclusive, and any value of `T` is valid bytes (no padding).
    unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast(), len) }
}

/// The bytes of plain values.
#[inline(always)]
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: in bounds, and `Plain` types have no padding, so that every byte is initialized.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// There is not enough memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot allocate {bytes} bytes of memory")]
pub struct AllocError {
    /// How many bytes were asked for (`usize::MAX` where their count does not fit).
    pub bytes: usize,
}

/// A fixed number of zero-initialized values, aligned to 64 bytes (2 MiB from 2 MiB up).
#[allow(private_bounds)]
pub struct HugeBuffer<T: Plain = u8> {
    start: NonNull<T>,
    len: usize,
    /// The mapping that the values lie in; buffers from one [`Arena`] share it.
    _map: Arc<Map>,
    /// Bytes of address space that are this buffer's own.
    bytes: usize,
}

// SAFETY: the buffer owns its part of the mapping, as a boxed slice does (an arena hands each part
// out once), and `Plain` values are Send.
unsafe impl<T: Plain> Send for HugeBuffer<T> {}
// SAFETY: shared access is by shared slices alone, and `Plain` values are Sync.
unsafe impl<T: Plain> Sync for HugeBuffer<T> {}

#[allow(private_bounds)]
impl<T: Plain> HugeBuffer<T> {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Result<Self, AllocError> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or(AllocError { bytes: usize::MAX })?;
        let map = Map::new(bytes)?;
        Ok(HugeBuffer {
            start: map.start.cast(),
            len,
            bytes: map.mapped,
            _map: Arc::new(map),
        })
    }

    /// How many bytes of address space the buffer takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// One large mapping that hands out buffers side by side, so that many small ones share huge
/// pages. Its memory is given back when the arena and every buffer from it are gone.
#[derive(Debug)]
pub struct Arena {
    map: Arc<Map>,
    used: usize,
}

#[allow(private_bounds)]
impl Arena {
    /// Alignment of the buffers.
    const ALIGN: usize = 64;

    /// Room for buffers of `bytes` in all, each counted as [`Arena::takes`] says.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(bytes: usize) -> Result<Arena, AllocError> {
        let map = Arc::new(Map::new(bytes)?);
        Ok(Arena { map, used: 0 })
    }

    /// Bytes of the arena that a buffer of `bytes` takes.
    pub const fn takes(bytes: usize) -> usize {
        bytes.saturating_add(Self::ALIGN - 1) / Self::ALIGN * Self::ALIGN
    }

    /// `len` zeros from the arena.
    ///
    /// # Errors
    ///
    /// The arena has not as much room left.
    pub fn zeroed<T: Plain>(&mut self, len: usize) -> Result<HugeBuffer<T>, AllocError> {
        const { assert!(align_of::<T>() <= Self::ALIGN) };
        let asked = len.checked_mul(size_of::<T>());
        let bytes = asked.ok_or(AllocError { bytes: usize::MAX })?;
        let takes = Self::takes(bytes);
        if takes > self.map.mapped - self.used {
            return Err(AllocError { bytes });
        }
        // SAFETY: `used + takes` lies within the mapping.
        let start = unsafe { self.map.start.add(self.used) };
        self.used += takes;
        Ok(HugeBuffer {
            start: start.cast(),
            len,
            _map: Arc::clone(&self.map),
            bytes: takes,
        })
    }
}

impl<T: Plain> Deref for HugeBuffer<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is aligned and has `len` initialized values, owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> DerefMut for HugeBuffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: Plain> std::fmt::Debug for HugeBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HugeBuffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// From this size on a buffer is aligned to, and asks for, huge pages.
const HUGE: usize = 2 << 20;

/// Anonymous zeroed memory.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    mapped: usize,
}

// SAFETY: the mapping belongs to whoever holds this, on any thread.
unsafe impl Send for Map {}
// SAFETY: a shared `Map` offers no access to the memory; buffers do, each to its own part.
unsafe impl Sync for Map {}

#[cfg(unix)]
impl Map {
    fn new(bytes: usize) -> Result<Map, AllocError> {
        let fail = AllocError { bytes };
        let unit = if bytes >= HUGE { HUGE } else { 4096 };
        // At least one page, so that an empty buffer needs no case of its own.
        let mapped = bytes.max(1).checked_next_multiple_of(unit).ok_or(fail)?;
        let slack = if unit == HUGE { HUGE } else { 0 };
        let asked = mapped
            .checked_add(slack)
            .filter(|&n| n <= isize::MAX as usize)
            .ok_or(fail)?;
        // SAFETY: a new private anonymous mapping, placed by the kernel, touches nothing else.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                asked,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(fail);
        }
        let base: *mut u8 = base.cast();
        let before = if slack == 0 {
            0
        } else {
            base.align_offset(HUGE)
        };
        // SAFETY: `before <= slack`, so all three pieces lie in the mapping just made; the outer
        // two are given back and never used. Failure of advice changes speed alone.
        unsafe {
            let start = base.add(before);
            if before > 0 {
                libc::munmap(base.cast(), before);
            }
            if slack > before {
                libc::munmap(start.add(mapped).cast(), slack - before);
            }
            #[cfg(any(target_os = "linux", target_os = "android"))]
            if slack > 0 {
                libc::madvise(start.cast(), mapped, libc::MADV_HUGEPAGE);
            }
            NonNull::new(start)
                .map(|start| Map { start, mapped })
                .ok_or(fail)
        }
    }
}

#[cfg(unix)]
impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `new` kept, which nothing borrows any more.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.mapped);
        }
    }
}

#[cfg(not(unix))]
impl Map {
    fn new(bytes: usize) -> Result<Map, AllocError> {
        let mapped = bytes.max(1);
        let layout = std::alloc::Layout::from_size_align(mapped, Self::align(mapped))
            .map_err(|_| AllocError { bytes })?;
        // SAFETY: the layout's size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        NonNull::new(start)
            .map(|start| Map { start, mapped })
            .ok_or(AllocError { bytes })
    }

    fn align(mapped: usize) -> usize {
        if mapped >= HUGE { HUGE } else { 64 }
    }
}

#[cfg(not(unix))]
impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the layout that `new` allocated with was valid and is made again here.
        unsafe {
            let align = Self::align(self.mapped);
            let layout = std::alloc::Layout::from_size_align_unchecked(self.mapped, align);
            std::alloc::dealloc(self.start.as_ptr(), layout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_hands_out_disjoint_zeros_until_it_is_full() {
        let mut arena = Arena::new(3 * HUGE).unwrap();
        let mut a = arena.zeroed::<f32>(100).unwrap();
        let mut b = arena.zeroed::<u8>(HUGE + 1).unwrap();
        assert!(a.iter().all(|&x| x == 0.0) && b.iter().all(|&x| x == 0));
        a.fill(1.0);
        b.fill(7);
        assert!(arena.zeroed::<u8>(3 * HUGE).is_err());
        assert!(arena.zeroed::<u64>(usize::MAX).is_err());
        let c = arena.zeroed::<u8>(64).unwrap();
        drop(arena);
        assert!(a.iter().all(|&x| x == 1.0) && b.iter().all(|&x| x == 7));
        assert!(c.iter().all(|&x| x == 0) && c.as_ptr().addr().is_multiple_of(64));
        assert_eq!(Arena::takes(65), 128);
    }

    #[test]
    fn buffers_are_zero_aligned_and_writable() {
        for len in [0, 1, 15, 4096, 100_000, HUGE / 4, HUGE + 3] {
            let mut buffer = HugeBuffer::<f32>::zeroed(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|&x| x == 0.0));
            assert_eq!(buffer.as_ptr().align_offset(64), 0);
            if len * 4 >= HUGE {
                assert_eq!(buffer.as_ptr().cast::<u8>().align_offset(HUGE), 0);
            }
            buffer.fill(1.5);
            assert!(buffer.iter().all(|&x| x == 1.5));
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(HugeBuffer::<f32>::zeroed(usize::MAX / 2).is_err());
        assert!(HugeBuffer::<u8>::zeroed(usize::MAX).is_err());
        assert!(HugeBuffer::<u8>::zeroed(1 << 60).is_err());
    }
}
