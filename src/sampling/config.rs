//! What the sampler is asked to do: one plain struct with llama.cpp's defaults, the list of
//! samplers and the two spellings of their order (`--samplers`, `--sampling-seq`).

use thiserror::Error;

/// One stage of the chain. Each narrows or reshapes the candidates; the final draw is not a
/// stage, it always follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Repeat, presence and frequency penalties (`penalties`, `e`).
    Penalties,
    /// "Don't repeat yourself": penalizes the continuation of a repeated run (`dry`, `d`).
    Dry,
    /// Keeps logits within n standard deviations of the largest (`top_n_sigma`, `s`).
    TopNSigma,
    /// Keeps the k largest logits (`top_k`, `k`).
    TopK,
    /// Keeps tokens whose surprise is nearest to the entropy (`typ_p`, `y`).
    Typical,
    /// Keeps the smallest set whose probability reaches p (`top_p`, `p`).
    TopP,
    /// Keeps tokens at least p times as probable as the best (`min_p`, `m`).
    MinP,
    /// Sometimes drops all but the least probable of the probable tokens (`xtc`, `x`).
    Xtc,
    /// Divides the logits (`temperature`, `t`).
    Temperature,
}

impl SamplerKind {
    /// llama.cpp's default order, `edskypmxt`.
    pub const DEFAULT_CHAIN: [SamplerKind; 9] = [
        SamplerKind::Penalties,
        SamplerKind::Dry,
        SamplerKind::TopNSigma,
        SamplerKind::TopK,
        SamplerKind::Typical,
        SamplerKind::TopP,
        SamplerKind::MinP,
        SamplerKind::Xtc,
        SamplerKind::Temperature,
    ];

    /// The name used in `--samplers`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SamplerKind::Penalties => "penalties",
            SamplerKind::Dry => "dry",
            SamplerKind::TopNSigma => "top_n_sigma",
            SamplerKind::TopK => "top_k",
            SamplerKind::Typical => "typ_p",
            SamplerKind::TopP => "top_p",
            SamplerKind::MinP => "min_p",
            SamplerKind::Xtc => "xtc",
            SamplerKind::Temperature => "temperature",
        }
    }

    /// The letter used in `--sampling-seq`.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            SamplerKind::Penalties => 'e',
            SamplerKind::Dry => 'd',
            SamplerKind::TopNSigma => 's',
            SamplerKind::TopK => 'k',
            SamplerKind::Typical => 'y',
            SamplerKind::TopP => 'p',
            SamplerKind::MinP => 'm',
            SamplerKind::Xtc => 'x',
            SamplerKind::Temperature => 't',
        }
    }

    /// The sampler of a name; `-`, `_` and case do not count, and llama.cpp's aliases
    /// (`nucleus`, `temp`, `typ`) are known.
    fn from_name(name: &str) -> Option<SamplerKind> {
        let plain: String = name
            .chars()
            .filter(|c| !"-_".contains(*c))
            .flat_map(char::to_lowercase)
            .collect();
        let canonical = match plain.as_str() {
            "nucleus" => "topp",
            "temp" => "temperature",
            "typ" => "typp",
            other => other,
        };
        Self::DEFAULT_CHAIN
            .into_iter()
            .find(|kind| kind.name().replace('_', "") == canonical)
    }

    /// Parses `--samplers`: names separated by `;`. An empty text is an empty chain, which
    /// draws from the model's own distribution.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSampler`] with the name that is not one.
    pub fn chain_from_names(text: &str) -> Result<Vec<SamplerKind>, ConfigError> {
        text.split(';')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(|name| {
                Self::from_name(name).ok_or_else(|| ConfigError::UnknownSampler(name.to_owned()))
            })
            .collect()
    }

    /// Parses `--sampling-seq`: one letter a sampler.
    ///
    /// # Errors
    /// [`ConfigError::UnknownSampler`] with the letter that is not one.
    pub fn chain_from_letters(text: &str) -> Result<Vec<SamplerKind>, ConfigError> {
        text.chars()
            .map(|letter| {
                Self::DEFAULT_CHAIN
                    .into_iter()
                    .find(|kind| kind.letter() == letter)
                    .ok_or_else(|| ConfigError::UnknownSampler(letter.to_string()))
            })
            .collect()
    }
}

/// Which form of Mirostat chooses the token (Basu et al. 2020, arXiv 2007.14966). With either,
/// the chain is temperature alone, as in llama.cpp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mirostat {
    /// Off.
    #[default]
    Off,
    /// Version 1: estimates Zipf's exponent from the 100 best tokens and derives a k.
    V1,
    /// Version 2: drops the tokens whose surprise exceeds the running bound.
    V2,
}

