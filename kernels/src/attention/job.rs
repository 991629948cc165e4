//! Attention of a run of tokens, each lane walking all blocks of its share.

use std::marker::PhantomData;
use std::ops::Range;

use super::kernels::{
    FinishArgs, MergeAllArgs, MergeArgs, Partial, Row, SoftmaxArgs, Span, WidenArgs,
};
use super::products::{ScoresArgs, ValuesArgs};
use super::workspace::{Scratch, TILE_QUERIES, lane_vectors};
use super::{AttentionWorkspace, BLOCK, LayerCache, QUERIES};
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;
use crate::memory::bytes_of;

/// What to attend with, and to what.
#[derive(Clone, Copy)]
pub struct AttentionInput<'a> {
    /// `[tokens, n_head, head_dim_k]`, after rope.
    pub q: &'a [f32],
    /// The layer's cache, with the tokens' own positions stored.
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

/// One head's keys and values of a block, as they are stored or widened.
pub(super) type KeysValues<'a> = (&'a [u8], &'a [u8]);

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
    softmax: unsafe fn(SoftmaxArgs<'_>),
}

impl<'a> Plan<'a> {
    /// Panics when shapes disagree, with each other or with the workspace's.
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
        self.input
            .window
            .map_or(0, |window| (pos + 1).saturating_sub(window))
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

    /// Writes a panel: `n` queries of a key-value head, query `i` of the tile being head
    /// `i % group` of token `token + i / group`.
    pub(super) fn fill_panel(
        &self,
        kv_head: usize,
        token: usize,
        queries: Range<usize>,
        panel: &mut [f32],
    ) {
        let head_dim = self.input.cache.head_dim_k();
        let n = queries.len();
        for (to, i) in queries.enumerate() {
            let head = kv_head * self.group + i % self.group;
            let row = (token + i / self.group) * self.input.n_head + head;
            let q = &self.input.q[row * head_dim..][..head_dim];
            for (d, &q) in q.iter().enumerate() {
                panel[d * n + to] = q;
            }
        }
    }

    /// One block for one panel: its maxima, sums and outputs into `block`.
    #[allow(clippy::too_many_arguments)] // the pieces of a block's work, borrowed apart
    pub(super) fn block<R: Reading>(
        &self,
        panel: &[f32],
        (k, v): KeysValues<'_>,
        spans: &[Span],
        scores: &mut [Row<f32>],
        block: Partial<&mut [f32], &mut [[f32; 16]]>,
        (v_ahead, k_ahead): KeysValues<'_>,
    ) {
        let AttentionInput { scale, softcap, .. } = self.input;
        let cap = softcap.unwrap_or_default();
        // SAFETY: `kernels` proves the level of the table's entries, and the `Kernels` that the
        // cache was made with that of its codecs.
        unsafe {
            R::scores(self)(ScoresArgs {
                panel,
                k,
                scores,
                ahead: v_ahead,
            });
            (self.softmax)(SoftmaxArgs {
                scores,
                spans,
                scale,
                cap,
                m: block.m,
                l: block.l,
            });
            R::values(self)(ValuesArgs {
                weights: scores,
                spans,
                v,
                o: block.o,
                ahead: k_ahead,
            });
        }
    }

    /// What will be read after a block's keys, and after its values (the keys of the `next` head and
    /// block, if any): memory to ask for early.
    /// Nothing for blocks that were widened, which lie in a cache near the core.
    pub(super) fn ahead<R: Reading>(
        &self,
        kv_head: usize,
        block: usize,
        next: Option<(usize, usize)>,
    ) -> KeysValues<'a> {
        let cache: &'a LayerCache = self.input.cache;
        let next = next.map_or(&[][..], |(kv_head, block)| cache.k_block(kv_head, block));
        R::ahead((cache.v_block(kv_head, block), next))
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

/// How a tile reads the cache's blocks.
pub(super) trait Reading {
    /// One block's keys and values.
    fn read<'s>(
        plan: &Plan<'s>,
        kv_head: usize,
        block: usize,
        k: &'s mut [Row<f32>],
        v: &'s mut [[f32; 16]],
    ) -> KeysValues<'s>;
    /// Keeps what [`Plan::ahead`] found if it is worth asking for.
    fn ahead<'s>(found: KeysValues<'s>) -> KeysValues<'s>;
    /// Scores of the keys.
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>);
    /// Weighted sums of the values.
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>);
}

/// The ways in which an [`AttentionJob`] reads the cache: [`Direct`] and [`Widened`].
#[allow(private_bounds)] // only the two
pub trait CacheReading: Reading + Send + Sync + 'static {}

impl CacheReading for Direct {}
impl CacheReading for Widened {}

/// Reads blocks as they are stored: for few queries at a time.
pub struct Direct;

impl Reading for Direct {
    fn read<'s>(
        plan: &Plan<'s>,
        kv_head: usize,
        block: usize,
        _: &'s mut [Row<f32>],
        _: &'s mut [[f32; 16]],
    ) -> KeysValues<'s> {
        (
            plan.input.cache.k_block(kv_head, block),
            plan.input.cache.v_block(kv_head, block),
        )
    }
    fn ahead<'s>(found: KeysValues<'s>) -> KeysValues<'s> {
        found
    }
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>) {
        plan.input.cache.k_codec.scores
    }
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>) {
        plan.input.cache.v_codec.values
    }
}

/// Widens each block to `f32` first, once for all queries of a tile: for many at a time.
pub struct Widened;

