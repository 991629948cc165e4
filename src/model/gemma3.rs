//! The gemma3 family (text): scaled embeddings, queries and keys normed head by head, norms after
//! attention and feed-forward, GELU, and five windowed layers to each one that sees everything.
//!
//! Windowed layers rotate with a base of their own and without scaling. Files of early
//! converters name neither that base (10000) nor the pattern (6); both defaults are llama.cpp's.
//! Without `attention.sliding_window` no layer is windowed. Norm weights already hold Gemma's
//! `1 + w`: the converter adds it.

use super::RopeKind;
use super::error::ModelError;
use super::family::{Family, inverse_root, plain_decoder};
use super::reader::{MAX_CONTEXT, Reader};
use super::scaling;
use super::spec::{Activation, AttentionForm, ModelSpec};

pub(super) const FAMILY: Family = Family {
    name: "gemma3",
    read,
};

/// Layers in one period of windowed layers and one that sees everything.
const PATTERN: u32 = 6;

/// The layer count by which the 27B model is known. It alone scales attention by the width of
/// the residual stream per head rather than by the head's own.
const LAYERS_OF_27B: usize = 62;

fn read(reader: &Reader) -> Result<ModelSpec, ModelError> {
    let sizes = reader.sizes()?;
    let kind = RopeKind::Neox;
    let rope = scaling::global(reader, kind, sizes.n_rot, sizes.n_ctx_train, false)?;
    let mut spec = plain_decoder(reader, &sizes, rope);
    spec.embedding_scale = Some((sizes.d_model as f32).sqrt());
    spec.logit_softcap = reader
        .float("final_logit_softcapping")?
        .filter(|cap| *cap != 0.0);

    let scale = if sizes.n_layer == LAYERS_OF_27B {
        inverse_root(sizes.d_model / sizes.n_head[0])
    } else {
        inverse_root(sizes.head_dim)
    };
    for layer in &mut spec.layers {
        layer.attention = AttentionForm::QkNorm;
        layer.attention_scale = scale;
        layer.post_norms = true;
        layer.activation = Activation::Gelu;
    }

    let window_key = reader.key("attention.sliding_window");
    if reader.metadata().u32(&window_key)?.is_some_and(|w| w > 0) {
        let window = reader.count("attention.sliding_window", MAX_CONTEXT)?;
        let n_rot = reader.n_rot("rope.dimension_count_swa", sizes.head_dim)?;
        let local = scaling::local(reader, kind, n_rot.unwrap_or(sizes.n_rot))?;
        let index = match spec.ropes.iter().position(|rope| *rope == local) {
            Some(index) => index,
            None => {
                spec.ropes.push(local);
                spec.ropes.len() - 1
            }
        };
        let windowed = reader.window_pattern(sizes.n_layer, PATTERN)?;
        for (layer, _) in spec
            .layers
            .iter_mut()
            .zip(windowed)
            .filter(|(_, windowed)| *windowed)
        {
            layer.window = window;
            layer.rope = index;
        }
    }
    Ok(spec)
}
