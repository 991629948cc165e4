//! Why two streams part: the rules, in the order in which they are tried. docs/compare.md has them
//! in words.

use super::report::{Cause, Defect, Finding, Split, View};
use super::show::number::{short, signed};
use super::trail;

/// The cause of a split between EMEL (`a`) and one configuration of a reference.
///
/// 1. `numeric_defect`: a tensor at which one of them leaves exact arithmetic and the other does
///    not.
/// 2. `near_tie`: both gaps are at most the spread of the reference's own configurations there, or
///    exact arithmetic's is and both are at most twice that.
/// 3. `reference_spread`: the reference's configurations choose different tokens there.
/// 4. `unknown`.
pub fn of_split(split: &Split, label: &str, emel: &str, defect: Option<&Defect>) -> Finding {
    let view = |label: &str| split.views.iter().find(|view| view.label == label);
    let (Some(own), Some(other)) = (view(emel), view(label)) else {
        return Finding {
            cause: Cause::Unknown,
            engine: None,
            tensor: None,
            evidence: vec!["the position was not replayed".to_owned()],
        };
    };
    let mut evidence = Vec::new();
    if let Some(defect) = defect {
        let tensor = trail::name(defect.layer, &defect.point);
        evidence.push(format!(
            "{} leaves exact arithmetic at {tensor}: relative error {:.1e}, the other engine's {:.1e}",
            defect.engine, defect.error, defect.other_error
        ));
        evidence.extend(oracle(split));
        return Finding {
            cause: Cause::NumericDefect,
            engine: Some(defect.engine.clone()),
            tensor: Some(tensor),
            evidence,
        };
    }
    let of_reference = |view: &&View| view.backend == split.backend;
    let references: Vec<&View> = split.views.iter().filter(of_reference).collect();
    let gaps = [own.margin, -other.margin];
    let choosers = references.iter().filter(|view| view.top.id == split.a.id);
    let (choosers, all) = (choosers.count(), references.len());
    let first = references.first().map(|view| view.top.id);
    let undecided = references.iter().any(|view| Some(view.top.id) != first);
    if choosers > 0 {
        evidence.push(format!(
            "{choosers} of {all} configurations of the reference choose {emel}'s token here"
        ));
    } else if undecided {
        evidence.push(format!(
            "the reference's {all} configurations do not agree on a token here"
        ));
    }
    let are_within = |bound: f64| gaps.iter().all(|gap| gap.abs() <= bound);
    let is_exactly_within = |bound: f64| {
        let exact = split.oracle.as_ref();
        exact.is_some_and(|oracle| oracle.margin.abs() <= bound) && are_within(2.0 * bound)
    };
    let (of_spread, is_tie) = match split.spread {
        None => (
            "and no spread to judge them by: the reference ran in one configuration".to_owned(),
            false,
        ),
        Some(spread) if are_within(spread) => (
            format!("within the reference's own spread of {}", short(spread)),
            true,
        ),
        Some(spread) if is_exactly_within(spread) => (
            format!(
                "within twice the reference's own spread of {}, and exact arithmetic's within it",
                short(spread)
            ),
            true,
        ),
        Some(spread) => (
            format!("outside the reference's own spread of {}", short(spread)),
            false,
        ),
    };
    let of_gaps = format!(
        "gaps of {} and {} logits, {of_spread}",
        short(gaps[0]),
        short(gaps[1])
    );
    evidence.insert(0, of_gaps);
    let cause = match (is_tie, undecided) {
        (true, _) => Cause::NearTie,
        (false, true) => Cause::ReferenceSpread,
        (false, false) => Cause::Unknown,
    };
    evidence.extend(oracle(split));
    Finding {
        cause,
        engine: None,
        tensor: None,
        evidence,
    }
}

