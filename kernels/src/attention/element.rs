//! The forms in which keys and values are stored, and the kernels' view of each.
//!
//! An [`Element`] says how a stored number becomes an `f32` and how an `f32` is stored; the kernels
//! are generic over it. A [`Codec`] is one element's kernels at one level: a cache picks its two,
//! for keys and for values, when it is made, and whoever works on the cache calls those.

use super::BLOCK;
use super::integers::{FillPanel, PanelArgs, step};
use super::kernels::Row;
use super::products::{Scores, ScoresArgs, Stored, Values, ValuesArgs};
use super::repack::{PackArgs, PackKeys, PackValues};
use super::single::{NotePanel, SingleScores, SingleValues, unit_step};
use super::store::{StoreArgs, StoreKeys, StoreValues};
use crate::memory::{Plain, cast, cast_mut};
use crate::simd::{Simd, entry};
use std::fmt;
use std::str::FromStr;

/// How cached keys or values are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheType {
    /// IEEE half precision, rounded to nearest even.
    #[default]
    F16,
    /// ggml's Q8_0: blocks of 32 elements of a head, signed bytes with a half-precision scale,
    /// rounded as activations are (see [`crate::ActivationKind::Q8x32`]).
    Q8_0,
    /// Single precision, as computed.
    F32,
}

impl CacheType {
    /// All types, the default first.
    pub const ALL: [CacheType; 3] = [CacheType::F16, CacheType::Q8_0, CacheType::F32];

    /// The name that llama.cpp's `--cache-type-k` takes.
    pub const fn name(self) -> &'static str {
        match self {
            CacheType::F16 => "f16",
            CacheType::Q8_0 => "q8_0",
            CacheType::F32 => "f32",
        }
    }

    /// Elements of a head that are stored together: a head is a whole number of these.
    pub const fn block_elements(self) -> usize {
        match self {
            CacheType::F16 | CacheType::F32 => 1,
            CacheType::Q8_0 => 32,
        }
    }

    /// Bytes of `elements` elements, which [`CacheType::block_elements`] divides; `None` where
    /// their count does not fit.
    pub const fn bytes(self, elements: usize) -> Option<usize> {
        match self {
            CacheType::F16 => elements.checked_mul(2),
            CacheType::F32 => elements.checked_mul(4),
            CacheType::Q8_0 => (elements / 32).checked_mul(34),
        }
    }
}

impl fmt::Display for CacheType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no [`CacheType`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cache type '{0}': use f16, q8_0 or f32")]
pub struct UnknownCacheType(pub String);

impl FromStr for CacheType {
    type Err = UnknownCacheType;

    fn from_str(name: &str) -> Result<CacheType, UnknownCacheType> {
        CacheType::ALL
            .into_iter()
            .find(|ty| ty.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownCacheType(name.to_owned()))
    }
}

/// A stored number. One head's part of a block, of keys or of values, begins with the steps of its
/// 64 positions (see [`super::integers`]). Then come its numbers and, for elements that have them,
/// their scales: a row of 64 for each run of [`AsIntegers::RUN`] elements, one a position.
pub(crate) trait Element: 'static {
    /// One number.
    type Of: Plain;
    /// Numbers that are stored at once: as many as share a scale, or one vector without scales.
    type Chunk: Copy + AsRef<[[Self::Of; 16]]> + AsMut<[[Self::Of; 16]]>;
    /// A chunk of anything.
    const EMPTY: Self::Chunk;
    /// The scale that storing a chunk yields, or nothing.
    type Mark: Copy;
    /// No scale.
    const UNMARKED: Self::Mark;

    /// Bytes of numbers in `len` bytes of numbers and scales of a head's part of a block.
    fn numbers(len: usize) -> usize;

    /// Stores as many numbers as a chunk has, or fewer at the end of a head.
    fn pack<S: Simd>(s: S, from: &[f32], to: &mut [[Self::Of; 16]]) -> Self::Mark;
    /// Notes a position's scale of a run.
    fn mark(scales: &mut [Row<u16>], run: usize, p: usize, mark: Self::Mark);
    /// The largest size of a chunk's numbers, lane by lane, as bits: they order as the sizes do,
    /// with NaN at the top.
    fn sizes<S: Simd>(s: S, from: &[[Self::Of; 16]], mark: Self::Mark) -> S::Int;

    /// The step of a row with this largest size.
    #[inline(always)]
    fn step(largest: f32, levels: f32) -> f32 {
        step(largest, levels)
    }
}

