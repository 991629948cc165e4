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

use super::counters::DraftCounts;
use crate::model::{LayerSpec, ModelSpec};
use crate::tokenizer::TokenId;

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

/// Drafts of up to 16 tokens, with costs measured on small models, which gain least: the larger
/// the model, the more a plain step is spent on reading weights that a pass reads once.
impl Default for SpeculationPolicy {
    fn default() -> Self {
        Self {
            draft_max: 16,
            draft_min: 0,
            ngram_max: 4,
            ngram_min: 2,
            costs: VerifyCosts {
                chunk4: 1.6,
                chunk8: 2.6,
                wide: 1.0,
                wide_token: 0.25,
                attention: 1.0,
            },
            credit: 1.25,
            allowance: 0.01,
            credit_max: 8.0,
            rest_max: 64,
        }
    }
}

/// Drafted tokens that make the shortest ordinary pass, with the pending token before them.
const SHORTEST: usize = 3;

/// The draft at hand, and whether drafting pays.
pub(super) struct Speculator {
    policy: SpeculationPolicy,
    /// Multiply-adds of a token with all weights.
    weights: f64,
    /// Window of each layer, and multiply-adds of a token's attention with one position.
    attention: Vec<(usize, f64)>,
    /// The most tokens of a pass.
    n_rows: usize,
    /// The tokens whose logits the last pass left, row by row: the one that was pending then, and
    /// its draft. Empty when there is none.
    tokens: Vec<TokenId>,
    /// The first of them that is not known to be right; the ones before were.
    next: usize,
    /// What the pass cost, in plain steps.
    cost: f64,
    /// How many tokens are looked for.
    ngram: usize,
    /// Where in the cached tokens the ones after their latest occurrence begin.
    found: Option<usize>,
    /// The longest draft to try.
    reach: usize,
    /// Bad drafts in a row.
    misses: usize,
    /// Plain steps before the next draft.
    rest: usize,
    balance: f64,
    counts: DraftCounts,
}

/// Multiply-adds of one layer's weights for one token.
fn layer_weights(spec: &LayerSpec, d_model: usize) -> usize {
    let attention = spec.q_dim() + spec.k_dim() + spec.v_dim() + spec.o_dim();
    d_model * (attention + 3 * spec.d_ff)
}

impl Speculator {
    /// Nothing drafted yet. Passes hold up to `n_ubatch` tokens.
    pub fn new(policy: SpeculationPolicy, spec: &ModelSpec, n_ubatch: usize) -> Self {
        let n_rows = policy.draft_max.saturating_add(1).min(n_ubatch);
        let layers = spec.layers.iter();
        let weights: usize = layers.map(|layer| layer_weights(layer, spec.d_model)).sum();
        let attention = spec.layers.iter().map(|layer| {
            let work = layer.n_head * (layer.head_dim_k + layer.head_dim_v);
            (layer.window.unwrap_or(usize::MAX), work as f64)
        });
        let mut speculator = Self {
            policy: SpeculationPolicy {
                ngram_min: policy.ngram_min.max(1),
                ngram_max: policy.ngram_max.max(policy.ngram_min).max(1),
                ..policy
            },
            weights: (weights + spec.d_model * spec.n_vocab) as f64,
            attention: attention.collect(),
            n_rows,
            tokens: Vec::with_capacity(n_rows),
            next: 0,
            cost: 0.0,
            ngram: 0,
            found: None,
            reach: 0,
            misses: 0,
            rest: 0,
            balance: 0.0,
            counts: DraftCounts::default(),
        };
        speculator.begin();
        speculator
    }

    /// The most tokens whose logits one pass computes.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// What was drafted since the engine was loaded.
    pub fn counts(&self) -> DraftCounts {
        self.counts
    }

    /// Forgets the draft and what was learnt: another text begins.
    pub fn begin(&mut self) {
        self.tokens.clear();
        self.next = 0;
        self.reach = self.shortest();
        self.misses = 0;
        self.rest = 0;
        self.balance = self.policy.credit;
    }