/// What the sampler does; [`SamplerConfig::default`] holds llama.cpp's defaults. A value that
/// disables a sampler is named at its field.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerConfig {
    /// Seed of every random draw.
    pub seed: u32,
    /// The chain, in order.
    pub chain: Vec<SamplerKind>,
    /// Temperature; at or below 0 the best token is taken.
    pub temp: f32,
    /// Half width of the entropy-driven temperature range (`--dynatemp-range`); 0 = off.
    pub dynatemp_range: f32,
    /// Exponent of the entropy-driven temperature.
    pub dynatemp_exponent: f32,
    /// How many tokens top-k keeps; at or below 0 = off.
    pub top_k: i32,
    /// Top-p's probability; at or above 1 = off.
    pub top_p: f32,
    /// Min-p's share of the best probability; at or below 0 = off.
    pub min_p: f32,
    /// Locally typical sampling's probability; at or above 1 = off.
    pub typical_p: f32,
    /// Standard deviations kept by top-n-sigma; at or below 0 = off.
    pub top_n_sigma: f32,
    /// Chance that XTC acts on a token; at or below 0 = off.
    pub xtc_probability: f32,
    /// Probability from which XTC counts a token as a top choice; above 0.5 = off.
    pub xtc_threshold: f32,
    /// How many of the last tokens the penalties look at; 0 = off.
    pub repeat_last_n: usize,
    /// Divides (positive) or multiplies (negative) the logits of seen tokens; 1 = off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logit of each seen token; 0 = off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit for each time it was seen; 0 = off.
    pub frequency_penalty: f32,
    /// Scale of the DRY penalty; 0 = off.
    pub dry_multiplier: f32,
    /// Base of the DRY penalty's growth with the run's length; below 1 = off.
    pub dry_base: f32,
    /// Longest repeated run that DRY leaves alone.
    pub dry_allowed_length: usize,
    /// How many of the last tokens DRY looks at; 0 = off.
    pub dry_penalty_last_n: usize,
    /// Texts that end a repeated run. Turned into token form by [`super::DryBreakers`].
    pub dry_sequence_breakers: Vec<String>,
    /// Mirostat version.
    pub mirostat: Mirostat,
    /// Mirostat's target surprise tau, in bits.
    pub mirostat_tau: f32,
    /// Mirostat's learning rate eta.
    pub mirostat_eta: f32,
    /// Added to the logits of these ids before everything else; `-inf` rules a token out.
    pub logit_bias: Vec<(u32, f32)>,
}

impl Default for SamplerConfig {
    fn default() -> Self {
        SamplerConfig {
            seed: 0,
            chain: SamplerKind::DEFAULT_CHAIN.to_vec(),
            temp: 0.8,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            repeat_last_n: 64,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_penalty_last_n: 64,
            dry_sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            mirostat: Mirostat::Off,
            mirostat_tau: 5.0,
            mirostat_eta: 0.1,
            logit_bias: Vec::new(),
        }
    }
}

/// A sampler configuration that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigError {
    /// A name or letter that is not a sampler.
    #[error("'{0}' is not a sampler; known are {known}", known = known_samplers())]
    UnknownSampler(String),
    /// A number that is NaN or infinite where a finite one is needed.
    #[error("{name} is {value}, but must be a finite number")]
    NotFinite {
        /// The field.
        name: &'static str,
        /// Its value.
        value: f32,
    },
    /// A repeat penalty that cannot divide.
    #[error("repeat_penalty is {0}, but must be above 0")]
    RepeatPenalty(f32),
    /// A biased id that the vocabulary does not have.
    #[error("logit bias for token {id}, but the vocabulary has {n_vocab} tokens")]
    BiasId {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// A bias that is NaN or plus infinity.
    #[error("logit bias of token {id} is {bias}; use a finite number or -inf")]
    Bias {
        /// The id.
        id: u32,
        /// Its bias.
        bias: f32,
    },
}

fn known_samplers() -> String {
    let names: Vec<String> = SamplerKind::DEFAULT_CHAIN
        .iter()
        .map(|kind| format!("{} ({})", kind.name(), kind.letter()))
        .collect();
    names.join(", ")
}

impl SamplerConfig {
    /// Takes the best token each time: temperature 0, all else as by default.
    #[must_use]
    pub fn greedy() -> Self {
        SamplerConfig {
            temp: 0.0,
            ..SamplerConfig::default()
        }
    }

    /// Whether every choice is the highest of the model's own logits: nothing draws, and nothing
    /// changes which is the highest. (Top-k, top-p, min-p and top-n-sigma never drop it.)
    #[must_use]
    pub fn is_argmax(&self) -> bool {
        let cools = self.temp <= 0.0 && self.chain.contains(&SamplerKind::Temperature);
        let repeats = self.repeat_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
            || self.dry_multiplier != 0.0;
        let drops = self.typical_p < 1.0 || self.xtc_probability > 0.0;
        let plain = self.mirostat == Mirostat::Off && self.logit_bias.is_empty();
        cools && plain && !repeats && !drops
    }

