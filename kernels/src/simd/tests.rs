//! Every operation at every level against the portable one, and that one against known values.

use super::*;
use crate::level::Level;
use crate::test_util::Rng;

/// One set of operands.
struct Operands {
    f: [[f32; 16]; 3],
    i: [[i32; 16]; 3],
    h: [u16; 16],
    /// At most 128.
    small: [u8; 64],
    /// Any.
    any: [u8; 64],
    /// Above -128, as signed.
    symmetric: [u8; 64],
    table: [i8; 16],
    n: usize,
}

impl Operands {
    fn random(rng: &mut Rng) -> Operands {
        let mut bytes = [[0u8; 64]; 3];
        let extremes = [0, 1, 127, 128, 129, 255];
        for byte in bytes.as_flattened_mut() {
            *byte = if rng.below(3) == 0 {
                rng.pick(&extremes)
            } else {
                rng.next() as u8
            };
        }
        let [small, any, symmetric] = bytes;
        let rounding = |rng: &mut Rng| match rng.below(4) {
            0 => rng.pick(&[
                0.5,
                1.5,
                2.5,
                -0.5,
                -2.5,
                2147483520.0,
                2147483648.0,
                -2147483648.0,
            ]),
            1 => rng.unit() * 3e9,
            _ => rng.wild(),
        };
        Operands {
            f: std::array::from_fn(|_| std::array::from_fn(|_| rounding(rng))),
            i: std::array::from_fn(|_| {
                std::array::from_fn(|_| match rng.below(4) {
                    0 => rng.pick(&[0, -1, i32::MIN, i32::MAX, 32767, -32768, 0x00ff_00ff]),
                    _ => rng.next() as i32,
                })
            }),
            h: std::array::from_fn(|_| rng.next() as u16),
            small: small.map(|b| b % 129),
            any,
            symmetric: symmetric.map(|b| if b == 128 { 129 } else { b }),
            table: std::array::from_fn(|_| rng.next() as i8),
            n: rng.below(20),
        }
    }
}

