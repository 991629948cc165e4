//! The chain: biases, then the configured samplers in order, then the draw.

use super::candidates::{Candidate, Candidates};
use super::config::{ConfigError, Mirostat, SamplerConfig, SamplerKind};
use super::draw::draw;
use super::dry::{Dry, DryBreakers};
use super::penalties::Penalties;
use super::rng::Mt19937;
use super::{Choice, SampleError, mirostat, temperature, truncate};

/// One configured stage. Those that would change nothing are left out.
#[derive(Clone, Debug)]
enum Stage {
    Penalties(Penalties),
    Dry(Dry),
    TopNSigma(f32),
    TopK(usize),
    Typical(f32),
    TopP(f32),
    MinP(f32),
    Xtc {
        probability: f32,
        threshold: f32,
        rng: Box<Mt19937>,
    },
    Temperature(f32),
    DynamicTemperature {
        temp: f32,
        range: f32,
        exponent: f32,
    },
}

/// How the token is taken from what the stages leave.
#[derive(Clone, Debug)]
enum Last {
    Draw,
    MirostatV1(mirostat::State),
    MirostatV2(mirostat::State),
}

/// Chooses tokens. Its choices depend on the configuration, the tokens accepted and the bits
/// of the logits; on nothing else, on any machine. Allocates at construction only.
#[derive(Clone, Debug)]
pub struct Sampler {
    seed: u32,
    n_vocab: usize,
    bias: Vec<(u32, f32)>,
    stages: Vec<Stage>,
    last: Last,
    rng: Mt19937,
    candidates: Candidates,
    scratch: Vec<(f32, Candidate)>,
}

impl Sampler {
    /// A sampler for logits of `[n_vocab]`.
    ///
    /// # Errors
    /// [`ConfigError`] when the configuration cannot be carried out.
    pub fn new(config: &SamplerConfig, n_vocab: usize) -> Result<Self, ConfigError> {
        config.validate(n_vocab)?;
        let (stages, last) = match config.mirostat {
            Mirostat::Off => (chain(config, n_vocab), Last::Draw),
            version => {
                let state = mirostat::State::new(config.mirostat_tau, config.mirostat_eta);
                let last = match version {
                    Mirostat::V1 => Last::MirostatV1(state),
                    _ => Last::MirostatV2(state),
                };
                (vec![Stage::Temperature(config.temp)], last)
            }
        };
        let needs_scratch = stages
            .iter()
            .any(|stage| matches!(stage, Stage::Typical(_)));
        Ok(Sampler {
            seed: config.seed,
            n_vocab,
            bias: config.logit_bias.clone(),
            stages,
            last,
            rng: Mt19937::new(config.seed),
            candidates: Candidates::new(n_vocab),
            scratch: Vec::with_capacity(if needs_scratch { n_vocab } else { 0 }),
        })
    }

    /// Gives DRY its sequence breakers, which need a vocabulary. Without them nothing ends a
    /// run.
    #[must_use]
    pub fn with_dry_breakers(mut self, breakers: &DryBreakers) -> Self {
        for stage in &mut self.stages {
            if let Stage::Dry(dry) = stage {
                dry.set_breakers(breakers.clone());
            }
        }
        self
    }

    /// Whether DRY is at work, so that the caller can spare itself the breakers.
    #[must_use]
    pub fn uses_dry(&self) -> bool {
        self.stages
            .iter()
            .any(|stage| matches!(stage, Stage::Dry(_)))
    }

    /// Chooses a token from `logits`, `[n_vocab]`. The choice is not yet part of the text: see
    /// [`accept`](Sampler::accept).
    ///
    /// # Errors
    /// [`SampleError`]: NaN or plus infinity among the logits, another length than `n_vocab`,
    /// or every token ruled out.
    pub fn sample(&mut self, logits: &[f32]) -> Result<Choice, SampleError> {
        if logits.len() != self.n_vocab {
            let (got, wanted) = (logits.len(), self.n_vocab);
            return Err(SampleError::Length { got, wanted });
        }
        self.narrow(logits)?;
        let (candidates, rng) = (&mut self.candidates, &mut self.rng);
        let id = match &mut self.last {
            Last::Draw => draw(candidates, rng),
            Last::MirostatV1(state) => mirostat::v1(state, candidates, self.n_vocab, rng),
            Last::MirostatV2(state) => mirostat::v2(state, candidates, rng),
        };
        let id = id.ok_or(SampleError::NothingLeft)?;
        let logit = logits
            .get(id as usize)
            .copied()
            .ok_or(SampleError::NothingLeft)?;
        Ok(Choice { id, logit })
    }

