//! An exclusively borrowed slice whose parts different lanes write.

use std::marker::PhantomData;
use std::ops::Range;

/// A `&mut [T]` that a job holds while its lanes write disjoint ranges of it.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: it stands for the `&mut [T]` it was made from; every use of a part of it is covered by
// `slice`'s obligations, and parts may be used on any thread if `T`s may be sent there.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for as long as the job lives.
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Disjoint {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrow: PhantomData,
        }
    }

    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where element `at` is, if there is one. Whoever uses it does so under the conditions of
    /// [`Disjoint::slice`].
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    #[inline]
    pub(crate) fn place(&self, at: usize) -> *mut T {
        self.start.wrapping_add(at)
    }

    /// The elements in `range`.
    ///
    /// # Safety
    ///
    /// - No element of `range` is in another slice taken from here that is still in use, on this
    ///   thread or another. Ranges that [`super::Part::claim`] gave out in one dispatch, and
    ///   per-lane ranges chosen by [`super::Part::index`], are disjoint.
    ///
    /// # Panics
    ///
    /// When the range goes past the end.
    #[inline]
    #[allow(clippy::mut_from_ref)] // the point of the type; see Safety
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: within the slice this was made from; not aliased by the caller's obligation.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
