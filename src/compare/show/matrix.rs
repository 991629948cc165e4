//! A determinism run in words: a row a run, with its checksums.

use super::page::{Block, Page, Rich, Sheet, Tone};
use super::pairs::facts_of;
use crate::compare::determinism::{Matrix, Row};
use crate::compare::text::count;

/// The whole matrix.
pub fn page(matrix: &Matrix) -> Page {
    let mut page = Page::default();
    page.push(Block::Title(title(matrix)));
    page.push(Block::Facts(facts_of(&matrix.subject)));
    let titles = ["engine", "configuration", "isa", "route"];
    let mut sheet = Sheet::new(&titles, &["threads", "ubatch", "logits", "ids"]);
    sheet.rows = matrix.rows.iter().map(cells).collect();
    page.push(Block::Table(sheet));
    let failed = matrix.rows.iter().filter_map(|row| {
        let line = Rich::default()
            .name(&row.backend)
            .plain(" ")
            .name(&row.config);
        let error = row.error.as_ref()?;
        Some(line.plain(": ").toned(Tone::Bad, error))
    });
    page.list("failed", failed.collect());
    page
}

fn title(matrix: &Matrix) -> Rich {
    let runs = |of_emel: bool| {
        let own = matrix.rows.iter();
        own.filter(|row| (row.backend == "emel") == of_emel && row.error.is_none())
            .count()
    };
    let tone = if matrix.emel_values == 1 {
        Tone::Good
    } else {
        Tone::Bad
    };
    let values = count(matrix.emel_values, "value");
    let line = Rich::default().plain("emel: ").toned(tone, &values);
    let line = line.plain(&format!(" in {}", count(runs(true), "run")));
    match runs(false) {
        0 => line,
        references => line.plain(&format!(
            "; the reference: {} of logits and {} of tokens in {}",
            count(matrix.reference_values, "value"),
            matrix.reference_streams,
            count(references, "run")
        )),
    }
}

fn cells(row: &Row) -> Vec<Rich> {
    let sum = |sum: &Option<String>| sum.as_deref().unwrap_or("-").into();
    vec![
        Rich::default().plain(&row.backend),
        row.config.as_str().into(),
        row.isa.as_str().into(),
        row.route.as_str().into(),
        row.threads.to_string().as_str().into(),
        row.n_ubatch.to_string().as_str().into(),
        sum(&row.logits_checksum),
        sum(&row.ids_checksum),
    ]
}
