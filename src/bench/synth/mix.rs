//! Which tensor gets which type: the mixtures that `llama-quantize` makes, after
//! `llama_tensor_get_type_impl` of llama.cpp 0.5.0 for dense models without importance matrix.
//!
//! Norms and other vectors stay F32. The embedding, which is the output too, becomes Q6_K (Q8_0
//! in `q8_0`, and where its rows are no whole number of the mixture's blocks; untouched in `f32`,
//! `f16`, `bf16`, which converters write). Matrices have the mixture's own type, except:
//!
//! | mixture | attn_v | ffn_down | attn_output |
//! | --- | --- | --- | --- |
//! | q2_k | Q4_K with 4 or more heads to a KV head, else Q3_K | Q3_K | Q3_K |
//! | q3_k_m | Q5_K in layers 0 and 1, else Q4_K | Q5_K in the first 16th, else Q4_K | Q4_K |
//! | q3_k_l | Q5_K | Q5_K | Q5_K |
//! | q4_k_s | Q5_K in layers 0 to 3 | Q5_K in the first 8th | |
//! | q4_k_m, q5_k_m | Q6_K in favoured layers | Q6_K in favoured layers | |
//! | iq4_nl, iq4_xs | Q5_K with 4 or more heads to a KV head | Q5_K in the first 8th | |
//!
//! Favoured are the first and the last eighth of the layers, and every third between. A matrix
//! whose rows are no whole number of super-blocks falls back to a type with blocks of 32.

use super::shape::Shape;
use crate::gguf::TensorType::{self, *};

/// A mixture.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// How `--quant` names it.
    pub name: &'static str,
    /// Its number in files (`general.file_type`; llama.cpp's `llama_ftype`).
    pub file_type: u32,
    /// The type of most matrices.
    base: TensorType,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// As a converter writes it: the embedding has the base type too.
    Converted,
    /// The base type, the embedding apart.
    Plain,
    Q2,
    Q3Medium,
    Q3Large,
    Q4Small,
    Medium,
    Nonlinear,
}

/// Every mixture there is.
pub const MIXES: [Mix; 19] = [
    mix("f32", 0, F32, Rule::Converted),
    mix("f16", 1, F16, Rule::Converted),
    mix("bf16", 32, BF16, Rule::Converted),
    mix("q8_0", 7, Q8_0, Rule::Plain),
    mix("q4_0", 2, Q4_0, Rule::Plain),
    mix("q4_1", 3, Q4_1, Rule::Plain),
    mix("q5_0", 8, Q5_0, Rule::Plain),
    mix("q5_1", 9, Q5_1, Rule::Plain),
    mix("q2_k", 10, Q2_K, Rule::Q2),
    mix("q3_k_s", 11, Q3_K, Rule::Plain),
    mix("q3_k_m", 12, Q3_K, Rule::Q3Medium),
    mix("q3_k_l", 13, Q3_K, Rule::Q3Large),
    mix("q4_k_s", 14, Q4_K, Rule::Q4Small),
    mix("q4_k_m", 15, Q4_K, Rule::Medium),
    mix("q5_k_s", 16, Q5_K, Rule::Plain),
    mix("q5_k_m", 17, Q5_K, Rule::Medium),
    mix("q6_k", 18, Q6_K, Rule::Plain),
    mix("iq4_nl", 25, IQ4_NL, Rule::Nonlinear),
    mix("iq4_xs", 30, IQ4_XS, Rule::Nonlinear),
];

const fn mix(name: &'static str, file_type: u32, base: TensorType, rule: Rule) -> Mix {
    Mix {
        name,
        file_type,
        base,
        rule,
    }
}

/// What a matrix does, as far as mixtures tell matrices apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The embedding, and the output with it.
    Embedding,
    /// Values, of a layer.
    AttnV(u32),
    /// The output of attention.
    AttnOutput,
    /// The way down from the feed-forward width, of a layer.
    FfnDown(u32),
    /// Any other.
    Other,
}

impl Mix {
    /// The mixture called so.
    pub fn find(name: &str) -> Option<&'static Mix> {
        MIXES.iter().find(|mix| mix.name == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        MIXES.map(|mix| mix.name).join(", ")
    }

    /// The type of a matrix with rows of `row_len` weights.
    pub fn type_of(&self, shape: &Shape, role: Role, row_len: u64) -> TensorType {
        let wanted = match role {
            Role::Embedding => self.embedding(row_len),
            Role::AttnV(layer) => self.attn_v(shape, layer),
            Role::AttnOutput => self.attn_output(),
            Role::FfnDown(layer) => self.ffn_down(shape.n_layer, layer),
            Role::Other => self.base,
        };
        fallback(wanted, row_len)
    }

    fn embedding(&self, row_len: u64) -> TensorType {
        if self.rule == Rule::Converted {
            self.base
        } else if self.base == Q8_0 || !row_len.is_multiple_of(self.base.block_len()) {
            Q8_0
        } else {
            Q6_K
        }
    }

