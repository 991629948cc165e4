//! Each sampler on distributions small enough to work out by hand, then the chain as a whole.

use super::*;

/// A configuration whose chain is these samplers, everything else off.
fn only(chain: &str, change: impl FnOnce(&mut SamplerConfig)) -> SamplerConfig {
    let mut config = SamplerConfig {
        chain: SamplerKind::chain_from_letters(chain).unwrap(),
        temp: 1.0,
        ..SamplerConfig::default()
    };
    change(&mut config);
    config
}

/// Logits of these probabilities.
fn ln(p: &[f32]) -> Vec<f32> {
    p.iter().map(|p| libm::logf(*p)).collect()
}

fn left(config: &SamplerConfig, logits: &[f32]) -> Vec<(u32, f32)> {
    Sampler::new(config, logits.len()).unwrap().left(logits)
}

fn ids(config: &SamplerConfig, logits: &[f32]) -> Vec<u32> {
    left(config, logits).into_iter().map(|(id, _)| id).collect()
}

fn assert_left(config: &SamplerConfig, logits: &[f32], wanted: &[(u32, f32)]) {
    let got = left(config, logits);
    let near = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-5;
    assert!(
        got.len() == wanted.len() && got.iter().zip(wanted).all(near),
        "{got:?} {wanted:?}"
    );
}

const P: [f32; 4] = [0.1, 0.4, 0.2, 0.3];

#[test]
fn top_k_keeps_the_best() {
    let k = |k| only("k", move |c| c.top_k = k);
    assert_left(&k(1), &ln(&P), &[(1, 1.0)]);
    assert_left(&k(2), &ln(&P), &[(1, 4.0 / 7.0), (3, 3.0 / 7.0)]);
    assert_eq!(ids(&k(9), &ln(&P)), [1, 3, 2, 0]);
    assert_eq!(ids(&k(0), &ln(&P)), [0, 1, 2, 3]);
    assert_eq!(ids(&k(-1), &ln(&P)), [0, 1, 2, 3]);
    assert_eq!(ids(&k(2), &[1.0, 2.0, 2.0, 2.0]), [1, 2]);
}

#[test]
fn top_p_keeps_up_to_and_with_the_one_that_reaches_p() {
    let p = |p| only("p", move |c| c.top_p = p);
    assert_eq!(ids(&p(0.0), &ln(&P)), [1]);
    assert_eq!(ids(&p(0.39), &ln(&P)), [1]);
    assert_eq!(ids(&p(0.6), &ln(&P)), [1, 3]);
    assert_eq!(ids(&p(0.8), &ln(&P)), [1, 3, 2]);
    assert_eq!(ids(&p(0.99), &ln(&P)), [1, 3, 2, 0]);
    assert_eq!(ids(&p(1.0), &ln(&P)), [0, 1, 2, 3]);
}

#[test]
fn top_p_goes_past_its_first_guess_over_a_flat_distribution() {
    let config = only("p", |c| c.top_p = 0.5);
    let kept = ids(&config, &[0.0; 2048]);
    assert_eq!(kept, (0..1024).collect::<Vec<u32>>());
}

#[test]
fn min_p_keeps_a_share_of_the_best() {
    let p = |p| only("m", move |c| c.min_p = p);
    assert_eq!(ids(&p(0.0), &ln(&P)), [0, 1, 2, 3]);
    // 0.26 * 0.4 = 0.104, 0.51 * 0.4 = 0.204, 0.76 * 0.4 = 0.304
    assert_eq!(ids(&p(0.24), &ln(&P)), [0, 1, 2, 3]);
    assert_eq!(ids(&p(0.26), &ln(&P)), [1, 2, 3]);
    assert_eq!(ids(&p(0.51), &ln(&P)), [1, 3]);
    assert_eq!(ids(&p(0.76), &ln(&P)), [1]);
    assert_eq!(ids(&p(2.0), &ln(&P)), [1]);
}

