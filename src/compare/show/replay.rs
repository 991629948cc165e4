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
    page.push(Block::Table(table(replay)));
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
        show_split(split, page);
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

/// A row for each engine and each that it is compared with.
fn table(replay: &Replay) -> Sheet {
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
    for engine in &replay.engines {
        let mut rows = agreements(engine);
        rows.resize(rows.len().max(1), Vec::new());
        for (at, row) in rows.into_iter().enumerate() {
            let mut cells = match at {
                0 => vec![
                    Rich::default().name(&engine.label),
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

/// What each engine makes of the two candidates.
fn show_split(split: &Split, page: &mut Page) {
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
    let rows = split.views.iter().chain(&split.oracle);
    sheet.rows = rows.map(view).collect();
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

fn view(view: &View) -> Vec<Rich> {
    let numbers = [
        short(view.logit_a),
        short(view.logit_b),
        signed(view.margin),
        signed(view.probability_margin),
        or_dash(view.kl_to_oracle),
    ];
    let mut cells = vec![
        Rich::default().name(&view.label),
        piece(&view.top, Rich::default()),
    ];
    cells.extend(numbers.iter().map(|number| number.as_str().into()));
    cells
}
