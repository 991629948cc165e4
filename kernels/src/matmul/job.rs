//! The matmul job: several matrices that share a dispatch, tiles, and scratch memory.

use super::write::Outputs;
use super::{Acc, GROUPS, MAX_GROUPS, MatmulOps, PANEL_BYTES, PackedMatrix, TileArgs, WideArgs};
use crate::format::GROUP_ROWS;
use crate::lanes::{Disjoint, Job, Part};
use crate::memory::{AllocError, HugeBuffer};
use crate::quantize::ActivationView;
use std::marker::PhantomData;
use std::ops::Range;

mod sealed {
    use super::{Groups, Lane, MatmulOps};

    /// What the crate knows of a tile.
    pub trait Sealed: Send + Sync + 'static {
        /// Groups that are claimed as one at least.
        const STEP: usize;
        /// Groups that are taken at once, the wide route taking `wide`.
        fn at_once(wide: usize) -> usize;
        /// Tokens that lie side by side in quantized activations, the wide route's being `wide`.
        fn side_by_side(wide: usize) -> usize;
        /// Whether so many tokens fit.
        fn fits(tokens: usize) -> bool;
        /// Multiplies the groups and writes their outputs.
        #[allow(private_interfaces)]
        fn run(ops: &'static MatmulOps, groups: Groups<'_>, lane: Lane<'_>);
    }
}

/// How many tokens a product takes at once. The choice is the caller's; the bits are the same.
pub trait Tile: sealed::Sealed {
    /// Its name.
    const KIND: TileKind;
}

/// The tiles by name, for those who count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileKind {
    /// [`TileT1`].
    T1,
    /// [`TileT4`].
    T4,
    /// [`TileT8`].
    T8,
    /// [`TileWide`].
    Wide,
}

impl TileKind {
    /// All tiles, in the order of their declaration (`ALL[t as usize] == t`).
    pub const ALL: [TileKind; 4] = [TileKind::T1, TileKind::T4, TileKind::T8, TileKind::Wide];

    /// A short name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            TileKind::T1 => "t1",
            TileKind::T4 => "t4",
            TileKind::T8 => "t8",
            TileKind::Wide => "wide",
        }
    }
}

/// Exactly one token: decode.
pub struct TileT1;
/// Exactly four tokens.
pub struct TileT4;
/// Exactly eight tokens.
pub struct TileT8;
/// Any number of tokens from one to the [`Scratch`]'s most: prompts.
pub struct TileWide;

/// Some adjacent groups of one matrix, and where their products go.
struct Groups<'a> {
    matrix: &'a PackedMatrix,
    x: &'a ActivationView<'a>,
    out: &'a Disjoint<'a, f32>,
    range: Range<usize>,
}

impl Groups<'_> {
    /// Writes the products of group `g`, `acc` holding one entry a token.
    ///
    /// # Safety
    ///
    /// - Group `g` is claimed by this lane.
    #[inline]
    unsafe fn write(&self, g: usize, acc: &[Acc]) {
        let rows = self.matrix.rows();
        let first = g * GROUP_ROWS;
        let n = GROUP_ROWS.min(rows - first);
        for (t, Acc(values)) in acc.iter().take(self.x.tokens()).enumerate() {
            let at = t * rows + first;
            // SAFETY: these columns are group `g`'s, which only this lane writes.
            unsafe { self.out.slice(at..at + n) }.copy_from_slice(&values[..n]);
        }
    }

    /// Runs a small tile's function over each group.
    #[inline]
    fn small<const N: usize>(self, run: unsafe fn(TileArgs<'_>)) {
        for g in self.range.clone() {
            let mut acc = [Acc::ZERO; N];
            let weights = self.matrix.groups(g..g + 1);
            // SAFETY: the matrix was made with `Kernels`, so the processor has `run`'s level;
            // the groups are claimed.
            unsafe {
                run(TileArgs {
                    weights,
                    x: self.x,
                    acc: &mut acc,
                });
                self.write(g, &acc);
            }
        }
    }
}

/// One lane's scratch memory.
struct Lane<'a> {
    acc: &'a mut [Acc],
    panel: &'a mut [u8],
}

