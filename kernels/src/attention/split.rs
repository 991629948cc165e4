//! Attention of one token, split over blocks: the decode step of a long context.
//!
//! [`AttentionSplitJob`] computes each block's maximum, sum and outputs; [`AttentionMergeJob`]
//! merges them in ascending order. Both do what [`super::AttentionJob`] does, piece by piece, so
//! the bits are the same.

use super::job::{AttentionInput, Panel, Plan};
use super::kernels::Partial;
use super::tile::Direct;
use super::workspace::{BlockScratch, Carver, Cut, Scratch, lane_lines};
use super::{AttentionWorkspace, QUERIES};
use crate::lanes::{Disjoint, Job, Part};
use crate::level::Kernels;

/// The most blocks a lane claims at once.
const MAX_RUN: usize = 8;

/// What a workspace's partial results are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pos: usize,
    n_kv_heads: usize,
    group: usize,
    vectors: usize,
    first_block: usize,
    blocks: usize,
}

impl Split {
    fn of(plan: &Plan<'_>) -> Split {
        assert_eq!(
            plan.tokens, 1,
            "only one token's attention is split over blocks"
        );
        let pos = plan.input.pos0;
        let blocks = plan.blocks(pos, pos);
        Split {
            pos,
            n_kv_heads: plan.input.cache.n_kv_heads(),
            group: plan.group,
            vectors: plan.vectors,
            first_block: blocks.start,
            blocks: blocks.len(),
        }
    }
}

/// The first half of one token's attention: every block by itself, into the workspace.
pub struct AttentionSplitJob<'a> {
    plan: Plan<'a>,
    split: Split,
    scratch: Disjoint<'a, [u8; 64]>,
    lane_lines: usize,
    o: Disjoint<'a, [f32; 16]>,
    m: Disjoint<'a, f32>,
    l: Disjoint<'a, f32>,
    /// Blocks a lane claims at once.
    run: usize,
}

impl<'a> AttentionSplitJob<'a> {
    /// For one token. Run it on at most the workspace's lanes, then an [`AttentionMergeJob`] on
    /// the same input and workspace.
    ///
    /// # Panics
    ///
    /// When `input` has another number of tokens, the shapes disagree, the position is beyond
    /// the cache's capacity or sees more than it holds at once, or the workspace is too small.
    pub fn new(
        kernels: Kernels,
        input: AttentionInput<'a>,
        workspace: &'a mut AttentionWorkspace,
    ) -> Self {
        let out = input.n_head * input.cache.head_dim_v();
        let plan = Plan::new(kernels, input, workspace, out);
        let split = Split::of(&plan);
        workspace.split = Some(split);
        let shape = workspace.shape();
        let items = split.n_kv_heads * split.blocks;
        AttentionSplitJob {
            plan,
            split,
            scratch: Disjoint::new(&mut workspace.scratch),
            lane_lines: lane_lines(&shape),
            o: Disjoint::new(&mut workspace.o),
            m: Disjoint::new(&mut workspace.m),
            l: Disjoint::new(&mut workspace.l),
            run: (items / (8 * shape.lanes.max(1))).clamp(1, MAX_RUN),
        }
    }

    /// One block of one key-value head.
    fn block(&self, item: usize, more: bool, scratch: &mut Scratch<'_>) {
        let (plan, split) = (&self.plan, &self.split);
        let (group, vectors) = (split.group, split.vectors);
        let place = |item: usize| {
            let block = split.first_block + item / split.n_kv_heads;
            (item % split.n_kv_heads, block)
        };
        let (kv_head, block) = place(item);
        let next = more.then(|| place(item + 1));
        let pairs = plan.input.cache.head_dim_k().div_ceil(2);
        let span = plan.span(split.pos, block);
        let first = item * group;
        // SAFETY: each block of each head is claimed once.
        let (o, m, l) = unsafe {
            (
                self.o.slice(first * vectors..(first + group) * vectors),
                self.m.slice(first..first + group),
                self.l.slice(first..first + group),
            )
        };
        let view = plan.stored(kv_head, block, next, scratch.inverses);
        let panels = o
            .chunks_mut(QUERIES * vectors)
            .zip(m.chunks_mut(QUERIES))
            .zip(l.chunks_mut(QUERIES))
            .zip(scratch.panels[kv_head * group * pairs..].chunks(QUERIES * pairs))
            .zip(scratch.scales[kv_head * group..].chunks(QUERIES));
        for (i, ((((o, m), l), panel), scales)) in panels.enumerate() {
            let n = m.len();
            let panel = Panel {
                queries: plan.queries(kv_head, 0, i * QUERIES),
                pairs: &panel[..n * pairs],
                scales: &scales[..n],
            };
            let BlockScratch {
                scores, weights, ..
            } = &mut scratch.block;
            plan.block::<Direct>(
                panel,
                view,
                &[span; QUERIES][..n],
                (scores, weights),
                Partial { m, l, o },
            );
        }
    }
}

