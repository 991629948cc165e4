//! What the engine remembers of the tokens it has seen: their keys and values, a cache a layer,
//! and the tokens themselves, so that a prompt which begins alike is not computed again. Of what
//! lies behind a layer's sliding window no more is held than the next pass may need.

use super::{EngineError, LoadOptions};
use crate::model::{LayerSpec, ModelSpec};
use crate::tokenizer::TokenId;
use emel_kernels::{Arena, CacheError, CacheShape, Kernels, LayerCache};

/// The cache of each layer that `options` ask for.
pub(super) fn shapes(
    spec: &ModelSpec,
    options: &LoadOptions,
) -> impl Iterator<Item = CacheShape> + Clone {
    let n_ctx = options.context(spec);
    let n_ubatch = options.batch(spec);
    let (type_k, type_v) = (options.cache_k, options.cache_v);
    spec.layers.iter().map(move |layer| CacheShape {
        n_kv_heads: layer.n_head_kv,
        head_dim_k: layer.head_dim_k,
        head_dim_v: layer.head_dim_v,
        n_ctx,
        n_held: held(layer, n_ctx, n_ubatch),
        type_k,
        type_v,
    })
}

/// Positions that a layer needs at once: those that the tokens of a whole batch attend to, which are
/// fewer than its window and the batch.
fn held(layer: &LayerSpec, n_ctx: usize, n_ubatch: usize) -> usize {
    let behind = |window: usize| n_ctx.min(window.saturating_add(n_ubatch));
    layer.window.map_or(n_ctx, behind)
}

/// The caches of all layers, in step.
pub(super) struct Memory {
    /// One cache a layer: for `n_ctx` positions, or with a window for that and a batch.
    pub layers: Vec<LayerCache>,
    tokens: Vec<TokenId>,
    /// The end of the positions that have been stored since the first was.
    stored: usize,
    n_ctx: usize,
}

impl Memory {
    /// Empty caches of every layer, side by side.
    ///
    /// # Errors
    /// [`EngineError::Cache`]: a type that a head does not fit, or no memory.
    pub fn allocate(
        kernels: Kernels,
        spec: &ModelSpec,
        options: &LoadOptions,
    ) -> Result<Self, EngineError> {
        let shapes = shapes(spec, options);
        let bytes = shapes.clone().map(|shape| shape.bytes());
        let total = bytes
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .map(Arena::takes)
            .fold(0, usize::saturating_add);
        let mut arena = Arena::new(total).map_err(CacheError::from)?;
        let layers = shapes.map(|shape| LayerCache::allocate_in(&mut arena, kernels, shape));
        let n_ctx = options.context(spec);
        Ok(Self {
            layers: layers.collect::<Result<Vec<_>, _>>()?,
            stored: 0,
            tokens: Vec::with_capacity(n_ctx),
            n_ctx,
        })
    }

    /// Tokens in the cache: the position of the next one.
    pub fn n_past(&self) -> usize {
        self.tokens.len()
    }

    /// Room for tokens in all.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// The cached tokens, first to last.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Says that the keys and values of the next `n_tokens` positions are about to be stored, and
    /// what is behind every window may go.
    pub fn make_room(&mut self, n_tokens: usize) {
        self.stored = self.stored.max(self.n_past() + n_tokens);
    }

    /// Counts `tokens` as cached: every layer holds their keys and values now.
    pub fn advance(&mut self, tokens: &[TokenId]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// Forgets every token from `n_kept` on. Their keys and values are overwritten by what comes.
    pub fn truncate(&mut self, n_kept: usize) {
        self.tokens.truncate(n_kept);
    }

    /// Forgets every token.
    pub fn clear(&mut self) {
        self.tokens.clear();
        self.stored = 0;
    }

    /// Whether every layer still holds what a token at `position` attends to before itself.
    pub fn holds_windows(&self, layers: &[LayerSpec], position: usize) -> bool {
        let mut pairs = self.layers.iter().zip(layers);
        pairs.all(|(cache, layer)| cache.holds_window(layer.window, position, self.stored))
    }

    /// Bytes the caches take when full.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }
}
