//! Points of a forward pass at which engines can be compared, by name.
//!
//! All are one position's values, f32 or f64, as they are when the named operation is done:
//!
//! | point | values | what |
//! | --- | --- | --- |
//! | `embedding` | `d_model` | the token's row, scaled where the model does |
//! | `attn_norm` | `d_model` | the layer's input, normed |
//! | `q`, `k` | heads x head width | queries, keys: biased, normed, rotated |
//! | `v` | KV heads x head width | values, biased |
//! | `attended` | query heads x value width | what the heads mix, before the output matrix |
//! | `attn_residual` | `d_model` | the residual stream with attention's result |
//! | `ffn_norm` | `d_model` | the same, normed |
//! | `ffn_hidden` | `d_ff` | the activated gate times the other half |
//! | `ffn_out` | `d_model` | the feed-forward's last product, before any norm |
//! | `layer_out` | `d_model` | the residual stream after the layer |
//! | `output_norm` | `d_model` | the last layer's output, normed |

use std::fmt;
use std::str::FromStr;

/// A point of the pass; the order is that of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The token's row.
    Embedding,
    /// The layer's input, normed.
    AttnNorm,
    /// Queries, rotated.
    Query,
    /// Keys, rotated.
    Key,
    /// Values.
    Value,
    /// What the heads mix.
    Attended,
    /// The residual stream after attention.
    AttnResidual,
    /// The same, normed.
    FfnNorm,
    /// The activated gate times the other half.
    FfnHidden,
    /// The feed-forward's last product.
    FfnOut,
    /// The residual stream after the layer.
    LayerOut,
    /// The last layer's output, normed.
    OutputNorm,
}

impl Point {
    /// Every point, in the order of the pass.
    pub const ALL: [Point; 12] = [
        Point::Embedding,
        Point::AttnNorm,
        Point::Query,
        Point::Key,
        Point::Value,
        Point::Attended,
        Point::AttnResidual,
        Point::FfnNorm,
        Point::FfnHidden,
        Point::FfnOut,
        Point::LayerOut,
        Point::OutputNorm,
    ];

    /// Its name in the protocol and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Point::Embedding => "embedding",
            Point::AttnNorm => "attn_norm",
            Point::Query => "q",
            Point::Key => "k",
            Point::Value => "v",
            Point::Attended => "attended",
            Point::AttnResidual => "attn_residual",
            Point::FfnNorm => "ffn_norm",
            Point::FfnHidden => "ffn_hidden",
            Point::FfnOut => "ffn_out",
            Point::LayerOut => "layer_out",
            Point::OutputNorm => "output_norm",
        }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no point's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no point of a forward pass")]
pub struct UnknownPoint(pub String);

impl FromStr for Point {
    type Err = UnknownPoint;

    fn from_str(name: &str) -> Result<Self, UnknownPoint> {
        let found = Point::ALL.into_iter().find(|point| point.name() == name);
        found.ok_or_else(|| UnknownPoint(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_in_the_order_of_the_pass() {
        for point in Point::ALL {
            assert_eq!(point.name().parse(), Ok(point));
        }
        assert!(Point::ALL.is_sorted());
        assert!("logits".parse::<Point>().is_err());
    }
}