impl Reading for Widened {
    fn read<'s>(
        plan: &Plan<'s>,
        kv_head: usize,
        block: usize,
        k: &'s mut [Row<f32>],
        v: &'s mut [[f32; 16]],
    ) -> KeysValues<'s> {
        let cache = plan.input.cache;
        // SAFETY: the cache's codecs come from a `Kernels`, which proves their level.
        unsafe {
            (cache.k_codec.widen_keys)(WidenArgs {
                from: cache.k_block(kv_head, block),
                to: k.as_flattened_mut(),
            });
            (cache.v_codec.widen_values)(WidenArgs {
                from: cache.v_block(kv_head, block),
                to: v,
            });
        }
        (
            bytes_of(k.as_flattened().as_flattened()),
            bytes_of(v.as_flattened()),
        )
    }
    fn ahead<'s>(_: KeysValues<'s>) -> KeysValues<'s> {
        (&[], &[])
    }
    fn scores(plan: &Plan<'_>) -> unsafe fn(ScoresArgs<'_>) {
        plan.kernels.0.attention.codecs.single.scores
    }
    fn values(plan: &Plan<'_>) -> unsafe fn(ValuesArgs<'_>) {
        plan.kernels.0.attention.codecs.single.values
    }
}

/// Attention of a run of tokens; see the module's definition.
///
/// `R` says how it reads the cache: [`Direct`] suits few queries a block, [`Widened`] many. The
/// bits are the same.
pub struct AttentionJob<'a, R> {
    plan: Plan<'a>,
    out: Disjoint<'a, f32>,
    scratch: Disjoint<'a, [f32; 16]>,
    lane_vectors: usize,
    /// Tokens in a tile.
    tile: usize,
    reading: PhantomData<R>,
}

impl<'a, R: CacheReading> AttentionJob<'a, R> {
    /// For `out` `[tokens, n_head, head_dim_v]`. Run it on at most the workspace's lanes.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, a position is beyond the cache's capacity, or the workspace is
    /// too small.
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
        let full = (TILE_QUERIES / plan.group).max(1);
        let tile = (items / (2 * shape.lanes.max(1))).clamp(1, full);
        AttentionJob {
            plan,
            out: Disjoint::new(out),
            scratch: Disjoint::new(&mut workspace.scratch),
            lane_vectors: lane_vectors(&shape),
            tile,
            reading: PhantomData,
        }
    }

    /// All query heads of one key-value head, for some tokens.
    fn run_tile(&self, kv_head: usize, tokens: Range<usize>, scratch: &mut Scratch<'_>) {
        let plan = &self.plan;
        let (group, vectors, head_dim) = (plan.group, plan.vectors, plan.input.cache.head_dim_k());
        let queries = tokens.len() * group;
        for first in (0..queries).step_by(QUERIES) {
            let panel = first..queries.min(first + QUERIES);
            let to = &mut scratch.panels[first * head_dim..panel.end * head_dim];
            plan.fill_panel(kv_head, tokens.start, panel, to);
        }
        scratch.m[..queries].fill(f32::NEG_INFINITY);
        scratch.l[..queries].fill(0.0);
        scratch.o[..queries * vectors].fill([0.0; 16]);

        let pos = |token: usize| plan.input.pos0 + token;
        let blocks = plan.blocks(pos(tokens.start), pos(tokens.end - 1));
        for block in blocks.clone() {
            let (k, v) = R::read(plan, kv_head, block, scratch.k, scratch.v);
            let next = (block + 1 < blocks.end).then_some((kv_head, block + 1));
            let ahead = plan.ahead::<R>(kv_head, block, next);
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
                let (mut m, mut l) = ([0.0; QUERIES], [0.0; QUERIES]);
                let (m, l) = (&mut m[..n], &mut l[..n]);
                let o = &mut scratch.block_o[..n * vectors];
                plan.block::<R>(
                    &scratch.panels[first * head_dim..][..n * head_dim],
                    (k, v),
                    spans,
                    &mut scratch.scores[..n],
                    Partial { m, l, o },
                    ahead,
                );
                let sum = Partial {
                    m: &mut scratch.m[first..][..n],
                    l: &mut scratch.l[first..][..n],
                    o: &mut scratch.o[first * vectors..][..n * vectors],
                };
                plan.merge(spans, Partial { m, l, o }, sum);
            }
        }

        let head_dim = plan.input.cache.head_dim_v();
        for i in 0..queries {
            let row = (tokens.start + i / group) * plan.input.n_head + kv_head * group + i % group;
            // SAFETY: this key-value head's rows of these tokens are this item's alone.
            let out = unsafe { self.out.slice(row * head_dim..(row + 1) * head_dim) };
            plan.finish(&scratch.o[i * vectors..][..vectors], scratch.l[i], out);
        }
    }
}

impl<R: CacheReading> Job for AttentionJob<'_, R> {
    fn part(&self, part: &Part<'_, Self>) {
        let plan = &self.plan;
        let n_kv_heads = plan.input.cache.n_kv_heads();
        let tiles = plan.tokens.div_ceil(self.tile);
        // SAFETY: one part of a dispatch has this index.
        let mut scratch = unsafe {
            Scratch::of_lane(
                &self.scratch,
                self.lane_vectors,
                part.index(),
                self.tile * plan.group,
                plan.input.cache.head_dim_k(),
                plan.vectors,
            )
        };
        while let Some(item) = part.claim_one(tiles * n_kv_heads) {
            // The last tokens see the most positions: of each head they come first, so that no
            // lane begins the longest piece when the others are about to end.
            let first = (tiles - 1 - item % tiles) * self.tile;
            let tokens = first..plan.tokens.min(first + self.tile);
            self.run_tile(item / tiles, tokens, &mut scratch);
        }
    }
}
