//! Everybody over one stream: EMEL, the reference, and the reference's other configurations, each
//! fed the same tokens; so that what comes after a split is comparable, too.

use std::time::Duration;

use super::agreement::{Apart, Rows, agreement};
use super::case::Case;
use super::error::CompareError;
use super::forcing::{Stream, Told, force};
use super::judge::Judgement;
use super::report::{Piece, Position, Replayed, Split, View};
use super::scratch::{RowStore, Scratch};
use super::stages::Stages;
use crate::bench::backend::Contender;
use crate::oracle::compare::top;

/// A place at which free runs part, before anybody was heard on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parting {
    /// The generated token, from 0.
    pub index: usize,
    /// EMEL's choice.
    pub a: Piece,
    /// The other's.
    pub b: Piece,
    /// The backend of those who part here.
    pub backend: String,
    /// Their labels.
    pub labels: Vec<String>,
}

/// What is to be replayed.
pub struct Plan<'a> {
    /// What every engine was asked.
    pub case: &'a Case,
    /// The stream.
    pub stream: &'a Stream,
    /// Where free runs part, on this stream.
    pub partings: &'a [Parting],
    /// The position whose tensors are wanted, and the label of the engine to set beside EMEL.
    pub tensors: Option<(usize, &'a str)>,
    /// The longest wait for an answer.
    pub timeout: Duration,
    /// Where logits are kept meanwhile.
    pub scratch: &'a Scratch,
    /// Progress and Ctrl-C.
    pub stages: &'a Stages,
}

/// What was found.
pub struct Found {
    /// Everybody, in the order given.
    pub engines: Vec<Replayed>,
    /// EMEL against the first reference.
    pub trail: Vec<Position>,
    /// Everybody at each parting.
    pub splits: Vec<Split>,
    /// EMEL's tensors, and those of the engine beside it.
    pub told: [Vec<Told>; 2],
}

/// Logits of somebody over the whole stream, to compare others with.
struct Kept<'a> {
    scratch: &'a Scratch,
    name: &'static str,
    rows: Option<RowStore<f32>>,
}

impl<'a> Kept<'a> {
    fn new(scratch: &'a Scratch, name: &'static str) -> Self {
        let rows = None;
        Kept {
            scratch,
            name,
            rows,
        }
    }

    /// Keeps the next positions' logits.
    fn push(&mut self, n_vocab: usize, rows: &[f32]) -> Result<(), CompareError> {
        let store = match self.rows.take() {
            Some(store) => store,
            None => RowStore::create(self.scratch.file(self.name), n_vocab)?,
        };
        Ok(self.rows.insert(store).push(rows)?)
    }

    /// How far others' logits, from `position` on, lie from these; nothing where these end early.
    fn compare(
        &mut self,
        position: usize,
        n_vocab: usize,
        rows: &[f32],
    ) -> Result<Vec<Apart>, CompareError> {
        let count = rows.len() / n_vocab.max(1);
        let Some(store) = self
            .rows
            .as_mut()
            .filter(|own| own.count() >= position + count)
        else {
            return Ok(Vec::new());
        };
        let own: Vec<f64> = store
            .rows(position, count)?
            .into_iter()
            .map(f64::from)
            .collect();
        if own.len() != rows.len() {
            return Err(CompareError::Misfit {
                name: "an engine".to_owned(),
                what: format!(
                    "logits of {n_vocab} tokens where others give {}",
                    own.len() / count.max(1)
                ),
            });
        }
        let pairs = own.chunks_exact(n_vocab).zip(rows.chunks_exact(n_vocab));
        Ok(Apart::of_all(&pairs.collect::<Vec<Rows<'_>>>()))
    }
}

/// One engine's way over the stream.
struct Way<'a> {
    label: String,
    backend: String,
    to_emel: Vec<Apart>,
    to_reference: Vec<Apart>,
    to_oracle: Vec<Apart>,
    /// At each parting, once it has come there.
    views: Vec<Option<View>>,
    partings: &'a [Parting],
}

impl Way<'_> {
    /// Takes one position's logits.
    fn see(&mut self, position: usize, row: &[f32], exact: Option<&[f64]>) {
        let apart = exact.map(|exact| Apart::of((exact, row)));
        self.to_oracle.extend(apart);
        for (parting, view) in self.partings.iter().zip(&mut self.views) {
            if parting.index == position {
                let row: Vec<f64> = row.iter().copied().map(f64::from).collect();
                let seen = view_of(&self.label, &self.backend, parting, &row);
                let kl_to_oracle = apart.map(|apart| apart.distance.kl);
                *view = seen.map(|seen| View {
                    kl_to_oracle,
                    ..seen
                });
            }
        }
    }
}

