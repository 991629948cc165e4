//! The qwen3 family: dense Qwen3, whose queries and keys are normed head by head.

use super::RopeKind;
use super::error::ModelError;
use super::family::{Family, plain_decoder, require_full_rotation};
use super::reader::Reader;
use super::scaling;
use super::spec::{AttentionForm, ModelSpec};

pub(super) const FAMILY: Family = Family {
    name: "qwen3",
    read,
};

fn read(reader: &Reader) -> Result<ModelSpec, ModelError> {
    let sizes = reader.sizes()?;
    require_full_rotation(reader, &sizes)?;
    let rope = scaling::global(
        reader,
        RopeKind::Neox,
        sizes.n_rot,
        sizes.n_ctx_train,
        false,
    )?;
    let mut spec = plain_decoder(reader, &sizes, rope);
    for layer in &mut spec.layers {
        layer.attention = AttentionForm::QkNorm;
    }
    Ok(spec)
}
