//! A block's keys and values as pairs of integers, for passes with many queries.

use std::marker::PhantomData;

use super::BLOCK;
use super::element::AsIntegers;
use super::kernels::Row;
use super::products::{Source, Stored};
use crate::simd::{Kernel, Simd};

/// Repacks a head's part of a block.
pub(crate) struct PackArgs<'a> {
    pub(super) from: &'a [u8],
    pub(super) inverses: &'a Row<f32>,
    /// In the form of the level: pairs, half as many as `from` has numbers, or digits.
    pub(super) to: &'a mut [[i32; 16]],
}

/// [`PackArgs`]' kernel for keys: `[head_dim / 2][64]`, pairs of elements.
pub(crate) struct PackKeys<E>(PhantomData<E>);

impl<E: AsIntegers> Kernel for PackKeys<E> {
    type Args<'a> = PackArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, PackArgs { from, inverses, to }: PackArgs<'_>) {
        const ROW: usize = BLOCK / 16;
        let keys = Stored::<E>::view(from, inverses);
        for (run, to) in to
            .chunks_mut(Stored::<E>::RUN.saturating_mul(ROW))
            .enumerate()
        {
            let mut scale = [Stored::<E>::key_scale(s, keys, run, 0); ROW];
            for j in 1..ROW {
                scale[j] = Stored::<E>::key_scale(s, keys, run, j);
            }
            let first = run.saturating_mul(Stored::<E>::RUN);
            for (i, to) in to.chunks_exact_mut(ROW).enumerate() {
                for j in 0..ROW {
                    let pair = Stored::<E>::key_pair(s, keys, first + i, j, scale[j]);
                    s.store_i32(pair, &mut to[j]);
                }
            }
        }
    }
}

/// [`PackArgs`]' kernel for values: `[32][vectors]`, pairs of positions.
pub(crate) struct PackValues<E>(PhantomData<E>);

impl<E: AsIntegers> Kernel for PackValues<E> {
    type Args<'a> = PackArgs<'a>;
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, PackArgs { from, inverses, to }: PackArgs<'_>) {
        let values = Stored::<E>::view(from, inverses);
        let vectors = to.len() / (BLOCK / 2);
        let (mut first, mut run) = (0, 0);
        while first < vectors {
            let end = vectors.min(first.saturating_add(E::RUN / 16));
            let scales = Stored::<E>::value_scales(s, values, run);
            for pair in 0..BLOCK / 2 {
                for i in first..end {
                    let ints = Stored::<E>::value_pair(s, values, vectors, pair, i, &scales);
                    s.store_i32(ints, &mut to[pair * vectors + i]);
                }
            }
            (first, run) = (end, run + 1);
        }
    }
}
