//! Products of a matrix with many activation vectors.
//!
//! Each element is one sum over the row, first term to last: whatever is computed beside it, on
//! however many threads, changes no bit. What is free is which elements are computed together: a
//! processor adds several numbers at once when they stand side by side. So eight vectors at a
//! time are interleaved into a tile, and rows pass it in pairs:
//!
//! ```text
//! tile:   x0[0] x1[0] .. x7[0]   x0[1] x1[1] .. x7[1]   ...
//! sums[row][i] += row[k] * tile[k][i]    for each k, for both rows and i in 0..8
//! ```
//!
//! Rows are decoded a block at a time, which stays in cache while all tiles pass it.

use std::ops::Range;

use super::OracleError;
use super::parallel::map_ranges;
use super::weights::{Matrix, Rows};

/// Vectors in a tile: with two rows, half the sixteen registers of two numbers each that every
/// processor has hold sums.
const TILE: usize = 8;
/// Rows that pass a tile together.
const PAIR: usize = 2;
/// Rows decoded at a time; whole pairs.
const BLOCK: usize = 8 * PAIR;

/// Up to eight vectors interleaved, `[k][vector]`; zeros where there is none.
type Tile = Vec<[f64; TILE]>;

/// `vectors`, each `len` long, in tiles.
fn tiles(vectors: &[Vec<f64>], len: usize) -> Vec<Tile> {
    let interleave = |vectors: &[Vec<f64>]| {
        let mut tile = vec![[0.0; TILE]; len];
        for (i, vector) in vectors.iter().enumerate() {
            assert_eq!(vector.len(), len, "vectors of unlike length");
            for (at, value) in tile.iter_mut().zip(vector) {
                at[i] = *value;
            }
        }
        tile
    };
    vectors.chunks(TILE).map(interleave).collect()
}

/// The products of two rows with the vectors of a tile.
fn pair_times(rows: [&[f64]; PAIR], tile: &Tile) -> [[f64; TILE]; PAIR] {
    let mut sums = [[0.0; TILE]; PAIR];
    for ((a, b), x) in rows[0].iter().zip(rows[1]).zip(tile) {
        for (weight, sums) in [a, b].into_iter().zip(&mut sums) {
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum += weight * x;
            }
        }
    }
    sums
}

impl Matrix<'_> {
    /// The matrix times each of `vectors`, on so many threads.
    pub fn times(&self, vectors: &[Vec<f64>], threads: usize) -> Result<Rows, OracleError> {
        let tiles = tiles(vectors, self.row_len());
        let parts = map_ranges(threads, self.n_rows(), |rows| {
            vec![self.rows_times(rows, &tiles, vectors.len())]
        })?;
        let of_vector = |i: usize| {
            let parts: Vec<&[f64]> = parts.iter().map(|part| part[i].as_slice()).collect();
            parts.concat()
        };
        Ok((0..vectors.len()).map(of_vector).collect())
    }

    /// Some rows times the `n` vectors in `tiles`, `[vector][row]`.
    fn rows_times(&self, rows: Range<usize>, tiles: &[Tile], n: usize) -> Rows {
        let len = self.row_len();
        let mut products = vec![vec![0.0; rows.len()]; n];
        let mut block = vec![0.0; BLOCK * len];
        for done in (0..rows.len()).step_by(BLOCK) {
            let in_block = BLOCK.min(rows.len() - done);
            let decoded = block.chunks_exact_mut(len).take(in_block);
            for (i, row) in decoded.enumerate() {
                self.decode_row(rows.start + done + i, row);
            }
            for (tile, products) in tiles.iter().zip(products.chunks_mut(TILE)) {
                let pairs = block.chunks_exact(PAIR * len).take(in_block.div_ceil(PAIR));
                for (pair, at) in pairs.zip((done..).step_by(PAIR)) {
                    let (a, b) = pair.split_at(len);
                    let sums = pair_times([a, b], tile);
                    for (i, product) in products.iter_mut().enumerate() {
                        // An odd last row passes beside whatever stands in the block.
                        let wanted = product[at..].iter_mut().zip([sums[0][i], sums[1][i]]);
                        wanted.for_each(|(place, sum)| *place = sum);
                    }
                }
            }
        }
        products
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::TensorType;
    use crate::oracle::dequant::Dequantizer;

    /// Whole numbers, so that every order of adding gives the same.
    fn value(i: usize) -> f32 {
        (i * 29 % 41) as f32 - 20.0
    }

    #[test]
    fn every_shape_on_any_number_of_threads_is_the_sum_of_products() {
        for (n_rows, len) in [(1, 1), (2, 7), (3, 5), (17, 4), (40, 33)] {
            let weights: Vec<f32> = (0..n_rows * len).map(value).collect();
            let bytes: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
            let decoder = Dequantizer::new(TensorType::F32).unwrap();
            let matrix = Matrix::new(&bytes, len, decoder).unwrap();
            for n in [0, 1, 7, 8, 9, 20] {
                let vector = |v: usize| (0..len).map(|k| f64::from(value(v * 7 + k))).collect();
                let vectors: Vec<Vec<f64>> = (0..n).map(vector).collect();
                let product = |x: &Vec<f64>| {
                    let rows = weights.chunks_exact(len);
                    let dot = |row: &[f32]| {
                        let terms = row.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
                        terms.sum::<f64>()
                    };
                    rows.map(dot).collect::<Vec<f64>>()
                };
                let wanted: Vec<_> = vectors.iter().map(product).collect();
                for threads in [1, 2, 5] {
                    let got = matrix.times(&vectors, threads).unwrap();
                    assert_eq!(
                        got, wanted,
                        "{n_rows} x {len}, {n} vectors, {threads} threads"
                    );
                }
            }
        }
    }
}
