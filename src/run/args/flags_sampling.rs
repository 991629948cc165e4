//! Flags about choosing tokens. Defaults are llama.cpp's.

use super::flag::Act::{Set, Value};
use super::flag::{Chapter, Flag};
use crate::sampling::{Mirostat, SamplerKind};

pub(super) const FLAGS: &[Flag] = &[
    Flag {
        long: "seed",
        also: &[],
        dash: &["s"],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Random seed [default: -1 = a fresh one, printed]",
        more: "",
        act: Value("N", |c, v| {
            let seed = v.int(-1..=i64::from(u32::MAX))?;
            // llama.cpp's -1 is all ones, which a user may also write out.
            c.seed = u32::try_from(seed).ok().filter(|&seed| seed != u32::MAX);
            Ok(())
        }),
    },
    Flag {
        long: "samplers",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Samplers in order, separated by ;",
        more: "[default: penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]",
        act: Value("NAMES", |c, v| {
            c.sampling.chain =
                SamplerKind::chain_from_names(v.str()?).map_err(|error| error.to_string())?;
            Ok(())
        }),
    },
    Flag {
        long: "sampling-seq",
        also: &["sampler-seq"],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Samplers in order, one letter each [default: edskypmxt]",
        more: "e penalties, d dry, s top_n_sigma, k top_k, y typ_p, p top_p, m min_p, x xtc, \
               t temperature",
        act: Value("LETTERS", |c, v| {
            c.sampling.chain =
                SamplerKind::chain_from_letters(v.str()?).map_err(|error| error.to_string())?;
            Ok(())
        }),
    },
    Flag {
        long: "temp",
        also: &["temperature"],
        dash: &[],
        env: &["LLAMA_ARG_TEMPERATURE"],
        chapter: Chapter::Sampling,
        help: "Temperature; 0 or less takes the best token [default: 0.8]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.temp = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "dynatemp-range",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Let the temperature follow the entropy, by this much [default: 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dynatemp_range = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "dynatemp-exp",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Exponent of the entropy in it [default: 1]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dynatemp_exponent = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "top-k",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_TOP_K"],
        chapter: Chapter::Sampling,
        help: "Keep the N best tokens [default: 40; 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            let k = v.int(i64::from(i32::MIN)..=i64::from(i32::MAX))?;
            c.sampling.top_k = i32::try_from(k).map_err(|error| error.to_string())?;
            Ok(())
        }),
    },
    Flag {
        long: "top-p",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_TOP_P"],
        chapter: Chapter::Sampling,
        help: "Keep the best tokens up to this probability [default: 0.95; 1 = off]",
        more: "",
        act: Value("P", |c, v| {
            c.sampling.top_p = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "min-p",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_MIN_P"],
        chapter: Chapter::Sampling,
        help: "Keep tokens at least P times as probable as the best [default: 0.05; 0 = off]",
        more: "",
        act: Value("P", |c, v| {
            c.sampling.min_p = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "typical",
        also: &["typical-p"],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Locally typical sampling [default: 1 = off]",
        more: "",
        act: Value("P", |c, v| {
            c.sampling.typical_p = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "top-nsigma",
        also: &["top-n-sigma"],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Keep logits within N standard deviations of the best [default: -1 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.top_n_sigma = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "xtc-probability",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Chance of excluding the top choices [default: 0 = off]",
        more: "",
        act: Value("P", |c, v| {
            c.sampling.xtc_probability = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "xtc-threshold",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Probability of a top choice [default: 0.1; above 0.5 = off]",
        more: "",
        act: Value("P", |c, v| {
            c.sampling.xtc_threshold = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "repeat-last-n",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Last tokens that the penalties look at [default: 64; 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.repeat_last_n = last_n(v.int(0..=MAX_LAST_N)?)?;
            Ok(())
        }),
    },
    Flag {
        long: "repeat-penalty",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_REPEAT_PENALTY"],
        chapter: Chapter::Sampling,
        help: "Divides the logits of seen tokens [default: 1 = off]",
        more: "",
        act: Value("N", |c, v| {
            let penalty = v.float()?;
            if penalty <= 0.0 || !(1.0 / penalty).is_finite() {
                return Err(format!("{penalty} is not above 0"));
            }
            c.sampling.repeat_penalty = penalty;
            Ok(())
        }),
    },
    Flag {
        long: "presence-penalty",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_PRESENCE_PENALTY"],
        chapter: Chapter::Sampling,
        help: "Subtracted from the logits of seen tokens [default: 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.presence_penalty = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "frequency-penalty",
        also: &[],
        dash: &[],
        env: &["LLAMA_ARG_FREQUENCY_PENALTY"],
        chapter: Chapter::Sampling,
        help: "Subtracted once for each time a token was seen [default: 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.frequency_penalty = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "dry-multiplier",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Scale of the DRY penalty on repeated runs [default: 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dry_multiplier = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "dry-base",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Its growth with the run's length, 1 or more [default: 1.75]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dry_base = v.float_in(1.0..=f32::MAX)?;
            Ok(())
        }),
    },
    Flag {
        long: "dry-allowed-length",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Longest repeated run it leaves alone [default: 2]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dry_allowed_length = last_n(v.int(0..=MAX_LAST_N)?)?;
            Ok(())
        }),
    },
    Flag {
        long: "dry-penalty-last-n",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Last tokens it looks at [default: 64; 0 = off]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.dry_penalty_last_n = last_n(v.int(0..=MAX_LAST_N)?)?;
            Ok(())
        }),
    },
    Flag {
        long: "dry-sequence-breaker",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: r#"Texts that end a run [default: \n : " *]; may be repeated"#,
        more: "The first one given replaces the defaults; none = no breaker at all.",
        act: Value("TEXT", |c, v| {
            let text = v.str()?;
            if c.sampling.dry_sequence_breakers == default_breakers() || text == "none" {
                c.sampling.dry_sequence_breakers.clear();
            }
            if text != "none" {
                c.sampling.dry_sequence_breakers.push(text.to_owned());
            }
            Ok(())
        }),
    },
    Flag {
        long: "mirostat",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "0 = off, 1 = Mirostat, 2 = Mirostat 2.0 [default: 0]",
        more: "With it, the chain is the temperature alone.",
        act: Value("N", |c, v| {
            c.sampling.mirostat = v.one_of(&[
                ("0", Mirostat::Off),
                ("1", Mirostat::V1),
                ("2", Mirostat::V2),
            ])?;
            Ok(())
        }),
    },
    Flag {
        long: "mirostat-lr",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Its learning rate eta [default: 0.1]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.mirostat_eta = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "mirostat-ent",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Its target surprise tau, in bits [default: 5]",
        more: "",
        act: Value("N", |c, v| {
            c.sampling.mirostat_tau = v.float()?;
            Ok(())
        }),
    },
    Flag {
        long: "logit-bias",
        also: &[],
        dash: &["l"],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Add to a token's logit, as 15043+1 or 2-inf; may be repeated",
        more: "",
        act: Value("ID+BIAS", |c, v| {
            c.sampling.logit_bias.push(v.logit_bias()?);
            Ok(())
        }),
    },
    Flag {
        long: "ignore-eos",
        also: &[],
        dash: &[],
        env: &[],
        chapter: Chapter::Sampling,
        help: "Never choose an end-of-generation token",
        more: "",
        act: Set(|c| c.ignore_eos = true),
    },
];

/// Bounds what the sampler allocates: more tokens than any run is likely to hold.
const MAX_LAST_N: i64 = 1 << 24;

fn last_n(number: i64) -> Result<usize, String> {
    usize::try_from(number).map_err(|error| error.to_string())
}

fn default_breakers() -> Vec<String> {
    crate::sampling::SamplerConfig::default().dry_sequence_breakers
}
