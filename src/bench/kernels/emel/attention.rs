//! Attention, set up as a layer of the engine runs it.

use super::{KernelError, On, Operation, SetUp, need, noise};
use crate::engine::Route;
use emel_kernels::{
    AttentionInput, AttentionJob, AttentionMergeJob, AttentionShape, AttentionSplitJob,
    AttentionWorkspace, CacheReading, CacheShape, CacheType, Direct, LaneError, LayerCache,
    Repacked, StoreKvJob, serial,
};
use std::marker::PhantomData;

/// Shapes of attention.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) n_head: usize,
    pub(super) n_head_kv: usize,
    pub(super) head_dim: usize,
}

impl Heads {
    /// Sets up the last `tokens` queries of `depth` positions.
    pub(super) fn attention(
        self,
        on: On,
        depth: usize,
        tokens: usize,
    ) -> Result<SetUp, KernelError> {
        let Heads {
            n_head,
            n_head_kv,
            head_dim,
        } = self;
        if tokens == 0 || tokens > depth {
            return Err(KernelError::Shape("key `tokens` is not from 1 to `depth`"));
        }
        if n_head == 0 || n_head_kv == 0 || !n_head.is_multiple_of(n_head_kv) {
            return Err(KernelError::Shape(
                "key `n_head` is no positive multiple of `n_head_kv`",
            ));
        }
        let shape = CacheShape {
            n_kv_heads: n_head_kv,
            head_dim_k: head_dim,
            head_dim_v: head_dim,
            n_ctx: depth,
            n_held: depth,
            type_k: CacheType::F16,
            type_v: CacheType::F16,
        };
        let bytes = shape.bytes()?;
        need([
            [bytes, 1, 1, 1],
            [tokens, n_head, head_dim, 8],
            [n_head, depth.div_ceil(64), head_dim, 4],
        ])?;
        let mut cache = LayerCache::allocate(on.kernels, shape)?;
        let row = n_head_kv * head_dim;
        let rows = noise(STORED * row);
        for first in (0..depth).step_by(STORED) {
            let rows = &rows[..STORED.min(depth - first) * row];
            serial(&mut StoreKvJob::new(&mut cache, first, rows, rows));
        }
        let lanes = on.lanes.count();
        let q = noise(tokens * n_head * head_dim);
        let splits = tokens == 1 && lanes > 1 && depth >= on.execution.split_min_depth;
        let repacks = matches!(on.route(tokens), Route::Wide | Route::Chunk8);
        let attention = Attention {
            workspace: AttentionWorkspace::allocate(AttentionShape {
                lanes,
                n_head,
                head_dim_k: head_dim,
                head_dim_v: head_dim,
                n_ctx: depth,
            })?,
            work: tokens
                .saturating_mul(depth)
                .saturating_mul(2 * n_head * head_dim),
            out: vec![0.0; q.len()],
            pos0: depth - tokens,
            n_head,
            scale: 1.0 / (head_dim as f32).sqrt(),
            on,
            cache,
            q,
        };
        let (operation, variant): (Box<dyn Operation>, _) = if splits {
            let variant = "blocks of 64 positions shared by lanes, then merged";
            (Box::new(Split(attention)), variant)
        } else if repacks {
            let variant = "blocks of 64 positions, repacked as integers once a tile of queries";
            (Box::new(Whole::<Repacked>(attention, PhantomData)), variant)
        } else {
            let variant = "blocks of 64 positions, read as f16";
            (Box::new(Whole::<Direct>(attention, PhantomData)), variant)
        };
        Ok((operation, variant.to_owned()))
    }
}

/// Positions that are stored at once.
const STORED: usize = 64;

struct Attention {
    on: On,
    cache: LayerCache,
    workspace: AttentionWorkspace,
    q: Vec<f32>,
    out: Vec<f32>,
    pos0: usize,
    n_head: usize,
    scale: f32,
    work: usize,
}

/// What attention reads.
macro_rules! input {
    ($of:expr) => {
        AttentionInput {
            q: &$of.q,
            cache: &$of.cache,
            pos0: $of.pos0,
            n_head: $of.n_head,
            scale: $of.scale,
            window: None,
            softcap: None,
        }
    };
}

/// Lanes take tiles of queries.
struct Whole<R>(Attention, PhantomData<R>);

impl<R: CacheReading> Operation for Whole<R> {
    fn once(&mut self) -> Result<(), LaneError> {
        let all = &mut self.0;
        let (kernels, input) = (all.on.kernels, input!(all));
        let mut job = AttentionJob::<R>::new(kernels, input, &mut all.workspace, &mut all.out);
        all.on.run(&mut job, all.work)
    }
}

/// Lanes take blocks of positions, which are merged.
struct Split(Attention);

impl Operation for Split {
    fn once(&mut self) -> Result<(), LaneError> {
        let all = &mut self.0;
        let (kernels, input) = (all.on.kernels, input!(all));
        let mut job = AttentionSplitJob::new(kernels, input, &mut all.workspace);
        all.on.run(&mut job, all.work)?;
        let work = all.out.len();
        let mut job = AttentionMergeJob::new(kernels, input, &mut all.workspace, &mut all.out);
        all.on.run(&mut job, work)
    }
}
