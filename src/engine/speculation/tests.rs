use super::*;
use crate::gguf::{Gguf, TensorType};
use crate::model::testing::TestModel;

/// A speculator over a small model, whose attention costs nothing unless asked.
fn speculator(policy: SpeculationPolicy) -> Speculator {
    let model = TestModel::new("gemma3", TensorType::F32);
    let file = model.write_temporary().expect("a temporary model");
    let gguf = Gguf::open(file.path()).expect("a readable model");
    let spec = crate::model::bind(&gguf).expect("a supported model").spec;
    Speculator::new(policy, &spec, 512)
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