#[test]
fn typical_keeps_what_surprises_as_much_as_expected() {
    // Entropy of (0.97, 0.01, 0.01, 0.01) is 0.168 nats; surprises 0.030 and 4.605.
    let p = |p| only("y", move |c| c.typical_p = p);
    assert_left(&p(0.5), &ln(&[0.97, 0.01, 0.01, 0.01]), &[(0, 1.0)]);
    // (0.4, 0.2, 0.2, 0.2): entropy 1.332; surprises 0.916 and 1.609: the three come first.
    let flat = ln(&[0.4, 0.2, 0.2, 0.2]);
    assert_eq!(ids(&p(0.5), &flat), [1, 2, 3]);
    assert_eq!(ids(&p(0.3), &flat), [1, 2]);
    assert_eq!(ids(&p(0.7), &flat), [1, 2, 3, 0]);
    assert_eq!(ids(&p(1.0), &flat), [0, 1, 2, 3]);
}

#[test]
fn top_n_sigma_keeps_logits_near_the_best() {
    let n = |n| only("s", move |c| c.top_n_sigma = n);
    // Mean 2, variance (4 + 1 + 0 + 1 + 4) / 5 = 2, sigma 1.414.
    let logits = [0.0, 1.0, 2.0, 3.0, 4.0];
    assert_eq!(ids(&n(1.0), &logits), [3, 4]);
    assert_eq!(ids(&n(0.5), &logits), [4]);
    assert_eq!(ids(&n(2.0), &logits), [2, 3, 4]);
    assert_eq!(ids(&n(-1.0), &logits), [0, 1, 2, 3, 4]);
    // Tokens that are ruled out do not count: sigma of (0, 4) is 2.
    assert_eq!(ids(&n(1.9), &[0.0, 4.0, f32::NEG_INFINITY]), [1]);
    assert_eq!(ids(&n(2.1), &[0.0, 4.0, f32::NEG_INFINITY]), [0, 1]);
}

#[test]
fn xtc_drops_all_top_choices_but_the_last() {
    let xtc = |threshold| {
        only("x", move |c| {
            c.xtc_probability = 1.0;
            c.xtc_threshold = threshold;
        })
    };
    assert_left(&xtc(0.09), &ln(&P), &[(0, 1.0)]);
    assert_left(&xtc(0.19), &ln(&P), &[(2, 2.0 / 3.0), (0, 1.0 / 3.0)]);
    assert_eq!(ids(&xtc(0.29), &ln(&P)), [3, 2, 0]);
    assert_eq!(ids(&xtc(0.39), &ln(&P)), [1, 3, 2, 0]);
    assert_eq!(ids(&xtc(0.45), &ln(&P)), [1, 3, 2, 0]);
    assert_eq!(ids(&xtc(0.6), &ln(&P)), [0, 1, 2, 3]);
    let never = only("x", |c| c.xtc_probability = 0.0);
    assert_eq!(ids(&never, &ln(&P)), [0, 1, 2, 3]);
}

#[test]
fn xtc_acts_as_often_as_asked() {
    let config = only("x", |c| {
        c.xtc_probability = 0.25;
        c.xtc_threshold = 0.09;
    });
    let mut sampler = Sampler::new(&config, 4).unwrap();
    let acted = (0..4000)
        .filter(|_| sampler.left(&ln(&P)).len() == 1)
        .count();
    assert!((900..1100).contains(&acted), "{acted}");
}

#[test]
fn temperature_sharpens_and_flattens() {
    let t = |t| only("t", move |c| c.temp = t);
    // p^2 over 0.01 + 0.16 + 0.04 + 0.09 = 0.3
    let squared = [
        (0, 0.01 / 0.3),
        (1, 0.16 / 0.3),
        (2, 0.04 / 0.3),
        (3, 0.09 / 0.3),
    ];
    assert_left(&t(0.5), &ln(&P), &squared);
    assert_left(&t(2.0), &ln(&[0.8, 0.2]), &[(0, 2.0 / 3.0), (1, 1.0 / 3.0)]);
    for greedy in [0.0, -1.0, 1e-45] {
        assert_left(&t(greedy), &ln(&P), &[(1, 1.0)]);
    }
    assert_eq!(ids(&t(0.0), &[5.0, 5.0]), [0]);
}

