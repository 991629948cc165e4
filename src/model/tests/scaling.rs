//! Rotary scaling schemes, against numbers from their publications.

use super::*;

fn rope(file: &TestFile) -> RopeSpec {
    spec(file).ropes[0].clone()
}

/// A llama file with a scheme; the trained context is 4096, the base 500000 as Llama 3's.
fn scaled(scheme: &str, factor: f32) -> TestFile {
    let mut file = small("llama");
    file.set("llama.rope.freq_base", 500_000.0f32);
    file.set("llama.rope.scaling.type", scheme);
    file.set("llama.rope.scaling.factor", factor);
    file
}

fn close(got: f32, wanted: f64) {
    assert!(
        (f64::from(got) / wanted - 1.0).abs() < 1e-6,
        "{got} for {wanted}"
    );
}

#[test]
fn linear_scaling_is_the_inverse_factor_under_both_names() {
    assert_eq!(rope(&scaled("linear", 4.0)).freq_scale, 0.25);
    assert_eq!(rope(&scaled("none", 4.0)).freq_scale, 1.0);
    assert_eq!(rope(&scaled("linear", 0.0)).freq_scale, 1.0);
    let mut file = small("llama");
    file.set("llama.rope.scale_linear", 2.0f32);
    assert_eq!(rope(&file).freq_scale, 0.5);
}

#[test]
fn base_defaults_to_ten_thousand() {
    let mut file = small("llama");
    file.unset("llama.rope.freq_base");
    assert_eq!(rope(&file).base, 10_000.0);
}

#[test]
fn llama3_factors_from_the_tensor() {
    let mut model = TestModel::new("llama", TensorType::F32);
    model.rope_factors = true;
    let factors = rope(&model.file()).factors.unwrap();
    assert_eq!(factors.len(), 32);
    assert_eq!((factors[0], factors[31]), (1.0, 8.75));
}

#[test]
fn llama3_factors_from_metadata() {
    // Llama 3.1's numbers: waves shorter than 8192 / 4 are kept, waves longer than 8192 are
    // eight times slower, and those between are blended.
    let mut file = scaled("llama3", 8.0);
    file.set("llama.rope.scaling.original_context_length", 8192u32);
    file.set("llama.rope.scaling.low_freq_factor", 1.0f32);
    file.set("llama.rope.scaling.high_freq_factor", 4.0f32);
    let spec = rope(&file);
    assert_eq!(spec.freq_scale, 1.0);
    let factors = spec.factors.unwrap();
    // Pair 14 of 32: wave 2 pi 500000^(14/32) = 1956 < 2048. Pair 15: 2948, which fits 2.779
    // times, so that 0.5930 of its frequency is kept. Pair 18: 10088 > 8192.
    assert_eq!(factors[14], 1.0);
    let wave = 2.0 * std::f64::consts::PI * 500_000.0_f64.powf(15.0 / 32.0);
    let keep = (8192.0 / wave - 1.0) / 3.0;
    close(factors[15], 1.0 / ((1.0 - keep) / 8.0 + keep));
    assert!(factors[15] > 1.5 && factors[15] < 1.6);
    assert_eq!(factors[18], 8.0);
    assert_eq!(factors[31], 8.0);
}

#[test]
fn llama3_tensor_takes_the_place_of_the_metadata() {
    let mut file = scaled("llama3", 8.0);
    file.vector("rope_freqs.weight", &[2.5; 32]);
    assert_eq!(rope(&file).factors.unwrap(), [2.5; 32]);
}

#[test]
fn yarn_keeps_fast_pairs_and_slows_slow_ones() {
    // A context of 1024 with base 10000 and 64 dimensions: pair 32 ln(1024 / (32 * 2 pi)) /
    // ln 10000 = 5.65 turns 32 times, pair 17.7 once; so pairs up to 5 are kept, from 18 on
    // slowed by four.
    let mut file = scaled("yarn", 4.0);
    file.set("llama.rope.freq_base", 10_000.0f32);
    file.set("llama.rope.scaling.original_context_length", 1024u32);
    let spec = rope(&file);
    close(spec.attn_factor, 1.0 + 0.1 * 4.0_f64.ln());
    assert_eq!(spec.freq_scale, 1.0);
    let factors = spec.factors.unwrap();
    assert_eq!(factors[..6], [1.0; 6]);
    assert_eq!(factors[18..], [4.0; 14]);
    // Half-way between, pair 12 keeps 6/13 of its frequency.
    let keep = 6.0 / 13.0;
    close(factors[12], 1.0 / (0.25 * (1.0 - keep) + keep));
    // Factors in a tensor come on top.
    file.vector("rope_freqs.weight", &[3.0; 32]);
    assert_eq!(rope(&file).factors.unwrap()[31], 12.0);
}

#[test]
fn longrope_has_other_factors_above_the_original_context() {
    let mut file = scaled("longrope", 1.0);
    file.set("llama.rope.scaling.original_context_length", 1024u32);
    file.set("llama.rope.scaling.attn_factor", 1.25f32);
    file.vector("rope_factors_short.weight", &[1.5; 32]);
    file.vector("rope_factors_long.weight", &[6.0; 32]);
    let spec = rope(&file);
    assert_eq!(spec.attn_factor, 1.25);
    assert_eq!(spec.factors_for(1024), Some(&[1.5; 32][..]));
    assert_eq!(spec.factors_for(1025), Some(&[6.0; 32][..]));
}
