//! The replay in words: everybody against EMEL, the reference and the oracle; the plot; and
//! everybody at each split.

use super::number::{or_dash, short, signed};
use super::page::{Block, Page, Rich, Sheet, Tone};
use super::pairs::piece;
use super::plot;
use crate::compare::report::{Agreement, Replay, Replayed, Split, View};
use crate::compare::text::count;

/// Splits that are shown; JSON has all.
const SPLITS: usize = 6;

/// The whole replay.
pub fn all(replay: &Replay, page: &mut Page) {
    let line = Rich::default().plain("replay of ").name(&replay.stream);
    let positions = count(replay.positions, "position");
    let what = format!(": {positions} (KL in nats; Δ: the largest difference of two logits)");
    page.push(Block::Section(line.plain(&what)));
    let groups = groups(&replay.engines);
    page.push(Block::Table(table(&groups)));
    for line in groups.iter().filter_map(Group::explained) {
        page.push(Block::Line(line));
    }
    let lost = replay.engines.iter().filter_map(|engine| {
        let error = engine.error.as_ref()?;
        let line = Rich::default().name(&engine.label).plain(" was left out: ");
        Some(line.toned(Tone::Bad, error))
    });
    page.list("left out", lost.collect());
    if let Some((a, b)) = compared(replay) {
        let points: Vec<(usize, f64)> = replay
            .trail
            .iter()
            .map(|position| (position.index, position.max_difference))
            .collect();
        let lines = plot::draw(&points, &marks(replay));
        if !lines.is_empty() {
            let title = Rich::default()
                .plain("largest logit difference of ")
                .name(a);
            let title = title.plain(" and ").name(b);
            let line = title.plain(" by position, log scale; ^ marks splits");
            page.push(Block::Section(line));
            page.push(Block::Figure(lines));
        }
    }
    for split in replay.splits.iter().take(SPLITS) {
        show_split(split, &groups, page);
    }
    if replay.splits.len() > SPLITS {
        let more = replay.splits.len() - SPLITS;
        let line = format!("and {} further on; --json has all", count(more, "split"));
        page.push(Block::Section(line.as_str().into()));
    }
}

/// The two whose differences the trail holds.
pub fn compared(replay: &Replay) -> Option<(&str, &str)> {
    let [a, b, ..] = &replay.engines[..] else {
        return None;
    };
    (!replay.trail.is_empty()).then_some((&*a.label, &*b.label))
}

/// Where engines part.
pub fn marks(replay: &Replay) -> Vec<usize> {
    let mut marks: Vec<usize> = replay.splits.iter().map(|split| split.index).collect();
    marks.dedup();
    marks
}

/// Engines that nothing tells apart: their options do not change a bit here.
struct Group<'a> {
    first: &'a Replayed,
    others: Vec<&'a str>,
}

impl Group<'_> {
    /// The first one's label, and how many others are the same.
    fn name(&self) -> Rich {
        let name = Rich::default().name(&self.first.label);
        match self.others.len() {
            0 => name,
            n => name.plain(&format!(" +{n}")),
        }
    }

    /// Who the others are.
    fn explained(&self) -> Option<Rich> {
        let (first, others) = self.others.split_first()?;
        let line = self.name().plain(": the same numbers as ").name(first);
        let add = |line: Rich, label: &&str| line.plain(", ").name(label);
        Some(others.iter().fold(line, add))
    }

    fn has(&self, one: &Replayed) -> bool {
        let first = self.first;
        let both_heard = first.to_emel.is_some() && first.error.is_none() && one.error.is_none();
        let part_alike = (first.first_split, first.cause) == (one.first_split, one.cause);
        both_heard && part_alike && first.to_emel == one.to_emel && first.to_oracle == one.to_oracle
    }
}

fn groups(engines: &[Replayed]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for one in engines {
        match groups.iter_mut().find(|group| group.has(one)) {
            Some(group) => group.others.push(&one.label),
            None => groups.push(Group {
                first: one,
                others: Vec::new(),
            }),
        }
    }
    groups
}

