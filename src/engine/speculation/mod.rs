//! Drafts without a draft model: what is likely to come is what followed the same tokens before.
//!
//! The last n tokens are looked for in the prompt and the output so far, longest n first; what
//! followed their latest earlier occurrence is the draft, going round when it reaches the end, so
//! that a repetition is continued for as long as wanted. One pass verifies a draft (see
//! [`advance`](super::advance)), and since every route gives the same bits, output does not depend
//! on drafts; only speed does.
//!
//! Whether drafting pays is counted, never timed. A pass over several tokens costs so many plain
//! steps ([`VerifyCosts`]) and yields at least one token; the difference goes to an account. Plain
//! steps earn a small allowance, and a draft must be affordable even if all of it is wrong:
//!
//! ```text
//! balance  = credit, and with each plain step + allowance, with each draft + tokens - cost
//! a draft may be verified while  balance + 1 >= cost
//! ```
//!
//! So the account never runs dry, and as long as the costs are true, a text of N tokens takes no
//! longer than N * (1 + allowance) + credit plain steps. What follows a bad draft is patience: it
//! takes longer evidence (n grows) and a growing number of plain steps before the next, which is
//! short. Drafts that are accepted whole get longer.

mod speculator;
mod work;

pub(super) use speculator::Speculator;
pub(super) use work::Work;

/// Whether and how output is drafted ahead. No result depends on it, only speed does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeculationPolicy {
    /// Most tokens of a draft; 0 drafts nothing.
    pub draft_max: usize,
    /// Fewest tokens of a draft.
    pub draft_min: usize,
    /// The longest run of tokens that is looked for.
    pub ngram_max: usize,
    /// The shortest; at least 1.
    pub ngram_min: usize,
    /// What verifying costs.
    pub costs: VerifyCosts,
    /// What bad drafts may cost at first, in plain steps.
    pub credit: f64,
    /// What each plain step adds to that.
    pub allowance: f64,
    /// The most that may be saved up.
    pub credit_max: f64,
    /// The most plain steps between a bad draft and the next.
    pub rest_max: usize,
}

/// What a pass that verifies a draft costs, in plain steps of the model at a short context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VerifyCosts {
    /// Four tokens on the chunk4 route.
    pub chunk4: f64,
    /// Eight tokens on the chunk8 route.
    pub chunk8: f64,
    /// The wide route, before the first token.
    pub wide: f64,
    /// Each token of the wide route.
    pub wide_token: f64,
    /// A multiply-add of attention, in multiply-adds of a plain step's weights. Attention is paid
    /// by every token apart, so drafts gain less the longer the context is.
    pub attention: f64,
}

impl SpeculationPolicy {
    /// No drafts.
    pub fn off() -> Self {
        Self {
            draft_max: 0,
            ..Self::default()
        }
    }
}

/// Drafts of up to 16 tokens. Costs are the high end of what was measured on small models
/// (SmolLM2 135M Q4_1, Gemma 3 270M Q4_K_M; AVX-512): four tokens cost 1.2 to 1.5 steps, eight 1.3
/// to 2.4, 32 on the wide route 4 to 8.6, more the faster memory is. Larger models lie at the low
/// end, since more of a plain step is spent on reading weights, which a pass reads once. Costs that
/// are too high make drafting hesitate; only costs that are too low could make it lose.
impl Default for SpeculationPolicy {
    fn default() -> Self {
        Self {
            draft_max: 16,
            draft_min: 0,
            ngram_max: 4,
            ngram_min: 2,
            costs: VerifyCosts {
                chunk4: 1.5,
                chunk8: 2.4,
                wide: 1.2,
                wide_token: 0.24,
                attention: 0.25,
            },
            credit: 1.25,
            allowance: 0.01,
            credit_max: 10.0,
            rest_max: 64,
        }
    }
}
