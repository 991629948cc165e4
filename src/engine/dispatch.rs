//! What dispatching costs: every machine of the engine over a context whose actions do nothing and
//! whose guards answer as they do in an ordinary run. Whoever has a clock can time it; nothing in
//! here looks at one.

use super::advance::{AdvanceStateMachine, AdvanceStateMachineContext, AdvanceStates, Proceed};
use super::embed::{EmbedStateMachine, EmbedStateMachineContext, EmbedStates, LookUp};
use super::fork::{ForkStateMachine, ForkStateMachineContext, ForkStates, Submit};
use super::generator::{GenerateStateMachine, GenerateStateMachineContext, GenerateStates};
use super::generator::{Halt, Output, Prompt, Step};
use super::head::{HeadStateMachine, HeadStateMachineContext, HeadStates, Project};
use super::layer::{LayerStateMachine, LayerStateMachineContext, LayerStates, Run};
use super::loader::{LoadStateMachine, LoadStateMachineContext, LoadStates, Open};
use super::matmul::{MatmulStateMachine, MatmulStateMachineContext, MatmulStates, Multiply};
use super::prefill::PrefillRouteStates;
use super::prefill::{Prefill, PrefillRouteStateMachine, PrefillRouteStateMachineContext};
use std::hint::black_box;

/// A machine over a context that computes nothing.
#[derive(Clone, Copy, Debug)]
pub struct NullMachine {
    name: &'static str,
    run: fn(u64) -> u64,
}

impl NullMachine {
    /// Every machine of the engine.
    pub const ALL: [NullMachine; 9] = [
        NullMachine {
            name: "Load",
            run: load,
        },
        NullMachine {
            name: "Generate",
            run: generate,
        },
        NullMachine {
            name: "Advance",
            run: advance,
        },
        NullMachine {
            name: "PrefillRoute",
            run: prefill,
        },
        NullMachine {
            name: "Embed",
            run: embed,
        },
        NullMachine {
            name: "Layer",
            run: layer,
        },
        NullMachine {
            name: "Matmul",
            run: matmul,
        },
        NullMachine {
            name: "Fork",
            run: fork,
        },
        NullMachine {
            name: "Head",
            run: head,
        },
    ];

    /// The transition table's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Dispatches `times` events, each of which runs the machine from its start to its end (the
    /// generator's: one step of decode), and returns how many reached that end.
    pub fn dispatch(&self, times: u64) -> u64 {
        (self.run)(times)
    }
}

/// A context that computes nothing, with so many pieces of work left to count down.
struct Null {
    left: u32,
}

/// Implements a table's context for [`Null`]: guards with their answers, actions that do nothing,
/// actions that take one off what is left. Answers and actions pass through `black_box`, or the
/// compiler would dispatch at compile time.
macro_rules! null {
    (
        $context:ident,
        guards: { $($guard:ident($($seen:ty)?) = $answer:expr),* $(,)? },
        nothing: { $($nothing:ident($($event:ty)?)),* $(,)? },
        less: { $($less:ident),* }
    ) => {
        impl $context for Null {
            $(fn $guard(&self $(, _: $seen)?) -> Result<bool, ()> {
                let answer: fn(&Null) -> bool = $answer;
                Ok(black_box(answer(self)))
            })*
            $(fn $nothing(&mut self $(, _: $event)?) -> Result<(), ()> {
                black_box(self);
                Ok(())
            })*
            $(fn $less(&mut self) -> Result<(), ()> {
                self.left = black_box(self.left.saturating_sub(1));
                Ok(())
            })*
        }
    };
}

null! {
    LoadStateMachineContext,
    // A vector, then a matrix.
    guards: {
        none_left() = |null| null.left == 0,
        vector() = |null| null.left == 2,
        wants_copy() = |_| false,
        has_copy() = |_| false,
        makes_copy() = |_| false,
    },
    nothing: {
        check_policy(&Open), parse(&Open), bind(), check_cache(), open_copy(), adopt(), allocate(),
        plan(), keep_copy(), assemble(), reserve(), ignore(),
    },
    less: { copy_vector, pack_matrix }
}