/// What a row of logits says of a parting's candidates; none where they are beyond it, or the row
/// is no logits.
pub fn view_of(label: &str, backend: &str, parting: &Parting, row: &[f64]) -> Option<View> {
    let [logit_a, logit_b] = [&parting.a, &parting.b].map(|piece| row.get(piece.id as usize));
    let (logit_a, logit_b) = (*logit_a?, *logit_b?);
    let best = top(row)?;
    let total: f64 = row.iter().map(|logit| (logit - row[best]).exp()).sum();
    let share = |logit: f64| (logit - row[best]).exp() / total;
    Some(View {
        label: label.to_owned(),
        backend: backend.to_owned(),
        top: Piece {
            id: u32::try_from(best).unwrap_or(u32::MAX),
            text: None,
        },
        logit_a,
        logit_b,
        margin: logit_a - logit_b,
        probability_margin: share(logit_a) - share(logit_b),
        kl_to_oracle: None,
    })
}

/// Feeds the stream to EMEL, the first contender, and to every other; the second is the reference.
/// Those that fail are left out, with the reason.
///
/// # Errors
/// [`CompareError`] when EMEL fails, or nothing can be kept.
pub fn replay(
    plan: &Plan<'_>,
    contenders: &[Contender],
    exact: &mut Judgement,
) -> Result<Found, CompareError> {
    let mut kept = ["emel", "reference"].map(|name| Kept::new(plan.scratch, name));
    let mut found = Found {
        engines: Vec::new(),
        trail: Vec::new(),
        splits: Vec::new(),
        told: [Vec::new(), Vec::new()],
    };
    let mut views: Vec<Vec<View>> = vec![Vec::new(); plan.partings.len()];
    for (at, contender) in contenders.iter().enumerate() {
        let mut way = Way::new(contender, plan.partings);
        let beside = plan.tensors.filter(|(_, beside)| *beside == way.label);
        let watched = if at == 0 { plan.tensors } else { beside };
        let watched = watched.map(|(position, _)| position);
        let walked = walk(plan, contender, watched, |position, n_vocab, rows| {
            if let Some(own) = kept.get_mut(at) {
                own.push(n_vocab, rows)?;
            }
            let [emel, reference] = &mut kept;
            if at > 0 {
                way.to_emel.extend(emel.compare(position, n_vocab, rows)?);
            }
            if at > 1 {
                way.to_reference
                    .extend(reference.compare(position, n_vocab, rows)?);
            }
            for (row, position) in rows.chunks_exact(n_vocab.max(1)).zip(position..) {
                let exact = exact.logits(position)?;
                way.see(position, row, exact.as_deref());
            }
            Ok(())
        });
        let error = match walked {
            Ok(told) if watched.is_some() => {
                found.told[usize::from(at > 0)] = told;
                None
            }
            Ok(_) => None,
            Err(error) if at == 0 || !error.is_of_engine() => return Err(error),
            Err(error) => Some(error.to_string()),
        };
        if at == 1 && error.is_none() {
            found.trail = way.trail();
        }
        for (all, own) in views.iter_mut().zip(&mut way.views) {
            all.extend(own.take());
        }
        found.engines.push(way.replayed(error));
    }
    let partings = plan.partings.iter().zip(views);
    found.splits = partings
        .map(|(parting, views)| parting.split(views, exact))
        .collect::<Result<_, _>>()?;
    Ok(found)
}

/// Takes one engine over the stream.
fn walk(
    plan: &Plan<'_>,
    contender: &Contender,
    watched: Option<usize>,
    mut each: impl FnMut(usize, usize, &[f32]) -> Result<(), CompareError>,
) -> Result<Vec<Told>, CompareError> {
    let stages = plan.stages;
    let label = contender.label();
    let stage = stages.begin(format!("{label}: loading"), 0);
    let (case, interrupt) = (plan.case, stages.interrupt());
    let started = contender.start(&case.model, case.n_ctx, interrupt, plan.timeout);
    let (mut backend, _) = started?;
    drop(stage);
    let stage = stages.begin(format!("{label}: replay"), plan.stream.positions());
    force(
        &mut backend,
        plan.stream,
        watched,
        plan.scratch,
        |position, n_vocab, rows| {
            each(position, n_vocab, rows)?;
            stage.set(position + rows.len() / n_vocab.max(1));
            stages.check()
        },
    )
}

