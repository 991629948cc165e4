//! Tensor by tensor: how far two engines lie from exact arithmetic at one position, and where one
//! of them leaves it abruptly.

use super::forcing::Told;
use super::report::{Defect, TensorRow};
use crate::model::Point;

/// The exact tensors of one position.
#[derive(Clone, Debug, PartialEq)]
pub struct Exact {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// The point.
    pub point: Point,
    /// The values.
    pub values: Vec<f64>,
}

/// A row for each exact tensor that at least one engine tells, in the order of the pass.
pub fn rows(exact: &[Exact], a: &[Told], b: &[Told]) -> Vec<TensorRow> {
    let find = |told: &[Told], exact: &Exact| {
        let same = |one: &&Told| one.layer == exact.layer && one.point == exact.point.name();
        let found = told.iter().rfind(same);
        found.map(|told| told.values.clone())
    };
    let row = |exact: &Exact| {
        let (a, b) = (find(a, exact), find(b, exact));
        let between = a.as_ref().zip(b.as_ref()).map(|(a, b)| {
            let a: Vec<f64> = a.iter().copied().map(f64::from).collect();
            relative(b, &a)
        });
        let error =
            |told: &Option<Vec<f32>>| told.as_ref().map(|told| relative(told, &exact.values));
        let row = TensorRow {
            layer: exact.layer,
            point: exact.point.name().to_owned(),
            a_error: error(&a),
            b_error: error(&b),
            between,
        };
        (a.is_some() || b.is_some()).then_some(row)
    };
    exact.iter().filter_map(row).collect()
}

/// `‖this - other‖ / ‖other‖`; infinite when they are of unlike length or the other is nothing.
fn relative(this: &[f32], other: &[f64]) -> f64 {
    if this.len() != other.len() {
        return f64::INFINITY;
    }
    let pairs = this.iter().zip(other);
    let apart: f64 = pairs.map(|(t, o)| (f64::from(*t) - o).powi(2)).sum();
    let size: f64 = other.iter().map(|o| o * o).sum();
    if apart == 0.0 {
        0.0
    } else {
        (apart / size).sqrt()
    }
}

/// An error leaps when it is this many times the largest before it, and this many times the noise
/// of one operation.
pub const LEAP: f64 = 5.0;
/// A leap is an engine's own when its error is this many times the other engine's there.
pub const APART: f64 = 2.0;

/// The first tensor at which one engine leaves exact arithmetic abruptly and the other does not:
/// its error is [`LEAP`] times both the largest before it and `noise`, what one operation of a
/// sound engine may add; the other's is not; and it is [`APART`] times the other's.
pub fn defect(rows: &[TensorRow], noise: f64, labels: [&str; 2]) -> Option<Defect> {
    // What each engine has shown so far.
    let mut worst = [0.0_f64; 2];
    for row in rows {
        let errors = [row.a_error, row.b_error];
        if let [Some(a), Some(b)] = errors {
            for (who, [own, other]) in [[a, b], [b, a]].into_iter().enumerate() {
                // Written so that NaN is a leap, and far from everything.
                let sound = |error: f64, who: usize| error < LEAP * worst[who].max(noise);
                let leaps = !sound(own, who) && sound(other, 1 - who);
                let is_apart = own >= APART * other || own.is_nan();
                if leaps && is_apart {
                    return Some(Defect {
                        engine: labels[who].to_owned(),
                        layer: row.layer,
                        point: row.point.clone(),
                        error: own,
                        other_error: other,
                    });
                }
            }
        }
        for (worst, error) in worst.iter_mut().zip(errors) {
            *worst = worst.max(error.unwrap_or(0.0));
        }
    }
    None
}

/// `layer 3 ffn_out`, or `output_norm`.
pub fn name(layer: Option<usize>, point: &str) -> String {
    layer.map_or_else(
        || point.to_owned(),
        |layer| format!("layer {layer} {point}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: usize, point: &str, a: f64, b: f64) -> TensorRow {
        TensorRow {
            layer: Some(layer),
            point: point.to_owned(),
            a_error: Some(a),
            b_error: Some(b),
            between: None,
        }
    }

    #[test]
    fn errors_are_relative_to_the_exact_tensor() {
        let exact = [Exact {
            layer: Some(1),
            point: Point::Query,
            values: vec![3.0, 4.0],
        }];
        let told = |values: [f32; 2]| {
            vec![Told {
                layer: Some(1),
                point: "q".to_owned(),
                values: values.to_vec(),
            }]
        };
        let found = rows(&exact, &told([3.0, 4.5]), &[]);
        assert_eq!(found[0].a_error, Some(0.1));
        assert_eq!((found[0].b_error, found[0].between), (None, None));
        let both = rows(&exact, &told([3.0, 4.0]), &told([0.0, 0.0]));
        assert_eq!((both[0].a_error, both[0].b_error), (Some(0.0), Some(1.0)));
        assert_eq!(both[0].between, Some(1.0));
        assert!(rows(&exact, &[], &[]).is_empty());
    }

    #[test]
    fn a_leap_of_one_engine_is_its_defect() {
        // Quantized activations: error enters with the first product and grows slowly in both.
        let sound = [
            row(0, "attn_norm", 1e-7, 1e-7),
            row(0, "q", 6e-3, 5e-3),
            row(0, "layer_out", 8e-3, 9e-3),
            row(1, "q", 2e-2, 1.5e-2),
            row(1, "layer_out", 3e-2, 3e-2),
        ];
        assert_eq!(defect(&sound, 1e-2, ["a", "b"]), None);
        let mut rope = sound.to_vec();
        rope[1].b_error = Some(0.9);
        rope[2].b_error = Some(0.7);
        let found = defect(&rope, 1e-2, ["a", "b"]).unwrap();
        assert_eq!((found.engine.as_str(), found.layer), ("b", Some(0)));
        assert_eq!(found.point, "q");
    }

    #[test]
    fn quantizing_beside_plain_floats_is_no_defect_and_half_precision_is() {
        let plain = [
            row(0, "q", 6e-3, 1e-7),
            row(0, "layer_out", 9e-3, 1e-7),
            row(1, "q", 2e-2, 2e-7),
        ];
        assert_eq!(defect(&plain, 1e-2, ["a", "b"]), None);
        let half = [
            row(0, "q", 1e-7, 1e-7),
            row(0, "attended", 1e-4, 1e-7),
            row(1, "q", 8e-5, 2e-3),
        ];
        let found = defect(&half, 1e-4, ["a", "b"]).unwrap();
        assert_eq!((found.engine.as_str(), found.layer), ("b", Some(1)));
    }

    #[test]
    fn not_a_number_is_a_leap() {
        let rows = [row(0, "q", f64::NAN, 1e-3)];
        assert_eq!(defect(&rows, 1e-2, ["a", "b"]).unwrap().engine, "a");
    }
}
