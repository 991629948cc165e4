//! Tensor types: how many weights a block holds and how many bytes it takes.
//!
//! Ids, block lengths and block sizes follow ggml's `enum ggml_type` and its block structs.
//! A GGUF file may name any of them; which ones the engine computes with is the model's
//! business.

use std::fmt;

/// Declares the enum, the id table, the names and the block geometry from one list.
macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $name:literal, $len:literal, $bytes:literal;)*) => {
        /// A ggml tensor type that GGUF files may hold. Names are ggml's own, so that they can
        /// be found in its sources.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum TensorType {
            $(#[doc = concat!("`", $name, "`: ", $len, " weights in ", $bytes, " bytes; ggml id ", $id, ".")]
              $variant,)*
        }

        impl TensorType {
            /// Every type, by ascending ggml id.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$variant,)*];

            /// The type with this ggml id; `None` when ggml has none (or no longer has one).
            pub const fn from_id(id: u32) -> Option<TensorType> {
                match id { $($id => Some(TensorType::$variant),)* _ => None }
            }

            /// The ggml id, as stored in files.
            pub const fn id(self) -> u32 {
                match self { $(TensorType::$variant => $id,)* }
            }

            /// The conventional name, such as `Q4_K`.
            pub const fn name(self) -> &'static str {
                match self { $(TensorType::$variant => $name,)* }
            }

            /// Weights in one block; a row holds a whole number of blocks.
            pub const fn block_len(self) -> u64 {
                match self { $(TensorType::$variant => $len,)* }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> u64 {
                match self { $(TensorType::$variant => $bytes,)* }
            }
        }
    };
}

tensor_types! {
    F32 = 0, "F32", 1, 4;
    F16 = 1, "F16", 1, 2;
    Q4_0 = 2, "Q4_0", 32, 18;
    Q4_1 = 3, "Q4_1", 32, 20;
    Q5_0 = 6, "Q5_0", 32, 22;
    Q5_1 = 7, "Q5_1", 32, 24;
    Q8_0 = 8, "Q8_0", 32, 34;
    Q8_1 = 9, "Q8_1", 32, 36;
    Q2_K = 10, "Q2_K", 256, 84;
    Q3_K = 11, "Q3_K", 256, 110;
    Q4_K = 12, "Q4_K", 256, 144;
    Q5_K = 13, "Q5_K", 256, 176;
    Q6_K = 14, "Q6_K", 256, 210;
    Q8_K = 15, "Q8_K", 256, 292;
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    IQ1_S = 19, "IQ1_S", 256, 50;
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    IQ3_S = 21, "IQ3_S", 256, 110;
    IQ2_S = 22, "IQ2_S", 256, 82;
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    I8 = 24, "I8", 1, 1;
    I16 = 25, "I16", 1, 2;
    I32 = 26, "I32", 1, 4;
    I64 = 27, "I64", 1, 8;
    F64 = 28, "F64", 1, 8;
    IQ1_M = 29, "IQ1_M", 256, 56;
    BF16 = 30, "BF16", 1, 2;
    TQ1_0 = 34, "TQ1_0", 256, 54;
    TQ2_0 = 35, "TQ2_0", 256, 66;
    MXFP4 = 39, "MXFP4", 32, 17;
    NVFP4 = 40, "NVFP4", 64, 36;
    Q1_0 = 41, "Q1_0", 128, 18;
    Q2_0 = 42, "Q2_0", 64, 18;
}

impl TensorType {
    /// The name of a type that ggml once had and files may still carry.
    pub const fn removed_name(id: u32) -> Option<&'static str> {
        Some(match id {
            4 => "Q4_2",
            5 => "Q4_3",
            31 => "Q4_0_4_4",
            32 => "Q4_0_4_8",
            33 => "Q4_0_8_8",
            36 => "IQ4_NL_4_4",
            37 => "IQ4_NL_4_8",
            38 => "IQ4_NL_8_8",
            _ => return None,
        })
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_ascend() {
        for pair in TensorType::ALL.windows(2) {
            assert!(pair[0].id() < pair[1].id());
        }
        for &ty in TensorType::ALL {
            assert_eq!(TensorType::from_id(ty.id()), Some(ty));
            assert_eq!(TensorType::removed_name(ty.id()), None);
        }
    }

    #[test]
    fn every_id_below_the_last_is_known_or_removed() {
        for id in 0..=42 {
            let known = TensorType::from_id(id).is_some();
            let removed = TensorType::removed_name(id).is_some();
            assert!(known != removed, "id {id}");
        }
        assert_eq!(TensorType::from_id(43), None);
        assert_eq!(TensorType::from_id(u32::MAX), None);
    }

    /// Block sizes summed from their parts: scales as f16 (2 bytes), then packed digits.
    #[test]
    fn block_bytes_follow_from_their_parts() {
        let parts = [
            (TensorType::Q4_0, 2 + 32 / 2),
            (TensorType::Q4_1, 2 + 2 + 32 / 2),
            (TensorType::Q5_0, 2 + 4 + 32 / 2),
            (TensorType::Q5_1, 2 + 2 + 4 + 32 / 2),
            (TensorType::Q8_0, 2 + 32),
            (TensorType::Q8_1, 2 + 2 + 32),
            (TensorType::Q2_K, 256 / 16 + 256 / 4 + 2 + 2),
            (TensorType::Q3_K, 256 / 8 + 256 / 4 + 12 + 2),
            (TensorType::Q4_K, 2 + 2 + 12 + 256 / 2),
            (TensorType::Q5_K, 2 + 2 + 12 + 256 / 8 + 256 / 2),
            (TensorType::Q6_K, 256 / 2 + 256 / 4 + 256 / 16 + 2),
            (TensorType::Q8_K, 4 + 256 + 2 * 256 / 16),
            (TensorType::IQ4_NL, 2 + 32 / 2),
            (TensorType::IQ4_XS, 2 + 2 + 256 / 64 + 256 / 2),
            (TensorType::IQ1_M, 256 / 8 + 256 / 16 + 256 / 32),
            (TensorType::TQ1_0, (256 - 4 * 256 / 64) / 5 + 256 / 64 + 2),
        ];
        for (ty, bytes) in parts {
            assert_eq!(ty.block_bytes(), bytes, "{ty}");
        }
    }
}
