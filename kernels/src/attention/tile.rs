//! A tile's way through the blocks of the cache: all query heads of one key-value head, for a run of
//! tokens.

use std::ops::Range;

use super::job::{BlockView, KeysValues, Panel, Plan};
use super::kernels::{Partial, Span};
use super::products::{ScoresArgs, ValuesArgs};
use super::repack::PackArgs;
use super::workspace::{BlockScratch, Carver, Cut, Scratch, TILE_QUERIES};
use super::{LayerCache, QUERIES};
use crate::lanes::Disjoint;
use crate::level::Kernels;
use crate::memory::bytes_of;

/// A tile's work.
pub(crate) struct TileArgs<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) kv_head: usize,
    pub(super) tokens: Range<usize>,
    /// The lane's memory.
    pub(super) lane: Carver<'a>,
    /// All outputs, of which this tile's are its own.
    pub(super) out: &'a Disjoint<'a, f32>,
}

/// How a tile is done.
#[derive(Clone, Copy)]
pub(crate) struct TileOps {
    /// Queries in a tile, about; never more, unless one token has more.
    pub(super) queries: usize,
    /// Does a tile.
    ///
    /// # Safety
    ///
    /// - The processor has the level of the operations.
    /// - Nobody else writes this tile's outputs.
    pub(super) run: unsafe fn(TileArgs<'_>),
    /// As `run`, with the soft cap.
    pub(super) run_capped: unsafe fn(TileArgs<'_>),
}

impl TileOps {
    /// In panels of [`QUERIES`], reading as `R` does.
    pub(super) const fn panels<R: Reading>() -> TileOps {
        TileOps {
            queries: TILE_QUERIES,
            run: run::<R>,
            run_capped: run::<R>,
        }
    }
}

/// How a tile reads the cache's blocks.
pub(super) trait Reading {
    /// A block, from the view of what is stored.
    fn read<'s>(
        plan: &Plan<'_>,
        stored: BlockView<'s>,
        k: &'s mut [[i32; 16]],
        v: &'s mut [[i32; 16]],
    ) -> BlockView<'s>;
    /// Scores of the keys.
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>);
    /// Weighted sums of the values.
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>);
    /// How a tile is done at a level.
    fn ops(kernels: Kernels, cache: &LayerCache) -> TileOps;
}

/// The ways in which an [`AttentionJob`](super::AttentionJob) reads the cache: [`Direct`] and
/// [`Repacked`].
#[allow(private_bounds)] // only the two
pub trait CacheReading: Reading + Send + Sync + 'static {}

impl CacheReading for Direct {}
impl CacheReading for Repacked {}

/// Reads blocks as they are stored: for few queries at a time.
pub struct Direct;

impl Reading for Direct {
    fn read<'s>(
        _: &Plan<'_>,
        stored: BlockView<'s>,
        _: &'s mut [[i32; 16]],
        _: &'s mut [[i32; 16]],
    ) -> BlockView<'s> {
        stored
    }
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>) {
        plan.input.cache.k_codec.scores
    }
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>) {
        plan.input.cache.v_codec.values
    }
    fn ops(_: Kernels, _: &LayerCache) -> TileOps {
        TileOps::panels::<Direct>()
    }
}

/// Makes integers of each block first, once for all queries of a tile: for many at a time. Of a cache
/// that holds single precision, whose numbers are no integers, it reads blocks as they are stored.
pub struct Repacked;

impl Reading for Repacked {
    fn read<'s>(
        plan: &Plan<'_>,
        stored: BlockView<'s>,
        k: &'s mut [[i32; 16]],
        v: &'s mut [[i32; 16]],
    ) -> BlockView<'s> {
        plan.repack(&stored, &mut *k, &mut *v);
        let (k, v) = (bytes_of(k.as_flattened()), bytes_of(v.as_flattened()));
        BlockView {
            data: KeysValues { k, v },
            // It lies in a cache near the core.
            ahead: KeysValues { k: &[], v: &[] },
            ..stored
        }
    }
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>) {
        plan.kernels.0.attention.packed_scores
    }
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>) {
        plan.kernels.0.attention.packed_values
    }
    fn ops(kernels: Kernels, cache: &LayerCache) -> TileOps {
        match cache.packing() {
            Some(_) => kernels.0.attention.repacked,
            None => TileOps::panels::<Direct>(),
        }
    }
}