/// A result: an operation's name and its bits, all NaNs the same.
type Results = Vec<(&'static str, Vec<u32>)>;

/// All operations on one set of operands.
struct All;

impl Kernel for All {
    type Args<'a> = (&'a Operands, &'a mut Results);
    type Out = ();

    #[inline(always)]
    fn run<S: Simd>(s: S, (o, out): Self::Args<'_>) {
        let canonical = |x: f32| {
            if x.is_nan() {
                f32::NAN.to_bits()
            } else {
                x.to_bits()
            }
        };
        macro_rules! float {
            ($($name:ident($($arg:expr),*);)*) => {$({
                let mut to = [0.0; 16];
                s.store(s.$name($($arg),*), &mut to);
                out.push((stringify!($name), to.map(canonical).to_vec()));
            })*};
        }
        macro_rules! int {
            ($($name:ident($($arg:expr),*);)*) => {$({
                let mut to = [0; 16];
                s.store_i32(s.$name($($arg),*), &mut to);
                out.push((stringify!($name), to.map(|x| x as u32).to_vec()));
            })*};
        }
        macro_rules! mask {
            ($($name:ident($($arg:expr),*);)*) => {$(
                out.push((stringify!($name), vec![u32::from(s.mask_bits(s.$name($($arg),*)))]));
            )*};
        }
        let (a, b, c) = (s.load(&o.f[0]), s.load(&o.f[1]), s.load(&o.f[2]));
        let (i, j, k) = (
            s.load_i32(&o.i[0]),
            s.load_i32(&o.i[1]),
            s.load_i32(&o.i[2]),
        );
        let (small, any) = (s.load_bytes(&o.small), s.load_bytes(&o.any));
        let symmetric = s.load_bytes(&o.symmetric);
        float! {
            splat(o.f[0][0]); load(&o.f[0]); add(a, b); sub(a, b); mul(a, b); div(a, b);
            fma(a, b, c); fnma(a, b, c); max(a, b); abs(a); neg(a);
            select(s.lt(a, b), b, c); i32_to_f32(i); f32_from_bits(i);
            load_f16(&o.h); load_bf16(&o.h); load_partial(&o.f[0][..o.n.min(16)]);
        }
        int! {
            round_i32(a); f32_bits(a); load_u16(&o.h); load_i8(&o.table); splat_i32(o.i[0][0]); load_i32(&o.i[0]);
            add_i32(i, j); sub_i32(i, j); mul_i32(i, j); max_u32(i, j); and(i, j); or(i, j);
            xor(i, j); shl(i, o.n as u32); shr(i, o.n as u32); sar(i, o.n as u32);
            select_i32(s.gt_i32(i, j), j, k); load_bytes(&o.any); sub_u8(any, small);
            lookup(&o.table, s.and(any, s.splat_i32(0x0f0f_0f0f)));
            dot_u8(i, small, any); dot_i16(i, s.shr(j, 1), k);
            i8_operand(s.i8_operand(any)); even_bytes_i16(i); odd_bytes_i16(i);
            byte_i32(i, 0); byte_i32(i, 1); byte_i32(i, 2); byte_i32(i, 3);
        }
        mask! {
            lt(a, b); le(a, b); eq(a, a); gt_i32(i, j); first(o.n);
            and_mask(s.lt(a, b), s.first(o.n));
        }
        // The bias taken off, this is the plain product at every level.
        let ones = s.splat_i32(0x0101_0101);
        let sum = s.dot_u8(s.zero_i32(), ones, symmetric);
        let biased = s.dot_i8(i, s.i8_operand(any), symmetric);
        int! { sub_i32(biased, s.mul_i32(sum, s.splat_i32(S::I8_BIAS))); }
        int! { pair_i16(i, any); }

        let mut half = [0; 16];
        s.store_f16(a, &mut half);
        let nan = |h: u16| half::f16::from_bits(h).is_nan();
        out.push((
            "store_f16",
            half.map(|h| if nan(h) { 0x7e00 } else { h.into() })
                .to_vec(),
        ));
        let mut low = [0; 16];
        s.store_low_bytes(i, &mut low);
        out.push(("store_low_bytes", low.map(u32::from).to_vec()));
        let mut low = [0; 16];
        s.store_low_halves(i, &mut low);
        out.push(("store_low_halves", low.map(u32::from).to_vec()));
        let mut bytes = [0; 64];
        s.store_bytes(i, &mut bytes);
        out.push(("store_bytes", bytes.map(u32::from).to_vec()));
        let mut partial = [7.0; 16];
        s.store_partial(a, &mut partial[..o.n.min(16)]);
        out.push(("store_partial", partial.map(canonical).to_vec()));
        out.push(("reduce_add", vec![canonical(s.reduce_add(a))]));
        out.push(("reduce_max", vec![canonical(s.reduce_max(a))]));
        out.push(("reduce_add_i32", vec![s.reduce_add_i32(i) as u32]));
        out.push(("reduce_max_u32", vec![s.reduce_max_u32(i)]));
    }
}

fn results<S: Simd>(operands: &Operands) -> Results {
    let mut out = Vec::new();
    assert!(S::LEVEL.is_available());
    // SAFETY: the level is available.
    unsafe { entry::<S, All>((operands, &mut out)) };
    out
}

#[test]
fn levels_agree_on_every_operation() {
    let mut rng = Rng(11);
    for _ in 0..3000 {
        let operands = Operands::random(&mut rng);
        let wanted = results::<Scalar>(&operands);
        #[cfg(target_arch = "x86_64")]
        for (level, results) in [
            (Level::Avx2, results::<Avx2> as fn(&Operands) -> Results),
            (Level::AvxVnni, results::<AvxVnni>),
            (Level::Avx512, results::<Avx512>),
        ] {
            if level.is_available() {
                let found = results(&operands);
                assert_eq!(found.len(), wanted.len());
                for (found, wanted) in found.iter().zip(&wanted) {
                    assert_eq!(found, wanted, "{level}");
                }
            }
        }
    }
}

#[test]
fn the_portable_level_is_what_its_words_say() {
    let s = Scalar;
    let mut f = [0.0; 16];
    f[..8].copy_from_slice(&[0.5, 1.5, -2.5, 3e9, -3e9, f32::NAN, 2147483520.0, -0.4]);
    let wanted = [0, 2, -2, i32::MIN, i32::MIN, i32::MIN, 2147483520, 0];
    assert_eq!(s.round_i32(f)[..8], wanted);
    // Bytes 1, 2, 3, 4 of a word, lowest first.
    let word = [0x04fd_02ff_u32 as i32; 16];
    assert_eq!(s.even_bytes_i16(word), [0xfffd_ffff_u32 as i32; 16]);
    assert_eq!(s.odd_bytes_i16(word), [0x0004_0002; 16]);
    assert_eq!(s.byte_i32(word, 2), [-3; 16]);
    assert_eq!(
        s.dot_u8([5; 16], [0x8001_0203_u32 as i32; 16], word),
        [5 - 3 + 4 - 3 + 512; 16]
    );
    assert_eq!(
        s.dot_i8([5; 16], [0x8001_0203_u32 as i32; 16], word),
        [5 - 3 + 4 - 3 - 512; 16]
    );
    assert_eq!(
        s.dot_i16([1; 16], [0xffff_0003_u32 as i32; 16], [0x0007_fffe; 16]),
        [1 - 6 - 7; 16]
    );
    assert_eq!(s.reduce_add(std::array::from_fn(|i| i as f32)), 120.0);
    assert_eq!(
        s.fma(
            [1.0 + f32::EPSILON; 16],
            [1.0 - f32::EPSILON; 16],
            [-1.0; 16]
        ),
        [-f32::EPSILON * f32::EPSILON; 16]
    );
}