    fn attn_v(&self, shape: &Shape, layer: u32) -> TensorType {
        let shared = shape.heads_per_kv() >= 4;
        match self.rule {
            Rule::Q2 if shared => Q4_K,
            Rule::Q2 => Q3_K,
            Rule::Q3Medium if layer < 2 => Q5_K,
            Rule::Q3Medium => Q4_K,
            Rule::Q3Large => Q5_K,
            Rule::Q4Small if layer < 4 => Q5_K,
            Rule::Medium if is_favoured(layer, shape.n_layer) => Q6_K,
            Rule::Nonlinear if shared => Q5_K,
            _ => self.base,
        }
    }

    fn ffn_down(&self, n_layer: u32, layer: u32) -> TensorType {
        match self.rule {
            Rule::Q2 => Q3_K,
            Rule::Q3Medium if layer < n_layer / 16 => Q5_K,
            Rule::Q3Medium => Q4_K,
            Rule::Q3Large => Q5_K,
            Rule::Q4Small | Rule::Nonlinear if layer < n_layer / 8 => Q5_K,
            Rule::Medium if is_favoured(layer, n_layer) => Q6_K,
            _ => self.base,
        }
    }

    fn attn_output(&self) -> TensorType {
        match self.rule {
            Rule::Q2 => Q3_K,
            Rule::Q3Medium => Q4_K,
            Rule::Q3Large => Q5_K,
            _ => self.base,
        }
    }
}

/// Whether a layer's values and way down deserve more bits (llama.cpp's `use_more_bits`).
fn is_favoured(layer: u32, n_layer: u32) -> bool {
    let eighth = n_layer / 8;
    layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2
}

/// The type in place of `ty` where rows are no whole number of its blocks.
fn fallback(ty: TensorType, row_len: u64) -> TensorType {
    let fits = |ty: TensorType| row_len.is_multiple_of(ty.block_len());
    let smaller = match ty {
        _ if fits(ty) => return ty,
        Q2_K | Q3_K => Q4_0,
        Q4_K => Q5_0,
        Q5_K => Q5_1,
        Q6_K => Q8_0,
        IQ4_XS => IQ4_NL,
        _ => F16,
    };
    if fits(smaller) { smaller } else { F16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(mix: &str, shape: &str) -> impl Fn(Role, u64) -> TensorType {
        let (mix, shape) = (Mix::find(mix).unwrap(), Shape::find(shape).unwrap());
        move |role, row_len| mix.type_of(shape, role, row_len)
    }

    #[test]
    fn q4_k_m_of_qwen3_is_what_llama_quantize_makes() {
        let ty = types("q4_k_m", "qwen3-4b");
        assert_eq!(ty(Role::Embedding, 2560), Q6_K);
        assert_eq!(ty(Role::Other, 2560), Q4_K);
        assert_eq!(ty(Role::AttnOutput, 4096), Q4_K);
        let favoured: Vec<u32> = (0..36)
            .filter(|layer| ty(Role::FfnDown(*layer), 9728) == Q6_K)
            .collect();
        let expected = [
            0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 31, 32, 33, 34, 35,
        ];
        assert_eq!(favoured, expected);
        assert!(
            favoured
                .iter()
                .all(|layer| ty(Role::AttnV(*layer), 2560) == Q6_K)
        );
    }

    /// The types of the published Gemma 3 270M Q4_K_M, whose rows of 640 hold no super-blocks.
    #[test]
    fn rows_without_super_blocks_fall_back() {
        let ty = types("q4_k_m", "gemma3-270m");
        assert_eq!(ty(Role::Embedding, 640), Q8_0);
        assert_eq!(ty(Role::Other, 640), Q5_0);
        assert_eq!(ty(Role::AttnV(0), 640), Q8_0);
        assert_eq!(ty(Role::AttnOutput, 1024), Q4_K);
        assert_eq!(ty(Role::FfnDown(0), 2048), Q6_K);
        assert_eq!(fallback(Q8_0, 40), F16);
        assert_eq!(fallback(Q4_K, 40), F16);
    }

    #[test]
    fn heads_that_share_much_get_more_bits() {
        assert_eq!(types("q2_k", "qwen3-4b")(Role::AttnV(9), 2560), Q4_K);
        assert_eq!(types("q2_k", "qwen3-0.6b")(Role::AttnV(9), 1024), Q3_K);
        assert_eq!(types("iq4_xs", "qwen3-4b")(Role::AttnV(9), 2560), Q5_K);
        assert_eq!(types("iq4_xs", "qwen3-0.6b")(Role::AttnV(9), 1024), IQ4_XS);
    }

    #[test]
    fn plain_mixtures_keep_their_type() {
        for (name, base, embedding) in [
            ("f16", F16, F16),
            ("q8_0", Q8_0, Q8_0),
            ("q4_1", Q4_1, Q6_K),
        ] {
            let ty = types(name, "qwen3-0.6b");
            assert_eq!(ty(Role::Embedding, 1024), embedding);
            for role in [
                Role::AttnV(0),
                Role::AttnOutput,
                Role::FfnDown(0),
                Role::Other,
            ] {
                assert_eq!(ty(role, 1024), base);
            }
        }
    }
}
