//! The draft at hand, and the account of what drafts have cost and yielded.

use super::super::counters::DraftCounts;
use super::{SpeculationPolicy, Work};
use crate::tokenizer::TokenId;

/// Drafted tokens that make the shortest ordinary pass, with the pending token before them.
const SHORTEST: usize = 3;

/// The draft at hand, and whether drafting pays.
pub(in super::super) struct Speculator {
    policy: SpeculationPolicy,
    /// What a token costs.
    work: Work,
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

impl Speculator {
    /// Nothing drafted yet. Passes hold up to `n_ubatch` tokens.
    pub fn new(policy: SpeculationPolicy, work: Work, n_ubatch: usize) -> Self {
        let n_rows = policy.draft_max.saturating_add(1).min(n_ubatch);
        let mut speculator = Self {
            policy: SpeculationPolicy {
                ngram_min: policy.ngram_min.max(1),
                ngram_max: policy.ngram_max.max(policy.ngram_min).max(1),
                ..policy
            },
            work,
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
        let share = self.work.attention_share(depth);
        let attention = self.policy.costs.attention * share;
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
mod tests {
    use super::super::VerifyCosts;
    use super::*;

    /// A speculator over two layers, one of them with a short window.
    fn speculator(policy: SpeculationPolicy) -> Speculator {
        let work = Work {
            weights: 1e6,
            attention: vec![(20, 1e3), (usize::MAX, 1e3)],
        };
        Speculator::new(policy, work, 512)
    }

    fn simple() -> SpeculationPolicy {
        SpeculationPolicy {
            costs: VerifyCosts {
                chunk4: 1.5,
                chunk8: 2.5,
                wide: 1.0,
                wide_token: 0.25,
                attention: 0.0,
            },
            ..SpeculationPolicy::default()
        }
    }

    /// Looks as the machine does, from the longest run to the shortest that counts.
    fn search(speculator: &mut Speculator, cached: &[TokenId], pending: TokenId) -> bool {
        speculator.look(cached, pending);
        while !speculator.has_found() && speculator.may_shorten() {
            speculator.shorten(cached, pending);
        }
        speculator.has_found()
    }

    /// The draft after `text`, whose last token is pending.
    fn drafted(text: &[TokenId], draft: usize) -> Option<Vec<TokenId>> {
        let mut speculator = speculator(simple());
        let (pending, cached) = text.split_last()?;
        search(&mut speculator, cached, *pending)
            .then(|| speculator.draft(cached, *pending, draft, 1.0)[1..].to_vec())
    }

    /// Verifies a draft of `draft` tokens of which `right` turn out right, and settles it.
    fn verify(speculator: &mut Speculator, draft: usize, right: usize, cost: f64) {
        speculator.look(&[1, 1, 1, 1, 1], 1);
        let tokens = speculator.draft(&[1, 1, 1, 1, 1], 1, draft, cost);
        speculator.verified(tokens);
        for row in 1..=right {
            assert!(speculator.foresaw(1) && speculator.is_outstanding());
            assert_eq!(speculator.accept(), row);
        }
        assert!(!speculator.foresaw(2));
        assert_eq!(speculator.was_right(), right == draft);
        match (speculator.has_paid(), speculator.was_right()) {
            (true, true) => speculator.lengthen(),
            (true, false) => speculator.follow(),
            (false, _) => speculator.back_off(),
        }
        assert!(!speculator.is_outstanding());
    }

    #[test]
    fn a_draft_is_what_followed_the_longest_latest_occurrence() {
        // The pair 1 2 was followed by 3, lately by 5; after 9 it was followed by 3.
        let draft = |text: &[TokenId]| drafted(text, 3);
        assert_eq!(
            draft(&[9, 1, 2, 3, 4, 8, 1, 2, 5, 6, 7, 0, 1, 2]),
            Some(vec![5, 6, 7])
        );
        assert_eq!(
            draft(&[9, 1, 2, 3, 4, 8, 1, 2, 5, 6, 9, 1, 2]),
            Some(vec![3, 4, 8])
        );
        assert_eq!(draft(&[1, 2, 3, 1, 2, 4, 3, 1, 2]), Some(vec![4, 3, 1]));
        assert_eq!(draft(&[1, 2, 3, 4, 5]), None);
        assert_eq!(
            draft(&[1, 2, 3, 4, 2]),
            None,
            "a single token is no evidence"
        );
        assert_eq!(draft(&[7]), None);
        assert_eq!(draft(&[7, 7]), None);
    }

    #[test]
    fn a_repetition_is_continued_round_and_round() {
        assert_eq!(drafted(&[4, 4, 4], 5), Some(vec![4; 5]));
        assert_eq!(
            drafted(&[8, 1, 2, 3, 1, 2], 7),
            Some(vec![3, 1, 2, 3, 1, 2, 3])
        );
        assert_eq!(drafted(&[1, 2, 1, 2, 1, 2], 3), Some(vec![1, 2, 1]));
    }

    #[test]
    fn right_drafts_get_longer_up_to_the_most() {
        let mut s = speculator(simple());
        assert_eq!(s.drafted(99), 3);
        verify(&mut s, 3, 3, 1.5);
        assert_eq!(s.drafted(99), 7);
        verify(&mut s, 7, 7, 2.5);
        assert_eq!(s.drafted(99), 15);
        verify(&mut s, 15, 15, 5.0);
        assert_eq!((s.drafted(99), s.drafted(5)), (16, 5));
        verify(&mut s, 7, 5, 2.5);
        assert_eq!(s.drafted(99), 5, "as many as were right");
        let counts = s.counts();
        assert_eq!(
            (counts.passes, counts.drafted, counts.accepted),
            (4, 32, 30)
        );
        s.begin();
        assert_eq!(s.drafted(99), 3, "another text begins anew");
        assert_eq!(s.counts(), counts);
    }

    #[test]
    fn the_route_is_the_one_that_costs_least_a_token() {
        let mut s = speculator(SpeculationPolicy {
            draft_max: 40,
            ..simple()
        });
        let wants = |s: &Speculator, room| {
            [
                s.wants_wide(room, 0),
                s.wants_eight(room, 0),
                s.wants_four(room, 0),
                s.wants_some(room, 0),
            ]
        };
        assert_eq!(wants(&s, 99), [false, false, true, true]);
        assert_eq!(
            wants(&s, 1),
            [false, false, false, true],
            "wide, of two tokens"
        );
        assert_eq!(wants(&s, 0), [false; 4]);
        verify(&mut s, 3, 3, 1.5);
        assert_eq!(wants(&s, 99), [false, true, true, true]);
        verify(&mut s, 7, 7, 2.5);
        verify(&mut s, 7, 7, 2.5);
        // 32 tokens on the wide route cost 9, a little less than in eights.
        assert_eq!(wants(&s, 31)[..2], [true, true]);
        assert_eq!(wants(&s, 15)[..2], [false, true]);
    }

    #[test]
    fn bad_drafts_are_followed_by_patience() {
        let mut s = speculator(SpeculationPolicy {
            credit: 99.0,
            credit_max: 99.0,
            ..simple()
        });
        let repeats = [1, 2, 5, 6, 1];
        assert!(search(&mut s, &repeats, 2), "two tokens are evidence");
        for rest in [1, 3, 7, 15, 31, 63, 64, 64] {
            verify(&mut s, 3, 0, 1.5);
            assert!(
                !search(&mut s, &repeats, 2),
                "two tokens are not, after a bad draft"
            );
            for _ in 0..rest {
                assert!(s.is_resting());
                s.step();
            }
            assert!(!s.is_resting());
        }
        verify(&mut s, 3, 3, 1.5);
        assert!(
            !s.is_resting() && search(&mut s, &repeats, 2),
            "one good draft clears it"
        );
    }

    #[test]
    fn bad_drafts_never_cost_more_than_credit_and_allowance() {
        let policy = simple();
        let mut s = speculator(policy);
        let (mut tokens, mut spent) = (0.0, 0.0);
        for _ in 0..5000 {
            let draft = !s.is_resting() && !s.is_poor(0) && s.wants_four(9, 0);
            if draft {
                verify(&mut s, 3, 0, 1.5);
                spent += 1.5;
            } else {
                s.step();
                spent += 1.0;
            }
            tokens += 1.0;
            let bound = tokens * (1.0 + policy.allowance) + policy.credit;
            assert!(spent <= bound, "{spent} for {tokens} tokens");
        }
        assert!(s.counts().passes > 10, "it goes on trying");
    }

    #[test]
    fn attention_is_paid_by_every_token() {
        let s = speculator(SpeculationPolicy {
            costs: VerifyCosts {
                attention: 1.0,
                ..simple().costs
            },
            ..simple()
        });
        assert!((s.relative(1.5, 4, 0) - 1.5).abs() < 1e-12);
        let [short, long, longer] = [10, 1000, 100_000].map(|depth| s.relative(1.5, 4, depth));
        assert!(1.5 < short && short < long && long < longer && longer < 4.0);
        assert!(
            longer > 3.9,
            "where attention is all, four tokens cost as much as four steps"
        );
        assert!(!s.wants_four(9, 100_000));
    }

    #[test]
    fn a_policy_without_drafts_asks_for_nothing() {
        let s = speculator(SpeculationPolicy::off());
        assert!(s.is_off() && s.n_rows() == 1 && !s.is_outstanding());
        let least = speculator(SpeculationPolicy {
            draft_min: 4,
            ..simple()
        });
        assert!(!least.wants_four(99, 0) && least.wants_some(99, 0));
        assert!(!least.wants_some(3, 0), "no room for the least");
    }
}