impl Plan<'_> {
    /// Repacks a block in the form that the level's tiles take.
    pub(super) fn repack(&self, stored: &BlockView<'_>, k: &mut [[i32; 16]], v: &mut [[i32; 16]]) {
        let packing = self.input.cache.packing().expect("a cache of integers");
        // SAFETY: the cache's codecs come from a `Kernels`, which proves their level.
        unsafe {
            (packing.k)(PackArgs {
                from: stored.data.k,
                inverses: stored.inverses.k,
                to: k,
            });
            (packing.v)(PackArgs {
                from: stored.data.v,
                inverses: stored.inverses.v,
                to: v,
            });
        }
    }

    /// Divides the sums of a tile's queries, `o` `[queries][vectors]`, and writes them out.
    ///
    /// # Safety
    ///
    /// - Nobody else writes the outputs of these tokens and this key-value head.
    pub(super) unsafe fn finish_tile(
        &self,
        (kv_head, tokens): (usize, Range<usize>),
        (o, l): (&[[f32; 16]], &[f32]),
        out: &Disjoint<'_, f32>,
    ) {
        let head_dim = self.input.cache.head_dim_v();
        let queries = tokens.len() * self.group;
        for (i, (o, &l)) in o.chunks(self.vectors).zip(l).take(queries).enumerate() {
            let token = tokens.start + i / self.group;
            let row = token * self.input.n_head + kv_head * self.group + i % self.group;
            // SAFETY: the caller's obligation.
            let out = unsafe { out.slice(row * head_dim..(row + 1) * head_dim) };
            self.finish(o, l, out);
        }
    }
}

/// Does a tile, panel by panel on each block.
///
/// # Safety
///
/// - Nobody else writes this tile's outputs.
unsafe fn run<R: Reading>(args: TileArgs<'_>) {
    let TileArgs {
        plan,
        kv_head,
        tokens,
        lane,
        out,
    } = args;
    let (group, vectors) = (plan.group, plan.vectors);
    let queries = tokens.len() * group;
    let head_dim_k = plan.input.cache.head_dim_k();
    let pairs = head_dim_k.div_ceil(2);
    let mut scratch = Scratch::cut(
        lane,
        Cut {
            queries,
            head_dim_k,
            vectors,
        },
    );
    plan.fill_panels(
        kv_head,
        tokens.start,
        queries,
        scratch.panels,
        scratch.scales,
    );
    scratch.m.fill(f32::NEG_INFINITY);
    scratch.l.fill(0.0);
    scratch.o.fill([0.0; 16]);

    let pos = |token: usize| plan.input.pos0 + token;
    let blocks = plan.blocks(pos(tokens.start), pos(tokens.end - 1));
    for block in blocks.clone() {
        let next = (block + 1 < blocks.end).then_some((kv_head, block + 1));
        let stored = plan.stored(kv_head, block, next, scratch.inverses);
        let view = R::read(plan, stored, scratch.k, scratch.v);
        for first in (0..queries).step_by(QUERIES) {
            let n = QUERIES.min(queries - first);
            let mut spans = [Span::default(); QUERIES];
            for (i, span) in spans.iter_mut().enumerate().take(n) {
                *span = plan.span(pos(tokens.start + (first + i) / group), block);
            }
            let spans = &spans[..n];
            if spans.iter().all(|span| span.is_empty()) {
                continue;
            }
            let panel = Panel {
                queries: plan.queries(kv_head, tokens.start, first),
                pairs: &scratch.panels[first * pairs..][..n * pairs],
                scales: &scratch.scales[first..][..n],
            };
            let (mut m, mut l) = ([0.0; QUERIES], [0.0; QUERIES]);
            let (m, l) = (&mut m[..n], &mut l[..n]);
            let BlockScratch { scores, weights, o } = &mut scratch.block;
            let o = &mut o[..n * vectors];
            plan.block::<R>(
                panel,
                view,
                spans,
                (scores, weights),
                Partial {
                    m: &mut *m,
                    l: &mut *l,
                    o: &mut *o,
                },
            );
            let sum = Partial {
                m: &mut scratch.m[first..][..n],
                l: &mut scratch.l[first..][..n],
                o: &mut scratch.o[first * vectors..][..n * vectors],
            };
            plan.merge(spans, Partial { m, l, o }, sum);
        }
    }
    // SAFETY: the caller's obligation.
    unsafe { plan.finish_tile((kv_head, tokens), (scratch.o, scratch.l), out) };
}