/// An element whose numbers are taken as integers: how they are read.
pub(crate) trait AsIntegers: Element {
    /// The scales of sixteen positions, or nothing.
    type Scale<S: Simd>: Copy;
    /// The scales of a block's positions, or nothing.
    type Scales: Copy;
    /// Elements that share a scale; without scales, more than there can be.
    const RUN: usize;

    /// The scales of the sixteen positions of a row's vector `vector`.
    fn scale<S: Simd>(s: S, scales: &[Row<u16>], run: usize, vector: usize) -> Self::Scale<S>;
    /// Sixteen positions' numbers.
    fn key<S: Simd>(s: S, from: &[Self::Of; 16], scale: Self::Scale<S>) -> S::F32;

    /// The scales of a run.
    fn scales<S: Simd>(s: S, scales: &[Row<u16>], run: usize) -> Self::Scales;
    /// Sixteen numbers of one position.
    fn value<S: Simd>(s: S, from: &[Self::Of; 16], scales: &Self::Scales, p: usize) -> S::F32;
}

/// Bytes of a part's steps.
pub(super) const STEPS: usize = size_of::<Row<f32>>();

/// The steps of one head's part of a block.
#[inline(always)]
pub(super) fn steps(bytes: &[u8]) -> &Row<f32> {
    &cast(&bytes[..STEPS])[0]
}

/// One head's part of a block: its numbers, as vectors, and its scales.
#[inline(always)]
pub(super) fn parts<E: Element>(bytes: &[u8]) -> (&[[E::Of; 16]], &[Row<u16>]) {
    let bytes = &bytes[STEPS..];
    let (numbers, scales) = bytes.split_at(E::numbers(bytes.len()));
    (cast(numbers), cast(scales))
}

/// As [`parts`], for writing.
#[inline(always)]
pub(super) fn parts_mut<E: Element>(bytes: &mut [u8]) -> PartsMut<'_, E> {
    let (steps, bytes) = bytes.split_at_mut(STEPS);
    let (numbers, scales) = bytes.split_at_mut(E::numbers(bytes.len()));
    PartsMut {
        steps: cast_mut::<[f32; BLOCK]>(steps)
            .first_mut()
            .expect("a row of steps"),
        numbers: cast_mut(numbers),
        scales: cast_mut(scales),
    }
}

/// What [`parts_mut`] found.
pub(super) struct PartsMut<'a, E: Element> {
    pub(super) steps: &'a mut [f32; BLOCK],
    pub(super) numbers: &'a mut [[E::Of; 16]],
    pub(super) scales: &'a mut [Row<u16>],
}

/// Sixteen values, zeros past the end.
#[inline(always)]
fn load_up_to_16<S: Simd>(s: S, from: &[f32]) -> S::F32 {
    match from.first_chunk() {
        Some(from) => s.load(from),
        None => s.load_partial(from),
    }
}

/// What an element without scales has to say about them.
macro_rules! unscaled {
    ($of:ty) => {
        type Of = $of;
        type Chunk = [[$of; 16]; 1];
        const EMPTY: Self::Chunk = [[0 as $of; 16]; 1];
        type Mark = ();
        const UNMARKED: () = ();

        #[inline(always)]
        fn numbers(len: usize) -> usize {
            len
        }
        #[inline(always)]
        fn mark(_: &mut [Row<u16>], _: usize, _: usize, _: ()) {}
    };
}

/// Half precision: [`CacheType::F16`].
pub(crate) struct Half;

impl Element for Half {
    unscaled!(u16);

