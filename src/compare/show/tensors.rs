//! The tensors in words: how far both engines lie from exact arithmetic, layer by layer.

use super::number::{or_dash, short};
use super::page::{Block, Page, Rich, Sheet, Tone};
use crate::compare::report::{TensorRow, TensorTrail};
use crate::compare::trail::name;

/// Rows shown before and after the defect.
const AROUND: usize = 4;
/// Layers of which a row is shown, the first and the last among them.
const LAYERS: usize = 10;

/// The whole trail.
pub fn all(trail: &TensorTrail, page: &mut Page) {
    let place = format!(
        "tensors at token {}, relative error against the oracle",
        trail.index
    );
    page.push(Block::Section(place.as_str().into()));
    let at = defect_row(trail);
    let mut sheet = Sheet::new(&["tensor"], &[&trail.a, &trail.b, "between the two"]);
    let ends = layer_ends(&trail.rows);
    let rows = trail.rows.iter().enumerate();
    let rows = rows.filter(|(row, tensor)| {
        let is_near = at.is_some_and(|at| at.abs_diff(*row) <= AROUND);
        is_near || tensor.layer.is_none() || ends.contains(row)
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

/// The rows of layers' ends, sampled evenly where there are many.
fn layer_ends(rows: &[TensorRow]) -> Vec<usize> {
    let is_end = |at: &usize| rows[*at].layer.is_some() && rows[*at].point == "layer_out";
    let ends: Vec<usize> = (0..rows.len()).filter(is_end).collect();
    let Some(last) = ends.len().checked_sub(1) else {
        return ends;
    };
    let steps = last.min(LAYERS - 1);
    let sampled = (0..=steps).map(|step| ends[step * last / steps.max(1)]);
    sampled.collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_layer_are_always_shown() {
        let rows = |layers: usize| -> Vec<TensorRow> {
            let row = |layer, point: &str| TensorRow {
                layer: Some(layer),
                point: point.to_owned(),
                a_error: None,
                b_error: None,
                between: None,
            };
            let layers = 0..layers;
            let layers = layers.flat_map(|layer| ["q", "layer_out"].map(|point| row(layer, point)));
            layers.collect()
        };
        assert!(layer_ends(&rows(0)).is_empty());
        assert_eq!(layer_ends(&rows(1)), [1]);
        assert_eq!(layer_ends(&rows(3)), [1, 3, 5]);
        let many = layer_ends(&rows(61));
        assert_eq!(many.len(), LAYERS);
        assert_eq!((many[0], many[LAYERS - 1]), (1, 121));
    }
}
