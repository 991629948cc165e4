//! What a model costs to run, from its file's header alone: the same numbers for every engine.

use std::path::Path;

use emel_kernels::CacheType;

use crate::engine::EngineError;
use crate::gguf::Gguf;
use crate::model::{self, LayerTensors, Model, TensorId};

/// Costs of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFacts {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of weights that a decode step reads: every matrix once.
    pub weight_bytes_per_token: u64,
    /// Multiply-adds of the layers' matrices, a token.
    layer_multiply_adds: u64,
    /// Multiply-adds of the output matrix, once a prompt.
    output_multiply_adds: u64,
    /// What attention costs in each layer.
    layers: Vec<Attention>,
}

/// What attention costs in a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attention {
    /// Elements of a position's keys and values.
    elements: [usize; 2],
    /// Multiply-adds of a query's heads with one position.
    multiply_adds: u64,
    /// Positions that are looked back at, if not all.
    window: Option<u64>,
}

impl Attention {
    fn seen(self, depth: u64) -> u64 {
        self.window.map_or(depth, |window| depth.min(window))
    }
}

fn matrices(layer: &LayerTensors) -> [TensorId; 7] {
    let l = layer;
    [l.wq, l.wk, l.wv, l.wo, l.w_gate, l.w_up, l.w_down]
}

impl ModelFacts {
    /// Reads them.
    ///
    /// # Errors
    /// [`EngineError::Gguf`] or [`EngineError::Model`].
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let gguf = Gguf::open(path)?;
        let Model { spec, tensors } = model::bind(&gguf)?;
        let bytes = |id: TensorId| gguf.tensors()[id.index()].n_bytes;
        let weights = |id: TensorId| {
            let tensor = &gguf.tensors()[id.index()];
            tensor.n_rows() * tensor.row_len()
        };
        let of_layers = || tensors.layers.iter().flat_map(matrices);
        let layers = spec.layers.iter().map(|layer| {
            let dims = layer.head_dim_k + layer.head_dim_v;
            Attention {
                elements: [layer.k_dim(), layer.v_dim()],
                multiply_adds: (layer.n_head * dims) as u64,
                window: layer.window.map(|window| window as u64),
            }
        });
        Ok(ModelFacts {
            file_bytes: gguf.file_bytes(),
            weight_bytes_per_token: of_layers().map(bytes).sum::<u64>() + bytes(tensors.output),
            layer_multiply_adds: of_layers().map(weights).sum(),
            output_multiply_adds: weights(tensors.output),
            layers: layers.collect(),
        })
    }

    /// Bytes of cache that a decode step reads with `depth` positions cached as `types` of keys
    /// and values: the types' own, to which an engine may add (EMEL keeps a step, four bytes, for
    /// each position and head).
    pub fn cache_bytes_per_token(&self, depth: u64, types: [CacheType; 2]) -> u64 {
        let bytes = |elements: [usize; 2]| -> u64 {
            let parts = types.into_iter().zip(elements);
            parts.map(|(ty, n)| ty.bytes(n).unwrap_or(0) as u64).sum()
        };
        let layers = self.layers.iter();
        layers
            .map(|layer| bytes(layer.elements) * layer.seen(depth))
            .sum()
    }

    /// Operations (two a multiply-add) of one token's attention with `depth` positions cached.
    pub fn attention_operations(&self, depth: u64) -> u64 {
        let layers = self.layers.iter();
        layers
            .map(|layer| 2 * layer.multiply_adds * layer.seen(depth))
            .sum()
    }

    /// Integer operations (two a multiply-add) of a prompt's matrix products.
    pub fn prefill_operations(&self, tokens: u64) -> u64 {
        2 * (self.layer_multiply_adds * tokens + self.output_multiply_adds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::TensorType;
    use crate::model::testing::TestModel;

    #[test]
    fn costs_follow_from_the_shapes() {
        let model = TestModel::new("gemma3", TensorType::Q8_0);
        let file = model.write_temporary().unwrap();
        let facts = ModelFacts::read(file.path()).unwrap();
        // 4 query heads and 1 key head of 128; 256 wide; 512 in the feed-forward; 300 tokens.
        let layer = 256 * (512 + 128 + 128 + 512) + 3 * 256 * 512;
        let weights = 3 * layer + 300 * 256;
        assert_eq!(facts.weight_bytes_per_token, weights / 32 * 34);
        assert_eq!(
            facts.prefill_operations(10),
            2 * (3 * layer * 10 + 300 * 256)
        );
        // Two of three layers look back 20 positions.
        let position = 2 * 2 * 128;
        let bytes = |depth, types| facts.cache_bytes_per_token(depth, types);
        let half = [CacheType::F16; 2];
        assert_eq!(bytes(7, half), 3 * 7 * position);
        assert_eq!(bytes(100, half), (20 + 20 + 100) * position);
        let mixed = [CacheType::Q8_0, CacheType::F32];
        assert_eq!(bytes(7, mixed), 3 * 7 * 128 / 32 * (34 + 128));
        // 4 query heads.
        let position = 2 * 4 * 2 * 128;
        assert_eq!(facts.attention_operations(100), (20 + 20 + 100) * position);
        assert_eq!(
            facts.file_bytes,
            std::fs::metadata(file.path()).unwrap().len()
        );
    }
}