    #[inline(always)]
    fn pack<S: Simd>(s: S, from: &[f32], to: &mut [[u16; 16]]) {
        s.store_f16(load_up_to_16(s, from), &mut to[0]);
    }
    #[inline(always)]
    fn sizes<S: Simd>(s: S, from: &[[u16; 16]], (): ()) -> S::Int {
        s.f32_bits(s.abs(s.load_f16(&from[0])))
    }
}

impl AsIntegers for Half {
    type Scale<S: Simd> = ();
    type Scales = ();
    const RUN: usize = usize::MAX;

    #[inline(always)]
    fn scale<S: Simd>(_: S, _: &[Row<u16>], _: usize, _: usize) {}
    #[inline(always)]
    fn key<S: Simd>(s: S, from: &[u16; 16], (): ()) -> S::F32 {
        s.load_f16(from)
    }
    #[inline(always)]
    fn scales<S: Simd>(_: S, _: &[Row<u16>], _: usize) {}
    #[inline(always)]
    fn value<S: Simd>(s: S, from: &[u16; 16], (): &(), _: usize) -> S::F32 {
        s.load_f16(from)
    }
}

/// Single precision: [`CacheType::F32`].
pub(crate) struct Single;

impl Element for Single {
    unscaled!(f32);

    #[inline(always)]
    fn pack<S: Simd>(s: S, from: &[f32], to: &mut [[f32; 16]]) {
        s.store(load_up_to_16(s, from), &mut to[0]);
    }
    #[inline(always)]
    fn sizes<S: Simd>(s: S, from: &[[f32; 16]], (): ()) -> S::Int {
        s.f32_bits(s.abs(s.load(&from[0])))
    }
    #[inline(always)]
    fn step(largest: f32, _: f32) -> f32 {
        unit_step(largest)
    }
}

/// Signed bytes with a scale for each 32: [`CacheType::Q8_0`].
pub(crate) struct Eight;

impl Element for Eight {
    type Of = i8;
    type Chunk = [[i8; 16]; 2];
    const EMPTY: Self::Chunk = [[0; 16]; 2];
    type Mark = u16;
    const UNMARKED: u16 = 0;

    #[inline(always)]
    fn numbers(len: usize) -> usize {
        len / 34 * 32
    }
    /// As `quantize` does blocks of 32, without the sum.
    #[inline(always)]
    fn pack<S: Simd>(s: S, from: &[f32], to: &mut [[i8; 16]]) -> u16 {
        let from: &[f32; 32] = from.first_chunk().expect("whole runs");
        let from: &[[f32; 16]; 2] = from.as_chunks().0.first_chunk().expect("twice 16");
        let v = [s.load(&from[0]), s.load(&from[1])];
        let bits = [s.f32_bits(s.abs(v[0])), s.f32_bits(s.abs(v[1]))];
        let amax = f32::from_bits(s.reduce_max_u32(s.max_u32(bits[0], bits[1])));
        let inverse = s.splat(if amax == 0.0 { 0.0 } else { 127.0 / amax });
        let low = s.splat_i32(-127);
        for i in 0..2 {
            let n = s.round_i32(s.mul(v[i], inverse));
            let n = s.select_i32(s.gt_i32(n, s.splat_i32(127)), low, n);
            let n = s.select_i32(s.gt_i32(low, n), low, n);
            let mut bytes = [0; 16];
            s.store_low_bytes(n, &mut bytes);
            to[i] = bytes.map(u8::cast_signed);
        }
        let mut scale = [0; 16];
        s.store_f16(s.splat(amax / 127.0), &mut scale);
        scale[0]
    }
    #[inline(always)]
    fn mark(scales: &mut [Row<u16>], run: usize, p: usize, mark: u16) {
        scales[run].as_flattened_mut()[p] = mark;
    }
    #[inline(always)]
    fn sizes<S: Simd>(s: S, from: &[[i8; 16]], mark: u16) -> S::Int {
        let scale = s.load_f16(&[mark; 16]);
        let size = [
            s.f32_bits(s.abs(Self::key(s, &from[0], scale))),
            s.f32_bits(s.abs(Self::key(s, &from[1], scale))),
        ];
        s.max_u32(size[0], size[1])
    }
}

