//! Reads a file's rotary embedding: base, scaling scheme and frequency factors.
//!
//! Keys are `{architecture}.rope.*`; what they mean, and what they default to, follows
//! llama.cpp's `load_hparams`, `llama_context` and `rope_yarn`. `rope.scaling.type = llama3` with
//! its four numbers is read as well, though llama.cpp's converter writes the factors it leads to
//! into the tensor `rope_freqs.weight` instead.

use super::error::{ModelError, Problem};
use super::reader::{MAX_CONTEXT, Reader};
use super::rope::{LongFactors, RopeKind, RopeSpec};

/// The base when a file names none.
const DEFAULT_BASE: f32 = 10000.0;
/// YaRN's bounds, in turns over the original context, of the frequencies it blends.
const YARN_BETA_FAST: f32 = 32.0;
const YARN_BETA_SLOW: f32 = 1.0;

/// The embedding of layers that see the whole context: base, scaling and factors as the file has
/// them. `factor_tensors` says whether the family has frequency factors in tensors.
pub(super) fn global(
    reader: &Reader,
    kind: RopeKind,
    n_dims: usize,
    n_ctx_train: usize,
    factor_tensors: bool,
) -> Result<RopeSpec, ModelError> {
    let base = base(reader, "rope.freq_base")?;
    let mut rope = plain(kind, n_dims, base);
    rope.attn_factor = reader.float("rope.scaling.attn_factor")?.unwrap_or(1.0);

    let n_ctx_orig = reader
        .count("rope.scaling.original_context_length", MAX_CONTEXT)?
        .unwrap_or(n_ctx_train);
    let scale = freq_scale(reader)?;
    let key = reader.key("rope.scaling.type");
    let scheme = reader.metadata().str(&key)?.unwrap_or("linear");
    match scheme {
        "none" => {}
        "linear" | "longrope" => rope.freq_scale = scale,
        "yarn" => yarn(&mut rope, scale, n_ctx_orig),
        "llama3" => rope.factors = Some(llama3(reader, &rope, scale, n_ctx_orig)?),
        other => {
            let why = "it must be none, linear, yarn, longrope or llama3";
            return Err(reader.bad(key, other, why));
        }
    }
    if !rope.attn_factor.is_finite() {
        let key = reader.key("rope.scaling.attn_factor");
        return Err(reader.bad(key, rope.attn_factor, "it must be finite"));
    }
    if let Some(computed) = &rope.factors
        && computed.iter().any(|f| !usable(*f))
    {
        let why = "with this base and context it gives frequencies that are no numbers";
        return Err(reader.bad(reader.key("rope.scaling.factor"), 1.0 / scale, why));
    }
    if factor_tensors && scheme == "longrope" {
        rope.factors = factors(reader, "rope_factors_short.weight", n_dims)?;
        rope.long =
            factors(reader, "rope_factors_long.weight", n_dims)?.map(|factors| LongFactors {
                above: n_ctx_orig,
                factors,
            });
    } else if factor_tensors && let Some(mut found) = factors(reader, "rope_freqs.weight", n_dims)?
    {
        // Llama 3's scheme says in numbers what the tensor says in full; YaRN comes on top.
        let computed = rope.factors.take().filter(|_| scheme == "yarn");
        for (factor, yarn) in found.iter_mut().zip(computed.iter().flatten()) {
            *factor *= yarn;
        }
        refuse_unusable(reader, "rope_freqs.weight", &found)?;
        rope.factors = Some(found);
    }
    Ok(rope)
}

/// An embedding without any scaling.
pub(super) fn plain(kind: RopeKind, n_dims: usize, base: f32) -> RopeSpec {
    RopeSpec {
        kind,
        n_dims,
        base,
        freq_scale: 1.0,
        attn_factor: 1.0,
        factors: None,
        long: None,
    }
}

/// The embedding of windowed layers: a base of its own, no scaling.
pub(super) fn local(
    reader: &Reader,
    kind: RopeKind,
    n_dims: usize,
) -> Result<RopeSpec, ModelError> {
    let base = reader
        .positive("rope.freq_base_swa")?
        .unwrap_or(DEFAULT_BASE);
    let mut rope = plain(kind, n_dims, base);
    rope.attn_factor = reader.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
    Ok(rope)
}

/// The base of frequencies, above 1: later pairs turn slower.
fn base(reader: &Reader, name: &str) -> Result<f32, ModelError> {
    match reader.float(name)? {
        Some(base) if base <= 1.0 => Err(reader.bad(reader.key(name), base, "it must be above 1")),
        other => Ok(other.unwrap_or(DEFAULT_BASE)),
    }
}