#[test]
fn dynamic_temperature_follows_the_entropy() {
    let dynamic = |range, exponent| {
        only("t", move |c| {
            c.temp = 1.0;
            c.dynatemp_range = range;
            c.dynatemp_exponent = exponent;
        })
    };
    // Flat: the whole entropy, so temperature 1 + 0.5, which leaves flat as it is.
    assert_left(&dynamic(0.5, 1.0), &[3.0, 3.0], &[(0, 0.5), (1, 0.5)]);
    // (0.8, 0.2): entropy 0.5004 of ln 2 = 0.6931: share 0.7219; temperature 0.5 + 0.7219.
    let logits = ln(&[0.8, 0.2]);
    let temp = 1.2219f32;
    let weight = libm::powf(4.0, 1.0 / temp);
    let wanted = [(0, weight / (weight + 1.0)), (1, 1.0 / (weight + 1.0))];
    let got = left(&dynamic(0.5, 1.0), &logits);
    assert!((got[0].1 - wanted[0].1).abs() < 1e-3, "{got:?} {wanted:?}");
    // All but certain, and the range reaches 0: the best alone.
    assert_left(&dynamic(1.0, 50.0), &ln(&[0.999, 0.001]), &[(0, 1.0)]);
}

#[test]
fn penalties_divide_multiply_and_subtract() {
    let config = only("e", |c| {
        c.repeat_penalty = 2.0;
        c.presence_penalty = 0.5;
        c.frequency_penalty = 0.25;
        c.repeat_last_n = 4;
    });
    let logits = [4.0, -1.0, 3.0, 0.0];
    let logit = |sampler: &mut Sampler, id: u32| {
        // Probabilities against the untouched token 2, whose logit is known.
        let left = sampler.left(&logits);
        let p = |id: u32| left.iter().find(|(other, _)| *other == id).unwrap().1;
        3.0 + libm::logf(p(id) / p(2))
    };
    let mut sampler = Sampler::new(&config, 4).unwrap();
    for id in [0, 1, 1, 3] {
        sampler.accept(id);
    }
    // 4 / 2 - 0.5 - 0.25; -1 * 2 - 0.5 - 0.5; 0 * 2 - 0.5 - 0.25
    assert!((logit(&mut sampler, 0) - 1.25).abs() < 1e-5);
    assert!((logit(&mut sampler, 1) + 3.0).abs() < 1e-5);
    assert!((logit(&mut sampler, 3) + 0.75).abs() < 1e-5);
    // Two more of token 3 push out 0 and one of 1.
    sampler.accept(3);
    sampler.accept(3);
    assert!((logit(&mut sampler, 0) - 4.0).abs() < 1e-5);
    assert!((logit(&mut sampler, 1) + 2.75).abs() < 1e-5);
    assert!((logit(&mut sampler, 3) + 1.25).abs() < 1e-5);
    sampler.reset();
    assert!((logit(&mut sampler, 3) - 0.0).abs() < 1e-5);
}

#[test]
fn penalties_act_on_a_narrowed_list_too() {
    let config = only("ke", |c| {
        c.top_k = 2;
        c.presence_penalty = 100.0;
    });
    let mut sampler = Sampler::new(&config, 3).unwrap();
    sampler.accept(1);
    sampler.accept(0);
    let left = sampler.left(&[1.0, 3.0, 2.0]);
    assert_eq!(left.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 2]);
    assert!(left[0].1 < 1e-6 && left[1].1 > 0.999);
}

#[test]
fn dry_works_in_the_chain() {
    let config = only("d", |c| {
        c.dry_multiplier = 1.0;
        c.dry_base = 2.0;
    });
    let mut sampler = Sampler::new(&config, 4).unwrap();
    assert!(sampler.uses_dry());
    for id in [1, 2, 3, 1, 2] {
        sampler.accept(id);
    }
    // `1 2` was followed by 3: its logit is 1 less than the others'.
    let e = libm::expf(-1.0);
    let p = 1.0 / (3.0 + e);
    assert_eq!(sampler.left(&[0.0; 4])[3].0, 3);
    assert!((sampler.left(&[0.0; 4])[3].1 - e * p).abs() < 1e-6);
    let breakers = DryBreakers::from_sequences(vec![(2, vec![])]);
    let mut sampler = sampler.with_dry_breakers(&breakers);
    assert!((sampler.left(&[0.0; 4])[3].1 - 0.25).abs() < 1e-6);
}