impl<'a> Way<'a> {
    fn new(contender: &Contender, partings: &'a [Parting]) -> Self {
        Way {
            label: contender.label(),
            backend: contender.backend.clone(),
            to_emel: Vec::new(),
            to_reference: Vec::new(),
            to_oracle: Vec::new(),
            views: vec![None; partings.len()],
            partings,
        }
    }

    fn trail(&self) -> Vec<Position> {
        let position = |(index, apart): (usize, &Apart)| Position {
            index,
            kl: apart.distance.kl,
            max_difference: apart.distance.max_difference,
            top_agrees: apart.distance.top_agrees,
        };
        self.to_emel.iter().enumerate().map(position).collect()
    }

    fn replayed(self, error: Option<String>) -> Replayed {
        let of = |all: &[Apart]| (!all.is_empty() && error.is_none()).then(|| agreement(all));
        Replayed {
            to_emel: of(&self.to_emel),
            to_reference: of(&self.to_reference),
            to_oracle: of(&self.to_oracle),
            label: self.label,
            first_split: None,
            cause: None,
            error,
        }
    }
}

impl Parting {
    /// Everybody at this place.
    fn split(&self, views: Vec<View>, exact: &mut Judgement) -> Result<Split, CompareError> {
        let exact = exact.logits(self.index)?;
        let own = views.iter().filter(|view| view.backend == self.backend);
        let margins: Vec<f64> = own.map(|view| view.margin).collect();
        let most = margins.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = margins.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Split {
            index: self.index,
            a: self.a.clone(),
            b: self.b.clone(),
            parting: self.labels.clone(),
            backend: self.backend.clone(),
            oracle: exact.and_then(|row| view_of("oracle", "oracle", self, &row)),
            spread: (margins.len() > 1).then_some(most - least),
            views,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parting(a: u32, b: u32) -> Parting {
        let piece = |id| Piece { id, text: None };
        Parting {
            index: 2,
            a: piece(a),
            b: piece(b),
            backend: "r".to_owned(),
            labels: vec!["r-x".to_owned()],
        }
    }

    #[test]
    fn a_view_has_margins_in_logits_and_in_probability() {
        let row = [0.0, 3.0_f64.ln(), f64::NEG_INFINITY];
        let view = view_of("r-x", "r", &parting(1, 0), &row).unwrap();
        assert_eq!(view.top.id, 1);
        assert!((view.margin - 3.0_f64.ln()).abs() < 1e-15);
        assert!((view.probability_margin - 0.5).abs() < 1e-15);
        assert!(view_of("r-x", "r", &parting(1, 7), &row).is_none());
        assert!(view_of("r-x", "r", &parting(1, 0), &[f64::NAN, 1.0]).is_none());
    }

    #[test]
    fn the_spread_is_over_the_backends_configurations_alone() {
        let seen = |label: &str, backend: &str, margin: f64| {
            let row = [margin, 0.0];
            view_of(label, backend, &parting(0, 1), &row).unwrap()
        };
        let views = vec![
            seen("emel", "emel", 9.0),
            seen("r-x", "r", -1.0),
            seen("r-y", "r", 0.5),
        ];
        let mut nothing = Judgement::none();
        let split = parting(0, 1).split(views, &mut nothing).unwrap();
        assert_eq!((split.spread, split.oracle), (Some(1.5), None));
        let split = parting(0, 1)
            .split(vec![seen("r-x", "r", 1.0)], &mut nothing)
            .unwrap();
        assert_eq!(split.spread, None);
    }

    #[test]
    fn rows_are_compared_where_both_have_them() {
        let scratch = Scratch::new().unwrap();
        let mut kept = Kept::new(&scratch, "x");
        assert!(kept.compare(0, 2, &[1.0, 2.0]).unwrap().is_empty());
        kept.push(2, &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let apart = kept.compare(1, 2, &[3.0, 4.5]).unwrap();
        assert_eq!(apart[0].distance.max_difference, 0.5);
        assert!(
            kept.compare(1, 2, &[3.0, 4.5, 5.0, 6.0])
                .unwrap()
                .is_empty()
        );
        assert!(kept.compare(0, 3, &[1.0, 2.0, 3.0]).is_err());
    }
}
