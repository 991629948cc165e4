//! Random numbers: the Mersenne Twister MT19937 (Matsumoto and Nishimura 1998, ACM TOMACS 8),
//! seeded and turned into fractions as `std::mt19937` and GNU's standard library do. There are
//! smaller generators as good; this one is llama.cpp's, so that the same seed over the same
//! logits draws the same tokens there and here. Integer arithmetic throughout: the same numbers
//! on every machine.

const N: usize = 624;
const M: usize = 397;

/// A generator; 2.5 KiB of state.
#[derive(Clone, Debug)]
pub struct Mt19937 {
    state: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// A generator that starts from `seed`.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let before = state[i - 1];
            // i is below 624.
            state[i] = (before ^ (before >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Mt19937 { state, next: N }
    }

    /// The next 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn refill(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ twist;
        }
        self.next = 0;
    }

    /// A fraction from 0 up to, not including, 1: two draws, the first the lower half.
    pub fn next_f64(&mut self) -> f64 {
        const TWO_32: f64 = 4_294_967_296.0;
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        ((low + high * TWO_32) / (TWO_32 * TWO_32)).min(1.0 - f64::EPSILON / 2.0)
    }

    /// A fraction from 0 up to, not including, 1, from one draw.
    pub fn next_f32(&mut self) -> f32 {
        (self.next_u32() as f32 / 4_294_967_296.0).min(1.0 - f32::EPSILON / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Mt19937;

    #[test]
    fn known_answers() {
        // The C++ standard: the 10000th output of a default mt19937 (seed 5489).
        let mut rng = Mt19937::new(5489);
        let first: Vec<u32> = (0..3).map(|_| rng.next_u32()).collect();
        assert_eq!(first, [3_499_211_612, 581_869_302, 3_890_346_734]);
        let ten_thousandth = (3..10_000).map(|_| rng.next_u32()).last();
        assert_eq!(ten_thousandth, Some(4_123_659_995));
    }

    #[test]
    fn fractions_are_built_from_the_draws() {
        let (mut a, mut b) = (Mt19937::new(5489), Mt19937::new(5489));
        let expected = (3_499_211_612.0 + 581_869_302.0 * 2f64.powi(32)) / 2f64.powi(64);
        assert_eq!(a.next_f64(), expected);
        assert_eq!(b.next_f32(), 3_499_211_612u32 as f32 / 2f32.powi(32));
        for _ in 0..2000 {
            assert!((0.0..1.0).contains(&a.next_f64()));
            assert!((0.0..1.0).contains(&b.next_f32()));
        }
    }
}