#[test]
fn biases_come_first_and_rule_out() {
    let config = only("k", |c| {
        c.top_k = 1;
        c.logit_bias = vec![(1, f32::NEG_INFINITY), (0, 5.0), (0, 1.0)];
    });
    assert_eq!(ids(&config, &[0.0, 9.0, 5.5]), [0]);
    let all = only("", |c| c.logit_bias = vec![(0, f32::NEG_INFINITY)]);
    let mut sampler = Sampler::new(&all, 1).unwrap();
    assert_eq!(sampler.sample(&[1.0]), Err(SampleError::NothingLeft));
    assert!(matches!(
        Sampler::new(&config, 1),
        Err(ConfigError::BiasId { id: 1, n_vocab: 1 })
    ));
}

#[test]
fn an_empty_chain_draws_from_the_model() {
    let config = only("", |c| c.seed = 11);
    let mut sampler = Sampler::new(&config, 4).unwrap();
    let mut counts = [0u32; 4];
    for _ in 0..10_000 {
        counts[sampler.sample(&ln(&P)).unwrap().id as usize] += 1;
    }
    for (count, p) in counts.into_iter().zip(P) {
        assert!((count as f32 / 10_000.0 - p).abs() < 0.02, "{counts:?}");
    }
}

#[test]
fn the_draw_is_the_fraction_of_the_running_sum() {
    // Seed 5489 draws the fraction (3499211612 + 581869302 * 2^32) / 2^64 = 0.1354770.
    let config = only("", |c| c.seed = 5489);
    let pick = |p: &[f32]| {
        Sampler::new(&config, p.len())
            .unwrap()
            .sample(&ln(p))
            .unwrap()
            .id
    };
    assert_eq!(pick(&[0.13, 0.87]), 1);
    assert_eq!(pick(&[0.14, 0.86]), 0);
    assert_eq!(pick(&[0.1, 0.03, 0.01, 0.86]), 2);
}

#[test]
fn the_choice_carries_the_models_own_logit() {
    let config = SamplerConfig {
        temp: 0.0,
        repeat_penalty: 2.0,
        ..SamplerConfig::default()
    };
    let mut sampler = Sampler::new(&config, 3).unwrap();
    sampler.accept(1);
    assert_eq!(
        sampler.sample(&[1.0, 3.0, 2.0]),
        Ok(Choice { id: 2, logit: 2.0 })
    );
    sampler.reset();
    assert_eq!(
        sampler.sample(&[1.0, 3.0, 2.0]),
        Ok(Choice { id: 1, logit: 3.0 })
    );
}

#[test]
fn greedy_needs_no_narrowing_unless_the_best_may_go() {
    let greedy = SamplerConfig {
        temp: 0.0,
        ..SamplerConfig::default()
    };
    assert_eq!(Sampler::new(&greedy, 9).unwrap().n_stages(), 1);
    let with_xtc = SamplerConfig {
        xtc_probability: 1.0,
        ..greedy
    };
    let mut sampler = Sampler::new(&with_xtc, 4).unwrap();
    // Tokens at 0.4, 0.3, 0.2, 0.1 are all top choices by 0.1 or nearly so.
    assert_ne!(sampler.sample(&ln(&[0.1, 0.4, 0.2, 0.3])).unwrap().id, 1);
}

#[test]
fn broken_logits_are_errors() {
    let mut sampler = Sampler::new(&SamplerConfig::default(), 3).unwrap();
    assert_eq!(
        sampler.sample(&[0.0, f32::NAN, 0.0]),
        Err(SampleError::Nan { id: 1 })
    );
    assert_eq!(
        sampler.sample(&[0.0, 0.0, f32::INFINITY]),
        Err(SampleError::Infinite { id: 2 })
    );
    assert_eq!(
        sampler.sample(&[0.0]),
        Err(SampleError::Length { got: 1, wanted: 3 })
    );
    assert_eq!(
        sampler.sample(&[f32::NEG_INFINITY; 3]),
        Err(SampleError::NothingLeft)
    );
    let huge = only("", |c| c.logit_bias = vec![(0, f32::MAX), (0, f32::MAX)]);
    let mut sampler = Sampler::new(&huge, 2).unwrap();
    assert_eq!(sampler.sample(&[1.0, 1.0]), Err(SampleError::Overflow));
}

