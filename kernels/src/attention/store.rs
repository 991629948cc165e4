//! Storing keys and values into a cache.

use std::marker::PhantomData;
use std::ops::Range;

use super::element::{Element, PartsMut, parts_mut};
use super::integers::{VALUE_LEVELS, head_levels};
use super::{BLOCK, LayerCache};
use crate::lanes::{Disjoint, Job, Part};
use crate::simd::{Kernel, Simd};

/// Keys or values of one head, at some positions of one block.
pub(crate) struct StoreArgs<'a> {
    /// A row every `stride`, this head's first element first.
    rows: &'a [f32],
    stride: usize,
    /// Elements of a row.
    head_dim: usize,
    /// The positions within the block are `first..first + tokens`.
    first: usize,
    tokens: usize,
    /// The head's part of the block.
    block: &'a mut [u8],
}

/// [`StoreArgs`]' kernel for keys, which it transposes.
pub(crate) struct StoreKeys<E>(PhantomData<E>);

impl<E: Element> Kernel for StoreKeys<E> {
    type Args<'a> = StoreArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: StoreArgs<'_>) {
        let StoreArgs {
            first,
            tokens,
            head_dim,
            ..
        } = args;
        let PartsMut {
            steps,
            numbers,
            scales,
        } = parts_mut::<E>(args.block);
        let rows = numbers.as_flattened_mut().as_chunks_mut::<BLOCK>().0;
        // A chunk of each key at a time, transposed through this.
        let mut narrow = [E::EMPTY; BLOCK];
        let mut marks = [E::UNMARKED; BLOCK];
        let mut sizes = [s.zero_i32(); BLOCK];
        let chunk = E::EMPTY.as_ref().len() * 16;
        for (c, rows) in rows.chunks_mut(chunk).enumerate() {
            let elements = c * chunk..head_dim.min((c + 1) * chunk);
            for t in 0..tokens {
                let key = &args.rows[t * args.stride..][..head_dim];
                marks[t] = E::pack(s, &key[elements.clone()], narrow[t].as_mut());
                sizes[t] = s.max_u32(sizes[t], E::sizes(s, narrow[t].as_ref(), marks[t]));
            }
            for (i, row) in rows.iter_mut().enumerate() {
                let row = &mut row[first..first + tokens];
                for (to, from) in row.iter_mut().zip(&narrow) {
                    *to = from.as_ref().as_flattened()[i];
                }
            }
            for (t, mark) in marks.iter().enumerate().take(tokens) {
                E::mark(scales, c, first + t, *mark);
            }
        }
        let levels = head_levels(head_dim);
        for t in 0..tokens {
            let largest = f32::from_bits(s.reduce_max_u32(sizes[t]));
            steps[first + t] = E::step(largest, levels);
        }
    }
}

/// [`StoreArgs`]' kernel for values.
pub(crate) struct StoreValues<E>(PhantomData<E>);

impl<E: Element> Kernel for StoreValues<E> {
    type Args<'a> = StoreArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, args: StoreArgs<'_>) {
        let PartsMut {
            steps,
            numbers,
            scales,
        } = parts_mut::<E>(args.block);
        let vectors = numbers.len() / BLOCK;
        let chunk = E::EMPTY.as_ref().len();
        for t in 0..args.tokens {
            let p = args.first + t;
            let value = &args.rows[t * args.stride..][..args.head_dim];
            let row = &mut numbers[p * vectors..][..vectors];
            let mut sizes = s.zero_i32();
            for (c, (to, from)) in row
                .chunks_mut(chunk)
                .zip(value.chunks(16 * chunk))
                .enumerate()
            {
                let mark = E::pack(s, from, to);
                E::mark(scales, c, p, mark);
                sizes = s.max_u32(sizes, E::sizes(s, to, mark));
            }
            let largest = f32::from_bits(s.reduce_max_u32(sizes));
            steps[p] = E::step(largest, VALUE_LEVELS);
        }
    }
}

/// The keys or the values of a [`StoreKvJob`].
#[derive(Clone, Copy)]
struct Rows<'a> {
    /// `[tokens, n_kv_heads, head_dim]`.
    all: &'a [f32],
    n_kv_heads: usize,
    head_dim: usize,
    store: unsafe fn(StoreArgs<'_>),
}