    fn shortest(&self) -> usize {
        SHORTEST.max(self.policy.draft_min)
    }

    // What guards ask.

    /// Nothing is ever drafted.
    pub fn is_off(&self) -> bool {
        self.n_rows < 2
    }

    /// A draft has been verified and not been settled yet.
    pub fn is_outstanding(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// `pending` is what the draft has next, so its logits are there.
    pub fn foresaw(&self, pending: TokenId) -> bool {
        self.tokens.get(self.next) == Some(&pending)
    }

    /// Every token of the draft was right.
    pub fn was_right(&self) -> bool {
        self.next == self.tokens.len()
    }

    /// The draft has yielded what its pass cost.
    pub fn has_paid(&self) -> bool {
        self.next as f64 >= self.cost
    }

    /// Plain steps must pass before the next draft.
    pub fn is_resting(&self) -> bool {
        self.rest > 0
    }

    /// Not even the cheapest pass is affordable.
    pub fn is_poor(&self, depth: usize) -> bool {
        let costs = &self.policy.costs;
        let cheapest = costs.chunk4.min(costs.chunk8).min(self.wide(2));
        !self.affords(cheapest, 2, depth)
    }

    /// The run of tokens was found.
    pub fn has_found(&self) -> bool {
        self.found.is_some()
    }

    /// A shorter run may be looked for. After bad drafts only longer ones count.
    pub fn may_shorten(&self) -> bool {
        let policy = &self.policy;
        self.ngram > policy.ngram_max.min(policy.ngram_min + self.misses)
    }

    /// `draft` tokens are wanted and affordable on the wide route, and cheaper there than on the
    /// chunk8 route.
    pub fn wants_wide(&self, room: usize, depth: usize) -> bool {
        let draft = self.drafted(room);
        let rows = draft + 1;
        rows > 8
            && self.wide(rows) * 8.0 < self.policy.costs.chunk8 * rows as f64
            && self.allows(draft, self.wide(rows), depth)
    }

    /// Seven tokens are wanted and affordable on the chunk8 route.
    pub fn wants_eight(&self, room: usize, depth: usize) -> bool {
        self.drafted(room) >= 7 && self.allows(7, self.policy.costs.chunk8, depth)
    }

    /// Three tokens are wanted and affordable on the chunk4 route.
    pub fn wants_four(&self, room: usize, depth: usize) -> bool {
        self.drafted(room) >= 3 && self.allows(3, self.policy.costs.chunk4, depth)
    }

    /// Some other number is, on the wide route, and may yield more than it costs.
    pub fn wants_some(&self, room: usize, depth: usize) -> bool {
        let draft = self.drafted(room);
        let rows = draft + 1;
        draft > 0 && self.wide(rows) < rows as f64 && self.allows(draft, self.wide(rows), depth)
    }

    fn allows(&self, draft: usize, cost: f64, depth: usize) -> bool {
        draft >= self.policy.draft_min && self.affords(cost, draft + 1, depth)
    }

    /// The account stays in credit even if the pass yields but the one token.
    fn affords(&self, cost: f64, rows: usize, depth: usize) -> bool {
        self.balance + 1.0 >= self.relative(cost, rows, depth)
    }

    // What actions compute.

    /// The cost of a wide pass at a short context.
    fn wide(&self, rows: usize) -> f64 {
        self.policy.costs.wide + self.policy.costs.wide_token * rows as f64
    }

    /// What a pass of `rows` tokens that costs `cost` at a short context costs with `depth` cached
    /// positions, in plain steps there.
    fn relative(&self, cost: f64, rows: usize, depth: usize) -> f64 {
        let layers = self.attention.iter();
        let work: f64 = layers
            .map(|&(window, work)| window.min(depth) as f64 * work)
            .sum();
        let attention = self.policy.costs.attention * work / self.weights;
        (cost + attention * rows as f64) / (1.0 + attention)
    }

    /// How many tokens to draft where there is room for so many.
    pub fn drafted(&self, room: usize) -> usize {
        self.reach.min(room).min(self.n_rows - 1)
    }

    /// Begins to look for the longest run.
    pub fn look(&mut self, cached: &[TokenId], pending: TokenId) {
        self.ngram = self.policy.ngram_max;
        self.found = latest(cached, pending, self.ngram);
    }

    /// Looks for a run that is shorter by one.
    pub fn shorten(&mut self, cached: &[TokenId], pending: TokenId) {
        self.ngram -= 1;
        self.found = latest(cached, pending, self.ngram);
    }

    /// Drafts `draft` tokens after `pending` and hands them out with it, for a pass of `cost`.
    pub fn draft(
        &mut self,
        cached: &[TokenId],
        pending: TokenId,
        draft: usize,
        cost: f64,
    ) -> Vec<TokenId> {
        let followed = cached[self.found.unwrap_or_default()..].iter().copied();
        let followed = followed.chain(std::iter::once(pending)).cycle();
        self.tokens.clear();
        self.tokens.push(pending);
        self.tokens.extend(followed.take(draft));
        self.next = 1;
        self.cost = self.relative(cost, draft + 1, cached.len());
        std::mem::take(&mut self.tokens)
    }

    /// What the routes cost.
    pub fn costs(&self) -> [f64; 2] {
        [self.policy.costs.chunk4, self.policy.costs.chunk8]
    }

    /// The cost of a wide pass of as many tokens as are to be drafted.
    pub fn wide_cost(&self, room: usize) -> f64 {
        self.wide(self.drafted(room) + 1)
    }

    /// Takes back what [`draft`](Self::draft) handed out, verified.
    pub fn verified(&mut self, tokens: Vec<TokenId>) {
        self.tokens = tokens;
        self.counts.passes += 1;
        self.counts.drafted += self.tokens.len() as u64 - 1;
    }

    /// Counts a drafted token as right and returns the row of its logits.
    pub fn accept(&mut self) -> usize {
        let row = self.next;
        self.next += 1;
        self.counts.accepted += 1;
        row
    }

    /// Books what the draft yielded and forgets it.
    fn settle(&mut self) {
        self.earn(self.next as f64 - self.cost);
        self.tokens.clear();
    }

    fn earn(&mut self, steps: f64) {
        self.balance = (self.balance + steps).min(self.policy.credit_max);
    }

    /// Settles a draft that was right: the next may be longer.
    pub fn lengthen(&mut self) {
        let longest = self.policy.draft_max.max(self.shortest());
        self.reach = (2 * self.reach + 1).min(longest);
        self.misses = 0;
        self.settle();
    }

    /// Settles a draft that paid and was too long: the next has as many tokens as were right.
    pub fn follow(&mut self) {
        self.reach = (self.next - 1).max(self.shortest());
        self.misses = 0;
        self.settle();
    }

    /// Settles a draft that did not pay: the next is short, late, and on longer evidence.
    pub fn back_off(&mut self) {
        self.reach = self.shortest();
        self.misses += 1;
        self.rest = ((1 << self.misses.min(16)) - 1).min(self.policy.rest_max);
        self.settle();
    }

    /// Counts a plain step.
    pub fn step(&mut self) {
        self.rest = self.rest.saturating_sub(1);
        self.earn(self.policy.allowance);
    }
}

/// Where in `cached` the tokens begin that followed the latest earlier occurrence of the last
/// `ngram` tokens, `pending` being the very last.
fn latest(cached: &[TokenId], pending: TokenId, ngram: usize) -> Option<usize> {
    let before = ngram - 1;
    let last = &cached[cached.len().saturating_sub(before)..];
    (ngram..=cached.len())
        .rev()
        .find(|&end| cached[end - 1] == pending && cached[end - ngram..end - 1] == *last)
}

#[cfg(test)]
mod tests;