    /// Runs everything but the draw.
    fn narrow(&mut self, logits: &[f32]) -> Result<(), SampleError> {
        let candidates = &mut self.candidates;
        candidates.load(logits)?;
        for &(id, bias) in &self.bias {
            candidates.adjust(id, |logit| logit + bias);
        }
        for stage in &mut self.stages {
            match stage {
                Stage::Penalties(penalties) => penalties.apply(candidates),
                Stage::Dry(dry) => dry.apply(candidates),
                Stage::TopNSigma(n) => truncate::top_n_sigma(candidates, *n),
                Stage::TopK(k) => candidates.keep_top(*k),
                Stage::Typical(p) => truncate::typical(candidates, *p, &mut self.scratch),
                Stage::TopP(p) => truncate::top_p(candidates, *p),
                Stage::MinP(p) => truncate::min_p(candidates, *p),
                Stage::Xtc {
                    probability,
                    threshold,
                    rng,
                } => {
                    truncate::xtc(candidates, *probability, *threshold, rng);
                }
                Stage::Temperature(temp) => temperature::temperature(candidates, *temp),
                Stage::DynamicTemperature {
                    temp,
                    range,
                    exponent,
                } => {
                    temperature::dynamic_temperature(candidates, *temp, *range, *exponent);
                }
            }
        }
        // Biases and penalties of absurd size can overflow; then no choice has a meaning.
        if candidates.max() == f32::INFINITY {
            return Err(SampleError::Overflow);
        }
        Ok(())
    }

    /// Makes a token part of the text that penalties look at: each token of the prompt, then
    /// each chosen one.
    pub fn accept(&mut self, id: u32) {
        for stage in &mut self.stages {
            match stage {
                Stage::Penalties(penalties) => penalties.accept(id),
                Stage::Dry(dry) => dry.accept(id),
                _ => {}
            }
        }
    }

    /// Forgets the text, but not where the random numbers are: for the next turn of a chat,
    /// whose whole text is accepted again.
    pub fn forget(&mut self) {
        for stage in &mut self.stages {
            match stage {
                Stage::Penalties(penalties) => penalties.reset(),
                Stage::Dry(dry) => dry.reset(),
                _ => {}
            }
        }
    }

    /// Forgets the text and starts the random numbers anew.
    pub fn reset(&mut self) {
        self.forget();
        self.rng = Mt19937::new(self.seed);
        for stage in &mut self.stages {
            if let Stage::Xtc { rng, .. } = stage {
                **rng = Mt19937::new(self.seed);
            }
        }
        if let Last::MirostatV1(state) | Last::MirostatV2(state) = &mut self.last {
            state.reset();
        }
    }
}

/// The stages that have an effect.
fn chain(config: &SamplerConfig, n_vocab: usize) -> Vec<Stage> {
    let stages = config
        .chain
        .iter()
        .filter_map(|kind| stage(config, *kind, n_vocab));
    let mut stages: Vec<Stage> = stages.collect();
    // When the best token is taken anyway, samplers that always keep it need not run.
    let takes_best = |stage: &Stage| matches!(stage, Stage::Temperature(temp) if *temp <= 0.0);
    let may_drop_best = |stage: &Stage| matches!(stage, Stage::Typical(_) | Stage::Xtc { .. });
    if stages.iter().any(takes_best) && !stages.iter().any(may_drop_best) {
        stages.retain(|stage| {
            !matches!(
                stage,
                Stage::TopNSigma(_) | Stage::TopK(_) | Stage::TopP(_) | Stage::MinP(_)
            )
        });
    }
    stages
}

fn stage(config: &SamplerConfig, kind: SamplerKind, n_vocab: usize) -> Option<Stage> {
    match kind {
        SamplerKind::Penalties => Penalties::new(config, n_vocab).map(Stage::Penalties),
        SamplerKind::Dry => Dry::new(config).map(Stage::Dry),
        SamplerKind::TopNSigma => {
            (config.top_n_sigma > 0.0).then_some(Stage::TopNSigma(config.top_n_sigma))
        }
        SamplerKind::TopK => usize::try_from(config.top_k)
            .ok()
            .filter(|&k| k > 0)
            .map(Stage::TopK),
        SamplerKind::Typical => {
            (config.typical_p < 1.0).then_some(Stage::Typical(config.typical_p))
        }
        SamplerKind::TopP => (config.top_p < 1.0).then_some(Stage::TopP(config.top_p)),
        SamplerKind::MinP => (config.min_p > 0.0).then_some(Stage::MinP(config.min_p)),
        SamplerKind::Xtc => {
            let on = config.xtc_probability > 0.0 && config.xtc_threshold <= 0.5;
            on.then(|| Stage::Xtc {
                probability: config.xtc_probability,
                threshold: config.xtc_threshold,
                rng: Box::new(Mt19937::new(config.seed)),
            })
        }
        SamplerKind::Temperature if config.dynatemp_range > 0.0 => {
            Some(Stage::DynamicTemperature {
                temp: config.temp,
                range: config.dynatemp_range,
                exponent: config.dynatemp_exponent,
            })
        }
        SamplerKind::Temperature => (config.temp != 1.0).then_some(Stage::Temperature(config.temp)),
    }
}

#[cfg(test)]
impl Sampler {
    /// What the stages leave of `logits`, in list order, with probabilities.
    pub(super) fn left(&mut self, logits: &[f32]) -> Vec<(u32, f32)> {
        self.narrow(logits).unwrap();
        self.candidates.softmax();
        self.candidates
            .as_list()
            .iter()
            .map(|c| (c.id, c.p))
            .collect()
    }

    pub(super) fn places(&self) -> [usize; 3] {
        let [a, b] = self.candidates.places();
        [a, b, self.scratch.as_ptr().addr()]
    }

    pub(super) fn n_stages(&self) -> usize {
        self.stages.len()
    }
}