null! {
    GenerateStateMachineContext,
    guards: {
        lost(&Prompt<'_>) = |_| false,
        empty(&Prompt<'_>) = |_| false,
        too_long(&Prompt<'_>) = |_| false,
        foreign(&Prompt<'_>) = |_| false,
        window_gone(&Prompt<'_>) = |_| false,
        read_whole(&Prompt<'_>) = |_| true,
        failed() = |_| false,
        cut() = |_| false,
        ended() = |_| false,
        at_limit(&Step<'_>) = |_| false,
        context_full(&Step<'_>) = |_| false,
        intact(&Step<'_>) = |_| true,
        ended_here(&Step<'_>) = |_| false,
    },
    nothing: {
        refuse_broken(&Prompt<'_>), refuse_empty(&Prompt<'_>), refuse_long(&Prompt<'_>),
        refuse_foreign(&Prompt<'_>), forget(&Prompt<'_>), prefill(&Prompt<'_>), project(&Prompt<'_>),
        announce_end(&Prompt<'_>), report_cut(),
        stop_at_limit(&Step<'_>), stop_at_context(&Step<'_>), decode(&Step<'_>),
        select(&Step<'_>), report_end(&Step<'_>), halt(&Halt<'_>), ignore(),
    },
    less: {}
}

null! {
    AdvanceStateMachineContext,
    // No draft: a plain step.
    guards: {
        foreseen() = |_| false,
        outstanding() = |_| false,
        paid() = |_| false,
        right() = |_| false,
        off() = |_| true,
        resting() = |_| false,
        poor() = |_| false,
        found() = |_| false,
        may_shorten() = |_| false,
        wants_wide() = |_| false,
        wants_eight() = |_| false,
        wants_four() = |_| false,
        wants_some() = |_| false,
    },
    nothing: {
        accept(), lengthen(), follow(), back_off(), look(), shorten(), step(), verify_chunk4(),
        verify_chunk8(), verify_wide(), ignore(),
    },
    less: {}
}

null! {
    PrefillRouteStateMachineContext,
    // One batch of the wide route.
    guards: {
        failed() = |_| false,
        none_left() = |null| null.left == 0,
        unwanted() = |_| false,
        wide_pays() = |_| true,
        eight_fit() = |_| true,
        four_fit() = |_| true,
    },
    nothing: { note_pass(), ignore() },
    less: { run_wide, run_chunk8, run_chunk4, run_scalar }
}

null! {
    LayerStateMachineContext,
    guards: {
        biased() = |_| false,
        head_normed() = |_| true,
        post_normed() = |_| false,
        silu() = |_| true,
        gelu() = |_| false,
        split_pays() = |_| true,
    },
    nothing: {
        norm_input(&Run), project_qkv(), add_biases(), norm_heads(), rotate(), store_kv(),
        attend_blocks(), merge_blocks(), attend_tokens(), project_attention(), join_attention(),
        join_attention_post_normed(), expand(), gate_silu(), gate_gelu(), contract(),
        join_feed_forward(), join_feed_forward_post_normed(), ignore(),
    },
    less: {}
}

null! {
    MatmulStateMachineContext,
    guards: {
        mixed(&Multiply) = |_| false,
        float(&Multiply) = |_| false,
        block32(&Multiply) = |_| false,
        block256(&Multiply) = |_| true,
    },
    nothing: {
        multiply_each(&Multiply), multiply_float(&Multiply), quantize_block32(&Multiply),
        quantize_block256(&Multiply), multiply_quantized(), ignore(),
    },
    less: {}
}

null! {
    ForkStateMachineContext,
    guards: { pays(&Submit) = |_| true, lost() = |_| false },
    nothing: { run_serial(&Submit), run_parallel(&Submit), ignore() },
    less: {}
}

null! {
    EmbedStateMachineContext,
    guards: { tied(&LookUp) = |_| true, scaled() = |_| false },
    nothing: { unpack_rows(&LookUp), read_rows(&LookUp), scale(), show(), ignore() },
    less: {}
}

null! {
    HeadStateMachineContext,
    guards: { scaled() = |_| false, capped() = |_| false },
    nothing: { norm_rows(&Project), project(), scale(), cap(), ignore() },
    less: {}
}

/// A machine is made for each dispatch, as the engine does it, and asked how it ended.
macro_rules! dispatches {
    ($name:ident, $machine:ident, $event:expr, $left:literal, $end:expr) => {
        fn $name(times: u64) -> u64 {
            let dispatch = |_| {
                let mut machine = $machine::new(Null {
                    left: black_box($left),
                });
                let _ = machine.process_event($event);
                u64::from(machine.is(&$end))
            };
            (0..times).map(dispatch).sum()
        }
    };
}

dispatches!(load, LoadStateMachine, Open, 2, LoadStates::Ready);
dispatches!(
    advance,
    AdvanceStateMachine,
    Proceed,
    0,
    AdvanceStates::Done
);
dispatches!(
    prefill,
    PrefillRouteStateMachine,
    Prefill,
    1,
    PrefillRouteStates::Done
);
dispatches!(embed, EmbedStateMachine, LookUp, 0, EmbedStates::Done);
dispatches!(layer, LayerStateMachine, Run, 0, LayerStates::Done);
dispatches!(
    matmul,
    MatmulStateMachine,
    Multiply,
    0,
    MatmulStates::Joined
);
dispatches!(
    fork,
    ForkStateMachine,
    Submit { work: 1 },
    0,
    ForkStates::Joined
);
dispatches!(head, HeadStateMachine, Project, 0, HeadStates::Done);

/// The generator lives from token to token: one machine, brought to decoding, takes all steps.
fn generate(times: u64) -> u64 {
    let mut machine = GenerateStateMachine::new(Null { left: 0 });
    let (prefilled, stepped) = (Output::new(), Output::new());
    let tokens = &[0];
    let output = &prefilled;
    let _ = machine.process_event(Prompt { tokens, output });
    let output = &stepped;
    let _ = machine.process_event(Step { output });
    let dispatch = |_| {
        let _ = machine.process_event(Step { output });
        u64::from(machine.is(&GenerateStates::Decoding))
    };
    (0..times).map(dispatch).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dispatch_reaches_the_end_of_the_ordinary_path() {
        for machine in NullMachine::ALL {
            assert_eq!(machine.dispatch(0), 0, "{}", machine.name());
            assert_eq!(machine.dispatch(3), 3, "{}", machine.name());
        }
    }
}
