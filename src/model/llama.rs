//! The llama family: Llama 1 to 3, SmolLM2, Mistral, TinyLlama and whatever else is converted to
//! it.
//!
//! Neighbouring values rotate together (the converter permutes Q and K for it). Llama 3.1 and
//! later bring frequency factors in `rope_freqs.weight`. A `sliding_window` key is ignored, as
//! in llama.cpp.

use super::RopeKind;
use super::error::ModelError;
use super::family::{Family, plain_decoder, require_full_rotation};
use super::reader::Reader;
use super::scaling;
use super::spec::ModelSpec;

pub(super) const FAMILY: Family = Family {
    name: "llama",
    read,
};

fn read(reader: &Reader) -> Result<ModelSpec, ModelError> {
    let sizes = reader.sizes()?;
    require_full_rotation(reader, &sizes)?;
    let rope = scaling::global(reader, RopeKind::Norm, sizes.n_rot, sizes.n_ctx_train, true)?;
    Ok(plain_decoder(reader, &sizes, rope))
}