macro_rules! small_tile {
    ($tile:ident, $kind:ident, $n:literal, $run:ident) => {
        impl Tile for $tile {
            const KIND: TileKind = TileKind::$kind;
        }
        impl sealed::Sealed for $tile {
            const STEP: usize = 1;
            fn at_once(_: usize) -> usize {
                1
            }
            fn side_by_side(_: usize) -> usize {
                $n
            }
            fn fits(tokens: usize) -> bool {
                tokens == $n
            }
            #[allow(private_interfaces)]
            #[inline]
            fn run(ops: &'static MatmulOps, groups: Groups<'_>, _: Lane<'_>) {
                groups.small::<$n>(ops.$run);
            }
        }
    };
}
small_tile!(TileT1, T1, 1, t1);
small_tile!(TileT4, T4, 4, t4);
small_tile!(TileT8, T8, 8, t8);

impl Tile for TileWide {
    const KIND: TileKind = TileKind::Wide;
}

impl sealed::Sealed for TileWide {
    const STEP: usize = GROUPS;
    fn at_once(wide: usize) -> usize {
        wide
    }
    fn side_by_side(wide: usize) -> usize {
        wide
    }
    fn fits(tokens: usize) -> bool {
        tokens > 0
    }
    #[allow(private_interfaces)]
    fn run(ops: &'static MatmulOps, groups: Groups<'_>, lane: Lane<'_>) {
        let tokens = groups.x.tokens().next_multiple_of(ops.wide.tokens);
        for first in groups.range.clone().step_by(ops.wide.groups) {
            let range = first..groups.range.end.min(first + ops.wide.groups);
            let args = WideArgs {
                weights: groups.matrix.groups(range.clone()),
                groups: range.len(),
                x: groups.x,
                acc: &mut lane.acc[..range.len() * tokens],
                panel: lane.panel,
                // SAFETY: the groups are claimed.
                out: unsafe { Outputs::new(groups.out, groups.matrix.rows(), first) },
            };
            // SAFETY: the matrix was made with `Kernels`, so the processor has the level; the
            // groups are claimed.
            unsafe { (ops.wide.run)(args) };
        }
    }
}

/// Working memory of the lanes that run matmuls, made once.
#[derive(Debug)]
pub struct Scratch {
    acc: HugeBuffer<Acc>,
    panels: HugeBuffer,
    lanes: usize,
    max_tokens: usize,
}

impl Scratch {
    /// Working memory for `lanes` lanes and batches of up to `max_tokens`.
    ///
    /// # Errors
    ///
    /// There is not enough memory.
    pub fn new(lanes: usize, max_tokens: usize) -> Result<Scratch, AllocError> {
        let too_many = AllocError { bytes: usize::MAX };
        let tokens = max_tokens.checked_next_multiple_of(16).ok_or(too_many)?;
        let accs = tokens
            .checked_mul(MAX_GROUPS)
            .and_then(|n| n.checked_mul(lanes))
            .ok_or(too_many)?;
        let panels = lanes.checked_mul(PANEL_BYTES).ok_or(too_many)?;
        Ok(Scratch {
            acc: HugeBuffer::zeroed(accs)?,
            panels: HugeBuffer::zeroed(panels)?,
            lanes,
            max_tokens: tokens,
        })
    }
}

/// One matrix of a [`MatmulJob`].
pub struct MatmulPart<'a> {
    matrix: &'a PackedMatrix,
    x: ActivationView<'a>,
    out: Disjoint<'a, f32>,
}

impl<'a> MatmulPart<'a> {
    /// `out[t, r] = Σ_k matrix[r, k] x[t, k]`, `out` being `[tokens, rows]`, row-major.
    ///
    /// # Panics
    ///
    /// When the activations are not of the matrix's kind and k, or `out` of another length.
    pub fn new(matrix: &'a PackedMatrix, x: ActivationView<'a>, out: &'a mut [f32]) -> Self {
        assert_eq!(
            x.kind(),
            matrix.activation(),
            "activations of the wrong kind"
        );
        assert_eq!(
            x.k(),
            matrix.cols(),
            "activations of another length than the rows"
        );
        assert_eq!(
            Some(out.len()),
            x.tokens().checked_mul(matrix.rows()),
            "the output is not [tokens, rows]"
        );
        MatmulPart {
            matrix,
            x,
            out: Disjoint::new(out),
        }
    }
}

