//! Attention of a run of tokens, each lane walking all blocks of its share.

use std::marker::PhantomData;
use std::ops::Range;

use super::cache::lowest;
use super::element::steps;
use super::integers::{InversesArgs, PanelArgs, Queries};
use super::kernels::{FinishArgs, MergeAllArgs, MergeArgs, Partial, Row, SoftmaxArgs, Span};
use super::products::{ScoresArgs, ValuesArgs};
use super::tile::{CacheReading, Reading, TileArgs};
use super::workspace::{Carver, lane_lines};
use super::{AttentionWorkspace, BLOCK, LayerCache, QUERIES};
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;

/// What to attend with, and to what.
#[derive(Clone, Copy)]
pub struct AttentionInput<'a> {
    /// `[tokens, n_head, head_dim_k]`, after rope.
    pub q: &'a [f32],
    /// The layer's cache, with the tokens' own positions stored, and what they see before them
    /// still held ([`LayerCache::first_held`]).
    pub cache: &'a LayerCache,
    /// The first token's position; the others follow.
    pub pos0: usize,
    /// Query heads, a multiple of the cache's key-value heads: query head `h` attends with
    /// key-value head `h / (n_head / n_kv_heads)`.
    pub n_head: usize,
    /// What each dot product is multiplied by, usually `1 / sqrt(head_dim)`.
    pub scale: f32,
    /// Attend to this many last positions at most, the own one included; to all for `None`.
    pub window: Option<usize>,
    /// The score's soft cap, if any.
    pub softcap: Option<f32>,
}

/// Something of keys, and of values.
#[derive(Clone, Copy)]
pub(super) struct KeysValues<T> {
    pub(super) k: T,
    pub(super) v: T,
}

/// One head's part of a block, for the products.
#[derive(Clone, Copy)]
pub(super) struct BlockView<'a> {
    /// As it is stored, or repacked.
    pub(super) data: KeysValues<&'a [u8]>,
    /// The positions' steps, and what turns their numbers into integers.
    pub(super) steps: KeysValues<&'a Row<f32>>,
    pub(super) inverses: KeysValues<&'a Row<f32>>,
    /// What will be read after the keys, and after the values.
    pub(super) ahead: KeysValues<&'a [u8]>,
}

/// Queries, as they are and as integers.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a> {
    pub(super) queries: Queries<'a>,
    /// `[head_dim / 2][n]` pairs.
    pub(super) pairs: &'a [i32],
    /// What each query's scores are multiplied by, `[n]`.
    pub(super) scales: &'a [f32],
}

/// A checked [`AttentionInput`] with what follows from it.
pub(super) struct Plan<'a> {
    pub(super) kernels: Kernels,
    pub(super) input: AttentionInput<'a>,
    pub(super) tokens: usize,
    /// Query heads for each key-value head.
    pub(super) group: usize,
    /// Vectors of sixteen in a value.
    pub(super) vectors: usize,
    /// From the table of `kernels`, with or without soft cap.
    pub(super) softmax: unsafe fn(SoftmaxArgs<'_>),
}

