//! Instruction-set levels, and the proof that the processor has one.
//!
//! [`Level`] is a name; [`Kernels`] is a name whose presence was checked. Whoever holds a
//! [`Kernels`] may run that level's code, so the check happens once, at construction, and no
//! kernel ever looks at the processor.

use crate::simd::Scalar;
use crate::simd::Simd;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512, AvxVnni};
use std::fmt;
use std::str::FromStr;

/// An instruction-set level. Levels differ in speed alone: their results are the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Plain Rust, on every machine. Defines what the others must compute.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (2013 and later).
    Avx2,
    /// [`Level::Avx2`] with the 256-bit AVX-VNNI integer products (most desktops since 2021).
    AvxVnni,
    /// AVX-512 F, BW, VL, DQ and VNNI (servers since 2019, AMD since Zen 4).
    Avx512,
    /// [`Level::Avx512`] with the tiles of AMX in prompts' products (Xeons since 2023, on Linux).
    Amx,
}

impl Level {
    /// All levels, slowest first.
    pub const ALL: [Level; 5] = [
        Level::Scalar,
        Level::Avx2,
        Level::AvxVnni,
        Level::Avx512,
        Level::Amx,
    ];

    /// The name that [`FromStr`] reads and the command line shows.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::AvxVnni => "avxvnni",
            Level::Avx512 => "avx512",
            Level::Amx => "amx",
        }
    }

    /// Whether the processor, and the operating system, offer this level.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        use std::arch::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma") && has!("f16c");
        match self {
            Level::Scalar => true,
            Level::Avx2 => avx2,
            Level::AvxVnni => avx2 && has!("avxvnni"),
            Level::Avx512 => {
                avx2 && has!("avx512f")
                    && has!("avx512bw")
                    && has!("avx512vl")
                    && has!("avx512dq")
                    && has!("avx512vnni")
            }
            Level::Amx => Level::Avx512.is_available() && crate::Amx::new().is_some(),
        }
    }

    /// Whether the processor, and the operating system, offer this level.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn is_available(self) -> bool {
        self == Level::Scalar
    }

    /// The levels of this machine, slowest first. Never empty.
    pub fn available() -> Vec<Level> {
        Level::ALL
            .into_iter()
            .filter(|level| level.is_available())
            .collect()
    }

    /// The fastest level of this machine.
    pub fn best() -> Level {
        Level::ALL
            .into_iter()
            .rev()
            .find(|level| level.is_available())
            .unwrap_or(Level::Scalar)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no [`Level`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set {0:?}: choose one of scalar, avx2, avxvnni, avx512, amx")]
pub struct ParseLevelError(pub String);

impl FromStr for Level {
    type Err = ParseLevelError;

    fn from_str(name: &str) -> Result<Level, ParseLevelError> {
        Level::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or_else(|| ParseLevelError(name.to_owned()))
    }
}

/// The kernels of one level. Holding one proves that the processor has the level.
#[derive(Clone, Copy)]
pub struct Kernels(pub(crate) &'static Table);

/// One level's entry points, filled by the same generic code for each level.
pub(crate) struct Table {
    /// The level that the entries were compiled for.
    pub(crate) level: Level,
    pub(crate) elementwise: crate::elementwise::Table,
    pub(crate) norm: crate::norm::Table,
    pub(crate) rope: crate::rope::Table,
    pub(crate) attention: crate::attention::Table,
    pub(crate) argmax: crate::argmax::ArgmaxEntry,
    pub(crate) quantize: crate::quantize::Table,
    pub(crate) matmul: crate::matmul::Table,
    pub(crate) read: crate::limits::ReadFn,
}

impl Table {
    /// The table of `S`. Its entries may be called only where `S`'s level is available.
    const fn of<S: Simd>() -> Table {
        Table {
            level: S::LEVEL,
            elementwise: crate::elementwise::Table::of::<S>(),
            norm: crate::norm::Table::of::<S>(),
            rope: crate::rope::Table::of::<S>(),
            attention: crate::attention::Table::of::<S>(),
            argmax: crate::argmax::of::<S>(),
            quantize: crate::quantize::Table::of::<S>(),
            matmul: crate::matmul::table::<S>(),
            read: crate::limits::read::<S>(),
        }
    }
}

static SCALAR: Table = Table::of::<Scalar>();
#[cfg(target_arch = "x86_64")]
static AVX2: Table = Table::of::<Avx2>();
#[cfg(target_arch = "x86_64")]
static AVXVNNI: Table = Table::of::<AvxVnni>();
#[cfg(target_arch = "x86_64")]
static AVX512: Table = Table::of::<Avx512>();
/// AVX-512's, but for prompts' products and the activations that these take.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
static AMX: Table = Table {
    level: Level::Amx,
    attention: crate::attention::amx::table(),
    quantize: crate::quantize::Table::with_tiles::<Avx512>(),
    matmul: crate::matmul::amx::table(),
    ..Table::of::<Avx512>()
};

impl Kernels {
    /// The kernels of `level`, or `None` where the processor lacks it.
    pub fn new(level: Level) -> Option<Kernels> {
        level.is_available().then(|| Kernels(table(level)))
    }

    /// The level that these kernels are compiled for.
    pub fn level(self) -> Level {
        self.0.level
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kernels").field(&self.level()).finish()
    }
}

#[cfg(target_arch = "x86_64")]
fn table(level: Level) -> &'static Table {
    match level {
        Level::Scalar => &SCALAR,
        Level::Avx2 => &AVX2,
        Level::AvxVnni => &AVXVNNI,
        Level::Avx512 => &AVX512,
        #[cfg(target_os = "linux")]
        Level::Amx => &AMX,
        #[cfg(not(target_os = "linux"))]
        Level::Amx => unreachable!("AMX is used on Linux alone"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn table(_: Level) -> &'static Table {
    &SCALAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
        }
        assert_eq!(
            "AVX2".parse::<Level>(),
            Err(ParseLevelError("AVX2".to_owned()))
        );
    }

    #[test]
    fn kernels_exist_exactly_for_available_levels() {
        assert!(Level::available().contains(&Level::Scalar));
        assert!(Level::best().is_available());
        for level in Level::ALL {
            let kernels = Kernels::new(level);
            assert_eq!(kernels.is_some(), level.is_available());
            assert!(kernels.is_none_or(|k| k.level() == level));
        }
    }
}
