//! The tensors of one position, kept as the engine shows them.

use std::cell::{Cell, RefCell};

use crate::engine::{Event, Observer, Tensor};
use crate::model::Point;

/// Keeps the tensors of the position it watches.
#[derive(Debug, Default)]
pub struct Taps {
    watched: Cell<Option<usize>>,
    kept: RefCell<Vec<Tapped>>,
}

/// One position's values at one point of the pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Tapped {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// Where in the pass.
    pub point: Point,
    /// The values.
    pub values: Vec<f32>,
}

impl Taps {
    /// From now on keeps the tensors of `position`.
    pub fn watch(&self, position: usize) {
        self.watched.set(Some(position));
    }

    /// What was kept, in the order of the pass; from now on nothing is.
    pub fn take(&self) -> Vec<Tapped> {
        self.watched.set(None);
        self.kept.take()
    }
}

impl Observer for Taps {
    fn event(&self, _: Event) {}

    fn tensor(&self, tensor: Tensor<'_>) {
        let watched = self.watched.get();
        if let Some(row) = watched.and_then(|position| tensor.row(position)) {
            self.kept.borrow_mut().push(Tapped {
                layer: tensor.layer,
                point: tensor.point,
                values: row.to_vec(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_watched_position_is_kept() {
        let taps = Taps::default();
        let show = |point, position| {
            taps.tensor(Tensor {
                layer: Some(1),
                point,
                position,
                rows: 2,
                values: &[1.0, 2.0, 3.0, 4.0],
            });
        };
        show(Point::Key, 0);
        taps.watch(3);
        for position in [0, 2, 3, 4] {
            show(Point::Key, position);
        }
        show(Point::Value, 2);
        let tapped = |point, values: [f32; 2]| Tapped {
            layer: Some(1),
            point,
            values: values.to_vec(),
        };
        assert_eq!(
            taps.take(),
            [
                tapped(Point::Key, [3.0, 4.0]),
                tapped(Point::Key, [1.0, 2.0]),
                tapped(Point::Value, [3.0, 4.0]),
            ]
        );
        show(Point::Key, 3);
        assert_eq!(taps.take(), []);
    }
}