impl AsIntegers for Eight {
    type Scale<S: Simd> = S::F32;
    type Scales = [f32; BLOCK];
    const RUN: usize = 32;

    #[inline(always)]
    fn scale<S: Simd>(s: S, scales: &[Row<u16>], run: usize, vector: usize) -> S::F32 {
        s.load_f16(&scales[run][vector])
    }
    #[inline(always)]
    fn key<S: Simd>(s: S, from: &[i8; 16], scale: S::F32) -> S::F32 {
        s.mul(s.i32_to_f32(s.load_i8(from)), scale)
    }
    #[inline(always)]
    fn scales<S: Simd>(s: S, scales: &[Row<u16>], run: usize) -> [f32; BLOCK] {
        let mut to = [[0.0; 16]; BLOCK / 16];
        for (from, to) in scales[run].iter().zip(&mut to) {
            s.store(s.load_f16(from), to);
        }
        *to.as_flattened().first_chunk().expect("a scale a position")
    }
    #[inline(always)]
    fn value<S: Simd>(s: S, from: &[i8; 16], scales: &[f32; BLOCK], p: usize) -> S::F32 {
        s.mul(s.i32_to_f32(s.load_i8(from)), s.splat(scales[p]))
    }
}

/// One element's kernels at one level, for keys and for values.
pub(crate) struct Codec {
    /// Queries in the form that `scores` takes.
    pub(super) fill_panel: unsafe fn(PanelArgs<'_>),
    pub(super) scores: unsafe fn(ScoresArgs<'_>),
    pub(super) values: unsafe fn(ValuesArgs<'_>),
    /// What repacks keys and values; none where they are not taken as integers.
    pub(super) packing: Option<Packing>,
    pub(super) store_keys: unsafe fn(StoreArgs<'_>),
    pub(super) store_values: unsafe fn(StoreArgs<'_>),
}

/// What repacks the keys, and what the values, of a block.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    pub(super) keys: unsafe fn(PackArgs<'_>),
    pub(super) values: unsafe fn(PackArgs<'_>),
}

impl Codec {
    /// Of any other element than [`Single`].
    pub(super) const fn of<S: Simd, E: AsIntegers>() -> Codec {
        Codec {
            fill_panel: entry::<S, FillPanel>,
            scores: entry::<S, Scores<Stored<E>>>,
            values: entry::<S, Values<Stored<E>>>,
            packing: Some(Packing {
                keys: entry::<S, PackKeys<E>>,
                values: entry::<S, PackValues<E>>,
            }),
            store_keys: entry::<S, StoreKeys<E>>,
            store_values: entry::<S, StoreValues<E>>,
        }
    }

    /// Of [`Single`], whose numbers are taken as they are.
    const fn single<S: Simd>() -> Codec {
        Codec {
            fill_panel: entry::<S, NotePanel>,
            scores: entry::<S, SingleScores>,
            values: entry::<S, SingleValues>,
            packing: None,
            store_keys: entry::<S, StoreKeys<Single>>,
            store_values: entry::<S, StoreValues<Single>>,
        }
    }
}

/// One level's codecs.
pub(crate) struct Codecs {
    pub(super) half: Codec,
    pub(super) eight: Codec,
    pub(super) single: Codec,
}

impl Codecs {
    pub(super) const fn of<S: Simd>() -> Codecs {
        Codecs {
            half: Codec::of::<S, Half>(),
            eight: Codec::of::<S, Eight>(),
            single: Codec::single::<S>(),
        }
    }

    /// The codec of a type: asked once, when a cache is made.
    pub(super) fn get(&self, ty: CacheType) -> &Codec {
        match ty {
            CacheType::F16 => &self.half,
            CacheType::Q8_0 => &self.eight,
            CacheType::F32 => &self.single,
        }
    }
}
