//! What the engine remembers of the tokens it has seen: their keys and values, a cache a layer,
//! and the tokens themselves, so that a prompt which begins alike is not computed again.

use crate::tokenizer::TokenId;
use emel_kernels::LayerCache;

/// The caches of all layers, in step.
pub(super) struct Memory {
    /// One cache a layer, each with room for `n_ctx` positions.
    pub layers: Vec<LayerCache>,
    tokens: Vec<TokenId>,
    n_ctx: usize,
}

impl Memory {
    /// Empty caches with room for `n_ctx` tokens.
    pub fn new(layers: Vec<LayerCache>, n_ctx: usize) -> Self {
        Self {
            layers,
            tokens: Vec::with_capacity(n_ctx),
            n_ctx,
        }
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

    /// Counts `tokens` as cached: every layer holds their keys and values now.
    pub fn advance(&mut self, tokens: &[TokenId]) {
        self.tokens.extend_from_slice(tokens);
    }

    /// Forgets every token from `n_kept` on. Their keys and values are overwritten by what comes.
    pub fn truncate(&mut self, n_kept: usize) {
        self.tokens.truncate(n_kept);
    }

    /// Bytes the caches take when full.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }
}