impl Job for AttentionSplitJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let (plan, split) = (&self.plan, &self.split);
        // SAFETY: one part of a dispatch has this index.
        let lane = unsafe { Carver::of_lane(&self.scratch, self.lane_lines, part.index()) };
        let head_dim_k = plan.input.cache.head_dim_k();
        let cut = Cut {
            queries: plan.input.n_head,
            head_dim_k,
            vectors: split.vectors,
        };
        let mut scratch = Scratch::cut(lane, cut);
        let Scratch { panels, scales, .. } = &mut scratch;
        let heads = panels
            .chunks_mut(split.group * head_dim_k.div_ceil(2))
            .zip(scales.chunks_mut(split.group));
        for (kv_head, (panels, scales)) in heads.enumerate() {
            plan.fill_panels(kv_head, 0, split.group, panels, scales);
        }
        while let Some(items) = part.claim(split.n_kv_heads * split.blocks, self.run) {
            for item in items.clone() {
                self.block(item, item + 1 < items.end, &mut scratch);
            }
        }
    }
}

/// The second half of one token's attention: merges the blocks of each head.
pub struct AttentionMergeJob<'a> {
    plan: Plan<'a>,
    split: Split,
    scratch: Disjoint<'a, [u8; 64]>,
    lane_lines: usize,
    o: &'a [[f32; 16]],
    m: &'a [f32],
    l: &'a [f32],
    out: Disjoint<'a, f32>,
}

impl<'a> AttentionMergeJob<'a> {
    /// For the `input` of the [`AttentionSplitJob`] that ran last on `workspace`, and `out`
    /// `[n_head, head_dim_v]`. Run it on at most the workspace's lanes.
    ///
    /// # Panics
    ///
    /// When the shapes disagree, or the workspace holds the results of another input.
    pub fn new(
        kernels: Kernels,
        input: AttentionInput<'a>,
        workspace: &'a mut AttentionWorkspace,
        out: &'a mut [f32],
    ) -> Self {
        let plan = Plan::new(kernels, input, workspace, out.len());
        let split = Split::of(&plan);
        assert_eq!(
            workspace.split,
            Some(split),
            "the workspace holds another split"
        );
        let lane_lines = lane_lines(&workspace.shape());
        AttentionMergeJob {
            plan,
            split,
            scratch: Disjoint::new(&mut workspace.scratch),
            lane_lines,
            o: &workspace.o,
            m: &workspace.m,
            l: &workspace.l,
            out: Disjoint::new(out),
        }
    }
}

impl Job for AttentionMergeJob<'_> {
    fn part(&self, part: &Part<'_, Self>) {
        let (plan, split) = (&self.plan, &self.split);
        let vectors = split.vectors;
        let cache = plan.input.cache;
        // SAFETY: one part of a dispatch has this index.
        let lane = unsafe { Carver::of_lane(&self.scratch, self.lane_lines, part.index()) };
        let cut = Cut {
            queries: 1,
            head_dim_k: cache.head_dim_k(),
            vectors,
        };
        let scratch = Scratch::cut(lane, cut);
        let n_head = plan.input.n_head;
        while let Some(head) = part.claim_one(n_head) {
            scratch.o.fill([0.0; 16]);
            // The results of a block are those of all heads, in order.
            let blocks = Partial {
                m: &self.m[head..][..(split.blocks - 1) * n_head + 1],
                l: &self.l[head..][..(split.blocks - 1) * n_head + 1],
                o: &self.o[head * vectors..][..((split.blocks - 1) * n_head + 1) * vectors],
            };
            let l = plan.merge_all(n_head, blocks, scratch.o);
            let head_dim = cache.head_dim_v();
            // SAFETY: each head is claimed once.
            let out = unsafe { self.out.slice(head * head_dim..(head + 1) * head_dim) };
            plan.finish(scratch.o, l, out);
        }
    }
}
