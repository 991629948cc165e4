//! The ways to run the engine.

use emel_kernels::Level;

pub const THREADS: [&str; 4] = ["1", "2", "3", "8"];
pub const ROUTES: [&str; 5] = ["auto", "scalar", "chunk4", "chunk8", "wide"];
pub const UBATCHES: [&str; 6] = ["1", "4", "7", "8", "64", "512"];
pub const DRAFTS: [&str; 2] = ["none", "ngram-simple"];

/// One way to run the engine.
#[derive(Clone, Copy)]
pub struct Setting {
    pub level: Level,
    pub threads: &'static str,
    pub route: &'static str,
    pub ubatch: &'static str,
    pub drafts: &'static str,
}

impl Setting {
    /// Its flags.
    pub fn arguments(&self) -> [&'static str; 10] {
        let level = self.level.name();
        let (threads, route, ubatch) = (self.threads, self.route, self.ubatch);
        [
            "--isa",
            level,
            "-t",
            threads,
            "--route",
            route,
            "-ub",
            ubatch,
            "--spec-type",
            self.drafts,
        ]
    }

    /// Whether it drafts.
    pub fn drafting(&self) -> bool {
        self.drafts != DRAFTS[0]
    }
}

/// Every combination, in an order in which neighbours differ in most settings.
pub fn product(levels: &[Level]) -> Vec<Setting> {
    let (n_t, n_r, n_u) = (THREADS.len(), ROUTES.len(), UBATCHES.len());
    let n_d = DRAFTS.len();
    let mut all = Vec::new();
    for step in 0..levels.len() * n_t * n_r * n_u * n_d {
        let (level, rest) = (step % levels.len(), step / levels.len());
        let (thread, rest) = ((rest + level) % n_t, rest / n_t);
        let (route, rest) = ((rest + thread) % n_r, rest / n_r);
        let (ubatch, rest) = ((rest + route) % n_u, rest / n_u);
        all.push(Setting {
            level: levels[level],
            threads: THREADS[thread],
            route: ROUTES[route],
            ubatch: UBATCHES[ubatch],
            drafts: DRAFTS[(rest + ubatch) % n_d],
        });
    }
    all
}

/// `n` of `all` from the `first` on, far apart and of one instruction set after another.
pub fn spread(all: &[Setting], first: usize, n: usize) -> Vec<Setting> {
    // One more than a multiple of the number of instruction sets, whatever that is.
    let stride = (all.len() / n).next_multiple_of(60) + 1;
    let index = |i: usize| (first + i * stride) % all.len();
    (0..n).map(|i| all[index(i)]).collect()
}

/// A sample of `all` in which each value of each setting occurs.
pub fn sample(all: &[Setting], n: usize) -> Vec<Setting> {
    let mut chosen = spread(all, 0, n);
    let mut missing = |value: &str, of: fn(&Setting) -> &str| {
        if !chosen.iter().any(|setting| of(setting) == value) {
            chosen.extend(all.iter().find(|setting| of(setting) == value));
        }
    };
    THREADS
        .iter()
        .for_each(|value| missing(value, |s| s.threads));
    ROUTES.iter().for_each(|value| missing(value, |s| s.route));
    UBATCHES
        .iter()
        .for_each(|value| missing(value, |s| s.ubatch));
    DRAFTS.iter().for_each(|value| missing(value, |s| s.drafts));
    for level in Level::available() {
        missing(level.name(), |s| s.level.name());
    }
    chosen
}

/// The instruction sets of this processor; tells which it lacks.
pub fn levels() -> Vec<Level> {
    let here = Level::available();
    for level in Level::ALL.iter().filter(|level| !here.contains(level)) {
        eprintln!("skipped: this processor has no {level}");
    }
    here
}