/// The most matrices in one [`MatmulJob`].
const MAX_PARTS: usize = 4;

/// Products of one to four matrices in one dispatch (query, key and value; gate and up).
pub struct MatmulJob<'a, T: Tile> {
    parts: [Option<MatmulPart<'a>>; MAX_PARTS],
    acc: Disjoint<'a, Acc>,
    panels: Disjoint<'a, u8>,
    lanes: usize,
    groups: usize,
    /// Groups that are worth a claim.
    worth: usize,
    tile: PhantomData<T>,
}

impl<'a, T: Tile> MatmulJob<'a, T> {
    /// The products of `parts`. Nothing is allocated.
    ///
    /// # Panics
    ///
    /// When there are no parts or more than four; when a part's tokens do not fit the tile or
    /// the scratch memory, or its activations were quantized for another tile. The job panics
    /// when it runs on more lanes than the scratch memory was made for.
    pub fn new<const N: usize>(parts: [MatmulPart<'a>; N], scratch: &'a mut Scratch) -> Self {
        const { assert!(N > 0 && N <= MAX_PARTS) };
        let (mut groups, mut worth) = (0, 1);
        for MatmulPart { matrix, x, .. } in &parts {
            let tokens = x.tokens();
            assert!(
                T::fits(tokens) && tokens <= scratch.max_tokens,
                "{tokens} tokens do not fit"
            );
            assert!(
                x.tile == T::side_by_side(matrix.ops().wide.tokens) || x.tile == 0,
                "activations made for another tile"
            );
            groups += matrix.n_groups();
            worth = worth
                .max(CLAIM_BYTES.div_ceil(matrix.group_bytes()))
                .max(T::at_once(matrix.ops().wide.groups));
        }
        let mut inline = [const { None }; MAX_PARTS];
        for (to, part) in inline.iter_mut().zip(parts) {
            *to = Some(part);
        }
        MatmulJob {
            parts: inline,
            acc: Disjoint::new(&mut scratch.acc),
            panels: Disjoint::new(&mut scratch.panels),
            lanes: scratch.lanes,
            groups,
            worth,
            tile: PhantomData,
        }
    }

    /// How many groups to claim at once. A claim costs two lanes some hundred nanoseconds, so it
    /// is worth [`CLAIM_BYTES`] of weights, or what a wide dispatch takes at once; but no less than
    /// four claims for each lane, so that a lane that comes last waits for little; and of many
    /// groups, a sixty-fourth of a share.
    fn step(&self, lanes: usize) -> usize {
        self.worth
            .min(self.groups / (4 * lanes))
            .max(self.groups / (64 * lanes))
            .next_multiple_of(T::STEP)
            .max(T::STEP)
    }
}

/// Weights that a lane claims at once, about: what it reads in a microsecond or two.
const CLAIM_BYTES: usize = 24 << 10;

impl<T: Tile> Job for MatmulJob<'_, T> {
    fn part(&self, part: &Part<'_, Self>) {
        let lane = part.index();
        assert!(
            lane < self.lanes,
            "more lanes than the scratch memory was made for"
        );
        let per_lane =
            |total: usize| lane * (total / self.lanes)..(lane + 1) * (total / self.lanes);
        // SAFETY: each lane takes its own share, and a lane runs this part once.
        let (acc, panel) = unsafe {
            (
                self.acc.slice(per_lane(self.acc.len())),
                self.panels.slice(per_lane(self.panels.len())),
            )
        };
        while let Some(claimed) = part.claim(self.groups, self.step(part.of())) {
            let mut first = 0;
            for MatmulPart { matrix, x, out } in self.parts.iter().flatten() {
                let n = matrix.n_groups();
                let range = claimed.start.clamp(first, first + n) - first
                    ..claimed.end.clamp(first, first + n) - first;
                first += n;
                if !range.is_empty() {
                    let lane = Lane {
                        acc: &mut *acc,
                        panel: &mut *panel,
                    };
                    T::run(
                        matrix.ops(),
                        Groups {
                            matrix,
                            x,
                            out,
                            range,
                        },
                        lane,
                    );
                }
            }
        }
    }
}