/// The inverse of `rope.scaling.factor` (or of its old name); 0 and nothing both mean 1.
fn freq_scale(reader: &Reader) -> Result<f32, ModelError> {
    for name in ["rope.scaling.factor", "rope.scale_linear"] {
        if let Some(factor) = reader.float(name)? {
            if factor < 0.0 {
                return Err(reader.bad(reader.key(name), factor, "it must not be below 0"));
            }
            let scale = if factor == 0.0 { 1.0 } else { 1.0 / factor };
            if !scale.is_finite() {
                return Err(reader.bad(reader.key(name), factor, "its inverse must be finite"));
            }
            return Ok(scale);
        }
    }
    Ok(1.0)
}

/// YaRN (Peng et al. 2023): pairs that turn often keep their frequency, pairs that hardly turn
/// have it scaled, those between blend; written as one factor a pair. The temperature becomes
/// the attention factor.
fn yarn(rope: &mut RopeSpec, scale: f32, n_ctx_orig: usize) {
    let n_dims = rope.n_dims as f64;
    let ln_base = libm::log(f64::from(rope.base));
    // The pair that makes `turns` turns over the original context.
    let pair_of = |turns: f32| {
        let wavelengths = n_ctx_orig as f64 / (f64::from(turns) * 2.0 * std::f64::consts::PI);
        n_dims * libm::log(wavelengths) / (2.0 * ln_base)
    };
    let low = libm::floor(pair_of(YARN_BETA_FAST)).max(0.0);
    let high = libm::ceil(pair_of(YARN_BETA_SLOW)).min(n_dims - 1.0);
    let scale = f64::from(scale);
    let factor = |pair: usize| {
        let keep = 1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        (1.0 / (scale * (1.0 - keep) + keep)) as f32
    };
    rope.factors = Some((0..rope.n_dims / 2).map(factor).collect());
    if scale < 1.0 {
        rope.attn_factor *= (1.0 + 0.1 * libm::log(1.0 / scale)) as f32;
    }
}

/// Llama 3's scaling: long waves are slowed by the factor, short ones kept, those between
/// blended, by the wave's length in relation to the original context.
fn llama3(
    reader: &Reader,
    rope: &RopeSpec,
    scale: f32,
    n_ctx_orig: usize,
) -> Result<Vec<f32>, ModelError> {
    let (low_name, high_name) = (
        "rope.scaling.low_freq_factor",
        "rope.scaling.high_freq_factor",
    );
    let low = f64::from(reader.positive(low_name)?.unwrap_or(1.0));
    let high = f64::from(reader.positive(high_name)?.unwrap_or(4.0));
    if low >= high {
        let why = format!("it must be above low_freq_factor = {low}");
        return Err(reader.bad(reader.key(high_name), high, why));
    }
    let (n_ctx_orig, scale) = (n_ctx_orig as f64, f64::from(scale));
    let factor = |pair: usize| {
        let exponent = 2.0 * pair as f64 / rope.n_dims as f64;
        let wave = 2.0 * std::f64::consts::PI * libm::pow(f64::from(rope.base), exponent);
        // How often the wave fits into the original context, between the two bounds.
        let keep = ((n_ctx_orig / wave - low) / (high - low)).clamp(0.0, 1.0);
        (1.0 / (scale * (1.0 - keep) + keep)) as f32
    };
    Ok((0..rope.n_dims / 2).map(factor).collect())
}

/// The frequency factors in a tensor, if the file has it.
fn factors(reader: &Reader, name: &str, n_dims: usize) -> Result<Option<Vec<f32>>, ModelError> {
    let Some(tensor) = reader.find(name) else {
        return Ok(None);
    };
    let values = reader.f32_vector(tensor, n_dims / 2, "one factor a rotated pair")?;
    refuse_unusable(reader, name, &values)?;
    Ok(Some(values))
}

fn refuse_unusable(reader: &Reader, tensor: &str, factors: &[f32]) -> Result<(), ModelError> {
    match factors.iter().position(|factor| !usable(*factor)) {
        None => Ok(()),
        Some(index) => Err(reader.fail(Problem::BadTensorValue {
            tensor: tensor.to_owned(),
            index,
            value: factors[index],
            why: "a frequency factor is above 0 and finite",
        })),
    }
}

/// Whether a frequency can be divided by this.
fn usable(factor: f32) -> bool {
    factor.is_normal() && factor > 0.0
}