impl<'a> Plan<'a> {
    /// Panics when shapes disagree, with each other or with the workspace's, or levels do.
    pub(super) fn new(
        kernels: Kernels,
        input: AttentionInput<'a>,
        workspace: &AttentionWorkspace,
        out: usize,
    ) -> Plan<'a> {
        let AttentionInput {
            q,
            cache,
            pos0,
            n_head,
            window,
            ..
        } = input;
        assert!(
            n_head > 0 && n_head.is_multiple_of(cache.n_kv_heads()),
            "{n_head} query heads for {} key-value heads",
            cache.n_kv_heads()
        );
        // Repacked blocks have the form that the level's tiles take.
        assert_eq!(
            cache.level,
            kernels.level(),
            "a cache of another instruction set"
        );
        let tokens = q.len() / (n_head * cache.head_dim_k());
        assert_eq!(
            q.len(),
            tokens * n_head * cache.head_dim_k(),
            "queries are not whole rows"
        );
        assert_eq!(
            out,
            tokens * n_head * cache.head_dim_v(),
            "output of another shape"
        );
        assert_ne!(window, Some(0), "a window of no positions");
        assert!(
            pos0.checked_add(tokens)
                .is_some_and(|end| end <= cache.capacity()),
            "{tokens} positions from {pos0} are not in a cache of {}",
            cache.capacity()
        );
        let lowest = lowest(window, pos0);
        assert!(
            cache.layout.holds(lowest..pos0 + tokens),
            "{tokens} positions from {pos0} look back to {lowest}, and a cache that holds {} at once does not",
            cache.shape().n_held
        );
        let shape = workspace.shape();
        assert!(
            n_head <= shape.n_head
                && cache.head_dim_k() <= shape.head_dim_k
                && cache.head_dim_v() <= shape.head_dim_v
                && pos0 + tokens <= shape.n_ctx.next_multiple_of(BLOCK),
            "the attention workspace was allocated for less: {shape:?}"
        );
        let softmax = match input.softcap {
            Some(_) => kernels.0.attention.softmax_capped,
            None => kernels.0.attention.softmax,
        };
        let group = n_head / cache.n_kv_heads();
        Plan {
            kernels,
            input,
            tokens,
            group,
            vectors: cache.vectors(),
            softmax,
        }
    }

    /// The first position that a token at `pos` attends to.
    fn lowest(&self, pos: usize) -> usize {
        lowest(self.input.window, pos)
    }

    /// The blocks that tokens at positions `first..=last` attend to.
    pub(super) fn blocks(&self, first: usize, last: usize) -> Range<usize> {
        self.lowest(first) / BLOCK..last / BLOCK + 1
    }

    /// What a token at `pos` attends to in a block.
    pub(super) fn span(&self, pos: usize, block: usize) -> Span {
        let start = block * BLOCK;
        Span {
            from: self.lowest(pos).saturating_sub(start).min(BLOCK),
            to: (pos + 1).saturating_sub(start).min(BLOCK),
        }
    }

    /// The queries of a tile from `first` on, `token` being the tile's first.
    pub(super) fn queries(&self, kv_head: usize, token: usize, first: usize) -> Queries<'a> {
        Queries {
            all: self.input.q,
            head_dim: self.input.cache.head_dim_k(),
            n_head: self.input.n_head,
            group: self.group,
            kv_head,
            token,
            first,
        }
    }

    /// Writes the panels of some `queries` of a tile, up to [`QUERIES`] in each.
    pub(super) fn fill_panels(
        &self,
        kv_head: usize,
        token: usize,
        queries: usize,
        panels: &mut [i32],
        scales: &mut [f32],
    ) {
        let head_dim = self.input.cache.head_dim_k();
        let panels = panels.chunks_mut(QUERIES * head_dim.div_ceil(2));
        let scales = scales[..queries].chunks_mut(QUERIES);
        for (i, (panel, scales)) in panels.zip(scales).enumerate() {
            let n = scales.len();
            let args = PanelArgs {
                queries: self.queries(kv_head, token, i * QUERIES),
                scale: self.input.scale,
                panel: &mut panel[..n * head_dim.div_ceil(2)],
                scales,
            };
            // SAFETY: the cache's codecs come from a `Kernels`, which proves their level.
            unsafe { (self.input.cache.k_codec.fill_panel)(args) };
        }
    }

    /// One head's part of a block as it is stored. The inverses of its steps are written to
    /// `inverses`, for keys and for values.
    pub(super) fn stored<'s>(
        &'s self,
        kv_head: usize,
        block: usize,
        next: Option<(usize, usize)>,
        inverses: &'s mut [Row<f32>],
    ) -> BlockView<'s> {
        let cache = self.input.cache;
        let (k, v) = (cache.k_block(kv_head, block), cache.v_block(kv_head, block));
        let [k_inverses, v_inverses] = inverses.first_chunk_mut().expect("of keys and of values");
        for (bytes, to) in [(k, &mut *k_inverses), (v, &mut *v_inverses)] {
            let steps = steps(bytes);
            // SAFETY: `kernels` proves the level.
            unsafe { (self.kernels.0.attention.inverses)(InversesArgs { steps, to }) };
        }
        let next = next.map_or(&[][..], |(kv_head, block)| cache.k_block(kv_head, block));
        BlockView {
            data: KeysValues { k, v },
            steps: KeysValues {
                k: steps(k),
                v: steps(v),
            },
            inverses: KeysValues {
                k: k_inverses,
                v: v_inverses,
            },
            ahead: KeysValues { k: v, v: next },
        }
    }

    /// One block for one panel: its maxima, sums and outputs into `block`.
    pub(super) fn block<R: Reading>(
        &self,
        panel: Panel<'_>,
        view: BlockView<'_>,
        spans: &[Span],
        scratch: (&mut [Row<f32>], &mut [super::kernels::Pairs]),
        block: Partial<&mut [f32], &mut [[f32; 16]]>,
    ) {
        let n = spans.len();
        let (scores, weights) = (&mut scratch.0[..n], &mut scratch.1[..n]);
        let cap = self.input.softcap.unwrap_or_default();
        let seen = spans.iter().filter(|span| !span.is_empty());
        let first = seen.clone().map(|span| span.from).min().unwrap_or(BLOCK);
        let end = seen.map(|span| span.to).max().unwrap_or(BLOCK);
        let mut weight_steps = [0.0; QUERIES];
        // SAFETY: `kernels` proves the level of the table's entries, and the `Kernels` that the
        // cache was made with that of its codecs.
        unsafe {
            R::scores(self)(ScoresArgs {
                panel: panel.pairs,
                queries: panel.queries,
                k: view.data.k,
                inverses: view.inverses.k,
                steps: view.steps.k,
                scores: &mut *scores,
                ahead: view.ahead.k,
            });
            (self.softmax)(SoftmaxArgs {
                scores: &mut *scores,
                spans,
                scales: panel.scales,
                cap,
                value_steps: view.steps.v,
                weights: &mut *weights,
                steps: &mut weight_steps[..n],
                m: block.m,
                l: block.l,
            });
            R::values(self)(ValuesArgs {
                weights,
                steps: &weight_steps[..n],
                weighted: scores,
                spans,
                pairs: first / 2..end.div_ceil(2),
                v: view.data.v,
                inverses: view.inverses.v,
                o: block.o,
                ahead: view.ahead.v,
            });
        }
    }

    /// Merges all blocks of one query: the m, l and o of a block lie `stride` after those of the
    /// one before. Leaves the outputs in `o`, which is zero, and returns their l.
    pub(super) fn merge_all(
        &self,
        stride: usize,
        blocks: Partial<&[f32], &[[f32; 16]]>,
        o: &mut [[f32; 16]],
    ) -> f32 {
        // SAFETY: `kernels` proves the level.
        unsafe { (self.kernels.0.attention.merge_all)(MergeAllArgs { stride, blocks, o }) }
    }

    /// Merges a block into running results.
    pub(super) fn merge(
        &self,
        spans: &[Span],
        block: Partial<&[f32], &[[f32; 16]]>,
        sum: Partial<&mut [f32], &mut [[f32; 16]]>,
    ) {
        // SAFETY: `kernels` proves the level.
        unsafe { (self.kernels.0.attention.merge)(MergeArgs { spans, block, sum }) }
    }

    /// Writes one query's result.
    pub(super) fn finish(&self, o: &[[f32; 16]], l: f32, out: &mut [f32]) {
        // SAFETY: `kernels` proves the level.
        unsafe { (self.kernels.0.attention.finish)(FinishArgs { o, l, out }) }
    }
}