    /// Checks everything that does not depend on the logits.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self, n_vocab: usize) -> Result<(), ConfigError> {
        let finite = [
            ("temp", self.temp),
            ("dynatemp_range", self.dynatemp_range),
            ("dynatemp_exponent", self.dynatemp_exponent),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("top_n_sigma", self.top_n_sigma),
            ("xtc_probability", self.xtc_probability),
            ("xtc_threshold", self.xtc_threshold),
            ("repeat_penalty", self.repeat_penalty),
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
            ("dry_multiplier", self.dry_multiplier),
            ("dry_base", self.dry_base),
            ("mirostat_tau", self.mirostat_tau),
            ("mirostat_eta", self.mirostat_eta),
        ];
        if let Some(&(name, value)) = finite.iter().find(|(_, value)| !value.is_finite()) {
            return Err(ConfigError::NotFinite { name, value });
        }
        if self.repeat_penalty <= 0.0 || !(1.0 / self.repeat_penalty).is_finite() {
            return Err(ConfigError::RepeatPenalty(self.repeat_penalty));
        }
        for &(id, bias) in &self.logit_bias {
            if id as usize >= n_vocab {
                return Err(ConfigError::BiasId { id, n_vocab });
            }
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(ConfigError::Bias { id, bias });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_chain_is_llama_cpps() {
        let names: Vec<&str> = SamplerKind::DEFAULT_CHAIN
            .iter()
            .map(|k| k.name())
            .collect();
        assert_eq!(
            names.join(";"),
            "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
        );
        let letters: String = SamplerKind::DEFAULT_CHAIN
            .iter()
            .map(|k| k.letter())
            .collect();
        assert_eq!(letters, "edskypmxt");
    }

    #[test]
    fn argmax_is_what_nothing_changes() {
        assert!(SamplerConfig::greedy().is_argmax());
        assert!(!SamplerConfig::default().is_argmax());
        let changes: [fn(&mut SamplerConfig); 6] = [
            |c| c.chain.retain(|kind| *kind != SamplerKind::Temperature),
            |c| c.repeat_penalty = 1.1,
            |c| c.dry_multiplier = 0.8,
            |c| c.typical_p = 0.9,
            |c| c.mirostat = Mirostat::V2,
            |c| c.logit_bias.push((2, f32::NEG_INFINITY)),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut config = SamplerConfig::greedy();
            change(&mut config);
            assert!(!config.is_argmax(), "change {at}");
        }
    }

    #[test]
    fn chains_are_read_in_both_spellings() {
        use SamplerKind::{MinP, Temperature, TopK, TopNSigma, TopP, Typical};
        assert_eq!(
            SamplerKind::chain_from_names("top_k; Top-P ;minp;nucleus;temp;typ;top-n-sigma;"),
            Ok(vec![
                TopK,
                TopP,
                MinP,
                TopP,
                Temperature,
                Typical,
                TopNSigma
            ])
        );
        assert_eq!(
            SamplerKind::chain_from_letters("kpt"),
            Ok(vec![TopK, TopP, Temperature])
        );
        assert_eq!(SamplerKind::chain_from_names(""), Ok(vec![]));
        assert_eq!(
            SamplerKind::chain_from_names("top_k;infill"),
            Err(ConfigError::UnknownSampler("infill".to_owned()))
        );
        let error = SamplerKind::chain_from_letters("kq").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("'q' is not a sampler; known are penalties (e),")
        );
    }

    #[test]
    fn bad_numbers_are_named() {
        let broken = |change: fn(&mut SamplerConfig)| {
            let mut config = SamplerConfig::default();
            change(&mut config);
            config.validate(10).unwrap_err().to_string()
        };
        assert_eq!(SamplerConfig::default().validate(10), Ok(()));
        assert_eq!(
            broken(|c| c.top_p = f32::NAN),
            "top_p is NaN, but must be a finite number"
        );
        assert_eq!(
            broken(|c| c.repeat_penalty = 0.0),
            "repeat_penalty is 0, but must be above 0"
        );
        assert_eq!(
            broken(|c| c.repeat_penalty = 1e-45),
            "repeat_penalty is 0.000000000000000000000000000000000000000000001, but must be above 0"
        );
        assert_eq!(
            broken(|c| c.logit_bias = vec![(10, 1.0)]),
            "logit bias for token 10, but the vocabulary has 10 tokens"
        );
        assert_eq!(
            broken(|c| c.logit_bias = vec![(3, f32::INFINITY)]),
            "logit bias of token 3 is inf; use a finite number or -inf"
        );
    }
}
