//! Rotary position embeddings: what a file says about them, reduced to one record.
//!
//! Pair `i` of a head (of `n_dims / 2`) turns by `position * base^(-2i / n_dims) * freq_scale /
//! factors[i]` and is scaled by `attn_factor`. Every published scaling scheme (linear, Llama 3,
//! YaRN, LongRoPE) is a choice of these numbers, so nobody past this file knows the schemes.

/// One rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which two values of a head form a pair.
    pub kind: RopeKind,
    /// How many leading values of a head turn; even, at most the head's width.
    pub n_dims: usize,
    /// The base of the frequencies.
    pub base: f32,
    /// Multiplies every frequency.
    pub freq_scale: f32,
    /// Multiplies the rotated values (cosine and sine alike).
    pub attn_factor: f32,
    /// Divides the frequency of each pair; `n_dims / 2` values, all positive and finite.
    pub factors: Option<Vec<f32>>,
    /// Other factors for long contexts.
    pub long: Option<LongFactors>,
}

/// Factors that take the place of [`RopeSpec::factors`] when the context is long (LongRoPE).
#[derive(Clone, Debug, PartialEq)]
pub struct LongFactors {
    /// They apply when the context of a run is longer than this many tokens.
    pub above: usize,
    /// `n_dims / 2` values, all positive and finite.
    pub factors: Vec<f32>,
}

/// Which two values of a head form a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeKind {
    /// Neighbours: `2i` and `2i + 1`.
    Norm,
    /// Halves: `i` and `i + n_dims / 2`.
    Neox,
}

impl From<RopeKind> for emel_kernels::RopePairs {
    fn from(kind: RopeKind) -> Self {
        match kind {
            RopeKind::Norm => emel_kernels::RopePairs::Adjacent,
            RopeKind::Neox => emel_kernels::RopePairs::Halves,
        }
    }
}

impl RopeSpec {
    /// The factors for a run whose context holds `n_ctx` tokens.
    pub fn factors_for(&self, n_ctx: usize) -> Option<&[f32]> {
        match &self.long {
            Some(long) if n_ctx > long.above => Some(&long.factors),
            _ => self.factors.as_deref(),
        }
    }
}
