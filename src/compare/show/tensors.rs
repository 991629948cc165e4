//! The tensors in words: how far both engines lie from exact arithmetic, layer by layer.

use super::number::{or_dash, short};
use super::page::{Block, Page, Rich, Sheet, Tone};
use crate::compare::report::{TensorRow, TensorTrail};
use crate::compare::trail::name;

/// Rows shown before and after the defect.
const AROUND: usize = 4;

/// The whole trail.
pub fn all(trail: &TensorTrail, page: &mut Page) {
    let place = format!(
        "tensors at token {}, relative error against the oracle",
        trail.index
    );
    page.push(Block::Section(place.as_str().into()));
    let at = defect_row(trail);
    let mut sheet = Sheet::new(&["tensor"], &[&trail.a, &trail.b, "between the two"]);
    let rows = trail.rows.iter().enumerate();
    let rows = rows.filter(|(row, tensor)| {
        let is_near = at.is_some_and(|at| at.abs_diff(*row) <= AROUND);
        is_near || tensor.layer.is_none() || tensor.point == "layer_out"
    });
    sheet.rows = rows
        .map(|(row, tensor)| cells(tensor, at == Some(row)))
        .collect();
    page.push(Block::Table(sheet));
    if let Some(defect) = &trail.defect {
        let line = Rich::default()
            .name(&defect.engine)
            .plain(" leaves exact arithmetic at ");
        let line = line.toned(Tone::Bad, &name(defect.layer, &defect.point));
        page.push(Block::Line(line.plain(&format!(
            ": an error of {}, the other engine's is {}",
            short(defect.error),
            short(defect.other_error)
        ))));
    }
}

fn defect_row(trail: &TensorTrail) -> Option<usize> {
    let defect = trail.defect.as_ref()?;
    let is_it = |row: &TensorRow| row.layer == defect.layer && row.point == defect.point;
    trail.rows.iter().position(is_it)
}

fn cells(row: &TensorRow, is_defect: bool) -> Vec<Rich> {
    let name = name(row.layer, &row.point);
    let tensor = match is_defect {
        true => Rich::default().toned(Tone::Bad, &name).plain(" <-"),
        false => name.as_str().into(),
    };
    let numbers = [row.a_error, row.b_error, row.between].map(or_dash);
    let numbers = numbers.iter().map(|number| number.as_str().into());
    std::iter::once(tensor).chain(numbers).collect()
}
