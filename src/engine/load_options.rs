//! What a load is to yield.

use super::speculation::SpeculationPolicy;
use super::{ExecutionPolicy, RoutePolicy};
use crate::gguf::Value;
use crate::model::ModelSpec;
use crate::packed::PackedPlace;
use emel_kernels::CacheType;

/// What a load is to yield.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// Instruction set and lanes.
    pub execution: ExecutionPolicy,
    /// Prefill routes.
    pub routes: RoutePolicy,
    /// Whether and how output is drafted ahead.
    pub speculation: SpeculationPolicy,
    /// Tokens of context; `None` takes what the model was trained for.
    pub n_ctx: Option<usize>,
    /// How keys are cached.
    pub cache_k: CacheType,
    /// How values are cached.
    pub cache_v: CacheType,
    /// Metadata that replaces the file's.
    pub overrides: Vec<(String, Value)>,
    /// The packed copy to use, and to make when it is not there or not usable; `None` packs.
    pub packed: Option<PackedPlace>,
}

impl LoadOptions {
    /// The model's own context, cached in half precision, no overrides, no drafts, no packed copy.
    pub fn new(execution: ExecutionPolicy, routes: RoutePolicy) -> Self {
        Self {
            execution,
            routes,
            speculation: SpeculationPolicy::off(),
            n_ctx: None,
            cache_k: CacheType::default(),
            cache_v: CacheType::default(),
            overrides: Vec::new(),
            packed: None,
        }
    }
}

impl LoadOptions {
    /// Tokens the context will hold.
    pub(super) fn context(&self, spec: &ModelSpec) -> usize {
        self.n_ctx.unwrap_or(spec.n_ctx_train)
    }

    /// Tokens that pass at once, at most.
    pub(super) fn batch(&self, spec: &ModelSpec) -> usize {
        self.routes.n_ubatch.min(self.context(spec))
    }
}