/// What exact arithmetic says.
fn oracle(split: &Split) -> Option<String> {
    let oracle = split.oracle.as_ref()?;
    let whose = match oracle.top.id {
        id if id == split.a.id => "the first's token",
        id if id == split.b.id => "the second's token",
        _ => "neither token",
    };
    Some(format!(
        "exact arithmetic chooses {whose}; its margin between the two is {} logits",
        signed(oracle.margin)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::report::Piece;
    use super::*;

    fn piece(id: u32) -> Piece {
        Piece { id, text: None }
    }

    fn view(label: &str, margin: f64) -> View {
        View {
            label: label.to_owned(),
            backend: if label.starts_with('r') { "r" } else { label }.to_owned(),
            top: piece(if margin >= 0.0 { 1 } else { 2 }),
            logit_a: 10.0 + margin,
            logit_b: 10.0,
            margin,
            probability_margin: margin / 10.0,
            kl_to_oracle: None,
        }
    }

    fn split(emel: f64, references: &[f64], oracle: Option<f64>) -> Split {
        let mut views = vec![view("emel", emel)];
        let names = ["r0", "r1", "r2", "r3"].iter();
        views.extend(
            names
                .zip(references)
                .map(|(name, &margin)| view(name, margin)),
        );
        let of = |pick: fn(f64, f64) -> f64| references.iter().copied().reduce(pick);
        let spread = of(f64::max).zip(of(f64::min)).map(|(max, min)| max - min);
        Split {
            index: 3,
            a: piece(1),
            b: piece(2),
            parting: vec!["r0".to_owned()],
            backend: "r".to_owned(),
            views,
            oracle: oracle.map(|margin| view("oracle", margin)),
            spread: spread.filter(|_| references.len() > 1),
        }
    }

    #[test]
    fn gaps_within_the_spread_are_near_ties() {
        let found = of_split(&split(0.02, &[-0.03, -0.1], Some(0.01)), "r0", "emel", None);
        assert_eq!(found.cause, Cause::NearTie);
        assert!(found.evidence[0].contains("0.0700"), "{:?}", found.evidence);
        assert!(found.evidence.last().unwrap().contains("the first's token"));
    }

    #[test]
    fn a_tie_of_exact_arithmetic_within_the_spread_is_one() {
        let near = split(0.109, &[-0.094, -0.001], Some(0.032));
        let found = of_split(&near, "r0", "emel", None);
        assert_eq!(found.cause, Cause::NearTie);
        assert!(found.evidence[0].contains("exact arithmetic's within it"));
        // Exact arithmetic decides, or is not asked, or an engine lies too far from it.
        for (emel, oracle) in [(0.109, Some(0.2)), (0.109, None), (0.3, Some(0.032))] {
            let split = split(emel, &[-0.094, -0.001], oracle);
            assert_eq!(of_split(&split, "r0", "emel", None).cause, Cause::Unknown);
        }
        let alone = split(0.109, &[-0.094], Some(0.032));
        assert_eq!(of_split(&alone, "r0", "emel", None).cause, Cause::Unknown);
    }

    #[test]
    fn a_reference_that_disagrees_with_itself_is_its_own_spread() {
        let found = of_split(&split(5.0, &[-0.3, 0.1], None), "r0", "emel", None);
        assert_eq!(found.cause, Cause::ReferenceSpread);
        assert!(found.evidence.iter().any(|line| line.contains("1 of 2")));
    }

    #[test]
    fn a_wide_gap_among_equals_is_unknown_and_so_is_one_without_spread() {
        let found = of_split(&split(0.5, &[-0.5, -0.51], None), "r0", "emel", None);
        assert_eq!(found.cause, Cause::Unknown);
        let found = of_split(&split(0.5, &[-0.5], None), "r0", "emel", None);
        assert_eq!(found.cause, Cause::Unknown);
        assert!(found.evidence[0].contains("one configuration"));
        let found = of_split(&split(0.5, &[-0.5], None), "nobody", "emel", None);
        assert_eq!(found.cause, Cause::Unknown);
    }

    #[test]
    fn a_defect_goes_before_everything() {
        let defect = Defect {
            engine: "r0".to_owned(),
            layer: Some(4),
            point: "k".to_owned(),
            error: 1.4,
            other_error: 0.01,
        };
        let found = of_split(
            &split(0.01, &[-0.01, 0.5], None),
            "r0",
            "emel",
            Some(&defect),
        );
        assert_eq!(found.cause, Cause::NumericDefect);
        assert_eq!(found.engine.as_deref(), Some("r0"));
        assert_eq!(found.tensor.as_deref(), Some("layer 4 k"));
    }
}