impl<'a> Rows<'a> {
    /// What is to be stored of `tokens` for one head, at positions from `first` of a block.
    fn args(
        &self,
        tokens: Range<usize>,
        head: usize,
        first: usize,
        block: &'a mut [u8],
    ) -> StoreArgs<'a> {
        let stride = self.n_kv_heads * self.head_dim;
        StoreArgs {
            rows: &self.all[tokens.start * stride + head * self.head_dim..],
            stride,
            head_dim: self.head_dim,
            first,
            tokens: tokens.len(),
            block,
        }
    }
}

/// Stores keys and values of consecutive positions.
pub struct StoreKvJob<'a> {
    k: Rows<'a>,
    v: Rows<'a>,
    data: Disjoint<'a, [u8; 64]>,
    layout: super::cache::Layout,
    n_kv_heads: usize,
    pos0: usize,
    tokens: usize,
}

impl<'a> StoreKvJob<'a> {
    /// For `k` `[tokens, n_kv_heads, head_dim_k]` (after rope) and `v`
    /// `[tokens, n_kv_heads, head_dim_v]`, token `t` being at position `pos0 + t`. Runs at the
    /// cache's level.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, a position is beyond the cache's capacity, or there are more than
    /// it holds at once.
    pub fn new(cache: &'a mut LayerCache, pos0: usize, k: &'a [f32], v: &'a [f32]) -> Self {
        let n_kv_heads = cache.n_kv_heads();
        let (head_dim_k, head_dim_v) = (cache.head_dim_k(), cache.head_dim_v());
        let tokens = k.len() / (n_kv_heads * head_dim_k);
        assert_eq!(
            k.len(),
            tokens * n_kv_heads * head_dim_k,
            "keys are not whole rows"
        );
        assert_eq!(
            v.len(),
            tokens * n_kv_heads * head_dim_v,
            "values of another shape"
        );
        assert!(
            pos0.checked_add(tokens)
                .is_some_and(|end| end <= cache.capacity()),
            "{tokens} positions from {pos0} do not fit a cache of {}",
            cache.capacity()
        );
        // One block would else take another's place in the same job.
        assert!(
            cache.layout.holds(pos0..pos0 + tokens),
            "{tokens} positions from {pos0} do not fit a cache that holds {} at once",
            cache.shape().n_held
        );
        StoreKvJob {
            k: Rows {
                all: k,
                n_kv_heads,
                head_dim: head_dim_k,
                store: cache.k_codec.store_keys,
            },
            v: Rows {
                all: v,
                n_kv_heads,
                head_dim: head_dim_v,
                store: cache.v_codec.store_values,
            },
            layout: cache.layout,
            data: Disjoint::new(&mut cache.data),
            n_kv_heads,
            pos0,
            tokens,
        }
    }
}

impl Job for StoreKvJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let pos0 = self.pos0;
        let end = pos0 + self.tokens;
        let first_block = pos0 / BLOCK;
        let blocks = end.div_ceil(BLOCK) - first_block;
        while let Some(item) = part.claim_one(self.n_kv_heads * blocks) {
            let (head, block) = (item / blocks, first_block + item % blocks);
            let from = pos0.max(block * BLOCK);
            let to = end.min((block + 1) * BLOCK);
            let (tokens, first) = (from - pos0..to - pos0, from - block * BLOCK);
            // SAFETY: each block of each head is claimed once, all blocks are held at once, and
            // keys and values lie apart.
            let (k_block, v_block) = unsafe {
                (
                    self.data.slice(self.layout.k(head, block)),
                    self.data.slice(self.layout.v(head, block)),
                )
            };
            let k = self
                .k
                .args(tokens.clone(), head, first, k_block.as_flattened_mut());
            let v = self.v.args(tokens, head, first, v_block.as_flattened_mut());
            // SAFETY: the cache's codecs come from a `Kernels`, which proves their level.
            unsafe {
                (self.k.store)(k);
                (self.v.store)(v);
            }
        }
    }
}