/// Attention of a run of tokens; see the module's definition.
///
/// `R` says how it reads the cache: [`super::Direct`] suits few queries a block, [`super::Repacked`] many. The
/// bits are the same.
pub struct AttentionJob<'a, R> {
    plan: Plan<'a>,
    out: Disjoint<'a, f32>,
    scratch: Disjoint<'a, [u8; 64]>,
    lane_lines: usize,
    /// Tokens in a tile.
    tile: usize,
    run: unsafe fn(TileArgs<'_>),
    reading: PhantomData<R>,
}

impl<'a, R: CacheReading> AttentionJob<'a, R> {
    /// For `out` `[tokens, n_head, head_dim_v]`. Run it on at most the workspace's lanes.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, a position is beyond the cache's capacity, the tokens see more
    /// positions than it holds at once, or the workspace is too small.
    pub fn new(
        kernels: Kernels,
        input: AttentionInput<'a>,
        workspace: &'a mut AttentionWorkspace,
        out: &'a mut [f32],
    ) -> Self {
        let plan = Plan::new(kernels, input, workspace, out.len());
        let shape = workspace.shape();
        // As many tokens as make a full tile, but fewer where lanes would find no work.
        let items = plan.tokens * input.cache.n_kv_heads();
        let ops = R::ops(kernels, input.cache);
        let full = (ops.queries / plan.group).max(1);
        let tile = (items / (2 * shape.lanes.max(1))).clamp(1, full);
        AttentionJob {
            plan,
            out: Disjoint::new(out),
            scratch: Disjoint::new(&mut workspace.scratch),
            lane_lines: lane_lines(&shape),
            tile,
            run: match input.softcap {
                Some(_) => ops.run_capped,
                None => ops.run,
            },
            reading: PhantomData,
        }
    }
}

impl<R: CacheReading> Job for AttentionJob<'_, R> {
    fn part(&self, part: &Part<'_, Self>) {
        let plan = &self.plan;
        let n_kv_heads = plan.input.cache.n_kv_heads();
        let tiles = plan.tokens.div_ceil(self.tile);
        let run = self.run;
        while let Some(item) = part.claim_one(tiles * n_kv_heads) {
            // The last tokens see the most positions: of each head they come first, so that no
            // lane begins the longest piece when the others are about to end.
            let first = (tiles - 1 - item % tiles) * self.tile;
            // SAFETY: one part of a dispatch has this index.
            let lane = unsafe { Carver::of_lane(&self.scratch, self.lane_lines, part.index()) };
            let args = TileArgs {
                plan,
                kv_head: item / tiles,
                tokens: first..plan.tokens.min(first + self.tile),
                lane,
                out: &self.out,
            };
            // SAFETY: `kernels` proves the level, and each tile is claimed once.
            unsafe { run(args) };
        }
    }
}
