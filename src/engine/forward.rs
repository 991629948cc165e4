//! One pass of a model: embedding, every layer, and the logits of the last token, or of all.

use super::Engine;
use super::error::EngineError;
use super::{Route, embed, head, layer};
use crate::tokenizer::TokenId;
use emel_kernels::{
    CacheReading, Direct, Repacked, RopeFillJob, Tile, TileT1, TileT4, TileT8, TileWide,
};

/// A way for a batch of tokens to pass: its route's name and the tile of its products.
pub(super) trait Pass {
    /// The route.
    const ROUTE: Route;
    /// How many tokens a product takes at once.
    type Tile: Tile;
    /// How attention reads the cache: a pass with many tokens gains from repacking its blocks.
    type Reading: CacheReading;
}

/// One token.
pub(super) struct Scalar;
/// Four tokens.
pub(super) struct Chunk4;
/// Eight tokens.
pub(super) struct Chunk8;
/// Up to a physical batch of tokens.
pub(super) struct Wide;

impl Pass for Scalar {
    const ROUTE: Route = Route::Scalar;
    type Tile = TileT1;
    type Reading = Direct;
}

impl Pass for Chunk4 {
    const ROUTE: Route = Route::Chunk4;
    type Tile = TileT4;
    type Reading = Direct;
}

impl Pass for Chunk8 {
    const ROUTE: Route = Route::Chunk8;
    type Tile = TileT8;
    type Reading = Repacked;
}

impl Pass for Wide {
    const ROUTE: Route = Route::Wide;
    type Tile = TileWide;
    type Reading = Repacked;
}

/// Computes the rotations of every position below `end` that is still missing.
fn fill_ropes(engine: &mut Engine, end: usize, pool: usize) -> Result<(), EngineError> {
    let mut forker = engine.pools.forker(pool, &engine.execution);
    engine.ropes.iter_mut().try_for_each(|table| {
        let work = (end - table.filled().min(end)) * table.n_rot() * ROPE_WORK;
        forker.run(&mut RopeFillJob::new(table, end), work)
    })
}

/// A sine and a cosine in double precision cost about as much as this many multiply-adds.
const ROPE_WORK: usize = 256;

/// Passes `tokens` through the model on the lanes of `pool`, at the positions after those in the
/// cache, which they then join.
///
/// # Errors
/// What a layer failed with. The cache then still ends where it ended before.
pub(super) fn pass<P: Pass>(
    engine: &mut Engine,
    tokens: &[TokenId],
    pool: usize,
) -> Result<(), EngineError> {
    let end = engine.memory.n_past() + tokens.len();
    fill_ropes(engine, end, pool)?;
    embed::run(engine, tokens)?;
    engine.memory.make_room(tokens.len());
    (0..engine.spec.layers.len())
        .try_for_each(|layer| layer::run::<P>(engine, layer, tokens.len(), pool))?;
    engine.memory.advance(tokens);
    engine.last_row = tokens.len() - 1;
    Ok(())
}

/// Computes the logits of the last token that passed, on the lanes of `pool`.
///
/// # Errors
/// [`EngineError::Lane`] when a lane is lost.
pub(super) fn logits(engine: &mut Engine, pool: usize) -> Result<(), EngineError> {
    let last = engine.last_row;
    head::run::<Scalar>(engine, last..last + 1, pool)
}

/// Passes `tokens` through the model at the positions after those in the cache and computes the
/// logits of every one, on the lanes of `pool`. Only the first token joins the cache: keys and
/// values of the others stand behind its end, to be counted in when their turn comes, or
/// overwritten.
///
/// # Errors
/// What a layer or the head failed with.
pub(super) fn verify<P: Pass>(
    engine: &mut Engine,
    tokens: &[TokenId],
    pool: usize,
) -> Result<(), EngineError> {
    let n_past = engine.memory.n_past();
    pass::<P>(engine, tokens, pool)?;
    let result = head::run::<P>(engine, 0..tokens.len(), pool);
    engine.memory.truncate(n_past + 1);
    result
}