/// A row for each engine and each that it is compared with.
fn table(groups: &[Group<'_>]) -> Sheet {
    let mut sheet = Sheet::new(
        &["engine", "parts at", "cause", "against"],
        &[
            "other top",
            "margin",
            "KL mean",
            "KL p99",
            "KL worst",
            "Δ p50",
            "Δ worst",
        ],
    );
    for group in groups {
        let engine = group.first;
        let mut rows = agreements(engine);
        rows.resize(rows.len().max(1), Vec::new());
        for (at, row) in rows.into_iter().enumerate() {
            let mut cells = match at {
                0 => vec![
                    group.name(),
                    parts_at(engine),
                    engine.cause.map_or("".into(), |cause| cause.name().into()),
                ],
                _ => vec![Rich::default(); 3],
            };
            cells.extend(row);
            cells.resize(sheet.columns.len(), Rich::default());
            sheet.rows.push(cells);
        }
    }
    sheet
}

fn parts_at(engine: &Replayed) -> Rich {
    match engine.first_split {
        Some(index) => format!("token {index}").as_str().into(),
        None => "".into(),
    }
}

fn agreements(engine: &Replayed) -> Vec<Vec<Rich>> {
    let all = [
        ("emel", &engine.to_emel),
        ("reference", &engine.to_reference),
        ("oracle", &engine.to_oracle),
    ];
    let row = |(whom, agreement): (&str, &Option<Agreement>)| {
        let found = agreement.as_ref()?;
        let margin = found.margins.iter().copied().reduce(f64::max);
        let cells = [
            whom.to_owned(),
            format!("{} of {}", found.disagreements, found.positions),
            or_dash(margin),
            short(found.kl.mean),
            short(found.kl.p99),
            short(found.kl.worst),
            short(found.max_difference.p50),
            short(found.max_difference.worst),
        ];
        Some(cells.iter().map(|cell| cell.as_str().into()).collect())
    };
    all.into_iter().filter_map(row).collect()
}

/// What each engine makes of the two candidates; a row stands for its whole group.
fn show_split(split: &Split, groups: &[Group<'_>], page: &mut Page) {
    let line = Rich::default().plain(&format!("token {}: ", split.index));
    let line = piece(&split.a, line).plain(" or ");
    let mut line = piece(&split.b, line).plain(", as ");
    for (at, label) in split.parting.iter().enumerate() {
        let comma = if at > 0 { ", " } else { "" };
        line = line.plain(comma).name(label);
    }
    page.push(Block::Section(line.plain(if split.parting.len() == 1 {
        " has it"
    } else {
        " have it"
    })));
    let titles = [
        "first logit",
        "second logit",
        "margin",
        "in probability",
        "KL to oracle",
    ];
    let mut sheet = Sheet::new(&["engine", "chooses"], &titles);
    let rows = split.views.iter().filter_map(|of| {
        let mut groups = groups.iter();
        let group = groups.find(|group| group.first.label == of.label)?;
        Some(view(group.name(), of))
    });
    sheet.rows = rows.collect();
    let oracle = split.oracle.iter();
    let oracle = oracle.map(|of| view(Rich::default().name(&of.label), of));
    sheet.rows.extend(oracle);
    page.push(Block::Table(sheet));
    let mut sentences = Vec::new();
    if let Some(spread) = split.spread {
        let whose = Rich::default()
            .plain("the margins of ")
            .name(&split.backend);
        sentences.push(whose.plain(&format!("'s configurations spread over {}", short(spread))));
    }
    if let Some(oracle) = &split.oracle {
        let choice = match oracle.top.id {
            id if id == split.a.id => "the first token",
            id if id == split.b.id => "the second token",
            _ => "neither of the two",
        };
        let line = Rich::default().plain("exact arithmetic chooses ");
        let line = line.toned(Tone::Good, choice);
        sentences.push(line.plain(&format!("; margin {}", signed(oracle.margin))));
    }
    for sentence in sentences {
        page.push(Block::Line(sentence));
    }
}

fn view(name: Rich, view: &View) -> Vec<Rich> {
    let numbers = [
        short(view.logit_a),
        short(view.logit_b),
        signed(view.margin),
        signed(view.probability_margin),
        or_dash(view.kl_to_oracle),
    ];
    let mut cells = vec![name, piece(&view.top, Rich::default())];
    cells.extend(numbers.iter().map(|number| number.as_str().into()));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::Cause;

    #[test]
    fn engines_with_the_same_numbers_are_one_row() {
        let one = |label: &str, disagreements| Replayed {
            label: label.to_owned(),
            to_emel: Some(Agreement {
                disagreements,
                ..Agreement::default()
            }),
            ..Replayed::default()
        };
        let emel = |label: &str| Replayed {
            to_emel: None,
            ..one(label, 0)
        };
        let parting = Replayed {
            cause: Some(Cause::NearTie),
            ..one("e", 1)
        };
        let failed = Replayed {
            error: Some("it crashed".to_owned()),
            ..one("f", 1)
        };
        let all = [
            emel("emel"),
            emel("twin"),
            one("a", 1),
            one("b", 2),
            one("c", 1),
            one("d", 1),
            parting,
            failed,
        ];
        let groups = groups(&all);
        let found: Vec<(&str, &[&str])> = groups
            .iter()
            .map(|group| (&*group.first.label, &*group.others))
            .collect();
        let none: &[&str] = &[];
        assert_eq!(
            found,
            [
                ("emel", none),
                ("twin", none),
                ("a", &["c", "d"]),
                ("b", none),
                ("e", none),
                ("f", none),
            ]
        );
    }
}
