//! What an engine has run, counted: whether the routes, products and lanes were those one meant.

use emel_kernels::{TileKind, WeightType};

const TYPES: usize = WeightType::ALL.len();
const TILES: usize = TileKind::ALL.len();

/// Products by weight type and tile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProductCounts([[u64; TILES]; TYPES]);

impl ProductCounts {
    pub fn add(&mut self, ty: WeightType, tile: TileKind) {
        self.0[ty as usize][tile as usize] += 1;
    }
}

/// Jobs by where they ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ForkCounts {
    /// On the caller's lane alone.
    pub serial: u64,
    /// On every lane.
    pub parallel: u64,
}

/// Tokens that were drafted ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DraftCounts {
    /// That passed through the model to be verified.
    pub drafted: u64,
    /// That turned out to be the ones selected.
    pub accepted: u64,
    /// Passes that verified some.
    pub passes: u64,
}

/// Everything counted since the engine was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    pub(super) products: ProductCounts,
    pub(super) forks: ForkCounts,
    pub(super) drafts: DraftCounts,
}

impl Counters {
    /// Products of a matrix of `ty` in tiles of `tile`.
    pub fn products(&self, ty: WeightType, tile: TileKind) -> u64 {
        self.products.0[ty as usize][tile as usize]
    }

    /// Jobs that ran on one lane.
    pub fn serial_jobs(&self) -> u64 {
        self.forks.serial
    }

    /// Jobs that ran on every lane.
    pub fn parallel_jobs(&self) -> u64 {
        self.forks.parallel
    }

    /// Tokens that were drafted ahead and passed through the model.
    pub fn drafted(&self) -> u64 {
        self.drafts.drafted
    }

    /// Drafted tokens that turned out to be the ones selected.
    pub fn accepted(&self) -> u64 {
        self.drafts.accepted
    }

    /// Passes that verified drafts.
    pub fn verifying_passes(&self) -> u64 {
        self.drafts.passes
    }

    /// Every count with a name: `jobs_serial`, `jobs_parallel`, `draft_...`, and `matmul_TYPE_TILE` in lower
    /// case.
    pub fn named(&self) -> impl Iterator<Item = (String, u64)> {
        let products = WeightType::ALL.into_iter().flat_map(move |ty| {
            TileKind::ALL.into_iter().map(move |tile| {
                let name = format!("matmul_{}_{}", ty.name(), tile.name());
                (name.to_lowercase(), self.products(ty, tile))
            })
        });
        let jobs = [
            ("jobs_serial".to_owned(), self.serial_jobs()),
            ("jobs_parallel".to_owned(), self.parallel_jobs()),
            ("draft_tokens".to_owned(), self.drafted()),
            ("draft_accepted".to_owned(), self.accepted()),
            ("draft_passes".to_owned(), self.verifying_passes()),
        ];
        jobs.into_iter().chain(products)
    }
}