/// Logits with ties, extremes and tokens that are ruled out.
fn rough_logits(n: usize, rng: &mut Mt19937) -> Vec<f32> {
    let mut logit = || match rng.next_u32() % 16 {
        0 => f32::NEG_INFINITY,
        1 => -1e30,
        2 => 0.0,
        _ => (rng.next_f32() - 0.5) * 20.0,
    };
    (0..n).map(|_| logit()).collect()
}

#[test]
fn every_sampler_survives_rough_logits_without_allocating() {
    let everything = SamplerConfig {
        seed: 3,
        repeat_penalty: 1.1,
        presence_penalty: 0.1,
        frequency_penalty: 0.1,
        dry_multiplier: 0.8,
        top_n_sigma: 2.0,
        typical_p: 0.9,
        xtc_probability: 0.5,
        dynatemp_range: 0.3,
        ..SamplerConfig::default()
    };
    let mut configs = vec![everything.clone()];
    for mirostat in [Mirostat::V1, Mirostat::V2] {
        configs.push(SamplerConfig {
            mirostat,
            ..everything.clone()
        });
        configs.push(SamplerConfig {
            mirostat,
            temp: 0.0,
            ..everything.clone()
        });
    }
    for kind in SamplerKind::DEFAULT_CHAIN {
        configs.push(SamplerConfig {
            chain: vec![kind],
            ..everything.clone()
        });
        configs.push(SamplerConfig {
            chain: vec![kind; 3],
            ..everything.clone()
        });
    }
    let reversed = SamplerKind::DEFAULT_CHAIN.into_iter().rev().collect();
    configs.push(SamplerConfig {
        chain: reversed,
        ..everything
    });
    for config in configs {
        let mut rng = Mt19937::new(1);
        let mut sampler = Sampler::new(&config, 700).unwrap();
        let places = sampler.places();
        for _ in 0..100 {
            let logits = rough_logits(700, &mut rng);
            let choice = sampler.sample(&logits).unwrap();
            assert_eq!(choice.logit, logits[choice.id as usize]);
            assert!(choice.logit > f32::NEG_INFINITY);
            sampler.accept(choice.id);
        }
        assert_eq!(sampler.places(), places, "{:?}", config.chain);
    }
}

#[test]
fn the_same_seed_draws_the_same_tokens() {
    let config = SamplerConfig {
        seed: 42,
        xtc_probability: 0.3,
        ..SamplerConfig::default()
    };
    let run = |sampler: &mut Sampler| -> Vec<u32> {
        let mut rng = Mt19937::new(9);
        let mut choose = || {
            let id = sampler.sample(&rough_logits(500, &mut rng)).unwrap().id;
            sampler.accept(id);
            id
        };
        (0..50).map(|_| choose()).collect()
    };
    let mut sampler = Sampler::new(&config, 500).unwrap();
    let first = run(&mut sampler);
    sampler.reset();
    assert_eq!(run(&mut sampler), first);
    assert_eq!(run(&mut Sampler::new(&config, 500).unwrap()), first);
    let other = SamplerConfig { seed: 43, ..config };
    assert_ne!(run(&mut Sampler::new(&other, 500).unwrap()), first);
}

#[test]
fn forgetting_the_text_keeps_the_random_numbers_going() {
    let config = SamplerConfig {
        seed: 5,
        presence_penalty: 50.0,
        ..SamplerConfig::default()
    };
    let logits = [0.0f32; 40];
    let choose = |sampler: &mut Sampler| sampler.sample(&logits).unwrap().id;
    let (mut a, mut b) = (
        Sampler::new(&config, 40).unwrap(),
        Sampler::new(&config, 40).unwrap(),
    );
    let first: Vec<u32> = (0..20).map(|_| choose(&mut a)).collect();
    let again: Vec<u32> = (0..20)
        .map(|_| {
            let id = choose(&mut b);
            b.accept(id);
            b.forget();
            id
        })
        .collect();
    assert_eq!(first, again);
    b.reset();
    assert_eq!(choose(&mut b), first[0]);
}
