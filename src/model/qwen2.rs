//! The qwen2 family: Qwen2 and Qwen2.5, with biases on queries, keys and values.

use super::RopeKind;
use super::error::ModelError;
use super::family::{Family, plain_decoder, require_full_rotation};
use super::reader::Reader;
use super::scaling;
use super::spec::ModelSpec;

pub(super) const FAMILY: Family = Family {
    name: "qwen2",
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
    Ok(plain_decoder(reader, &sizes, rope))
}
