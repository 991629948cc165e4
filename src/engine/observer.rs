//! Probe events and tensors: what an engine tells whoever watches it, as it happens.
//!
//! The engine reads no clock; an observer that wants times takes them when it hears an event. A
//! phase lies between two events, so nothing has to be subtracted.
//!
//! Tensors are shown at every [`Point`] of every pass, in the order of the pass, whoever watches:
//! an observer that does not care costs the engine an empty call at each.

use super::Route;
use crate::model::Point;
use crate::tokenizer::TokenId;

/// Something that just happened, or is about to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A load begins.
    LoadBegins,
    /// The container's header, metadata and tensor directory are read and bound to a model.
    Bound,
    /// `done` of the `total` bytes of weights are packed; the first such event has 0 done.
    Packing {
        /// Bytes of the file.
        done: u64,
        /// Bytes of the file.
        total: u64,
    },
    /// Every weight is packed.
    Packed,
    /// The engine is ready to run.
    Ready,
    /// A prompt is about to pass through the model.
    PromptBegins {
        /// Its tokens at the start that are in the cache already.
        reused: usize,
        /// Tokens to compute.
        tokens: usize,
    },
    /// Some of its tokens have passed.
    Passed {
        /// The route they took.
        route: Route,
        /// How many.
        tokens: usize,
    },
    /// All have, and the last one's logits are there.
    PromptEnds,
    /// The observer did not want the rest of it.
    PromptCut,
    /// The model is about to take a step with the token selected last.
    StepBegins,
    /// Logits are there, a token is about to be selected from them.
    Selecting,
    /// A token was selected.
    Selected {
        /// The token.
        id: TokenId,
    },
}

/// The values of one batch of tokens at one point of the pass, as they go on from there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tensor<'a> {
    /// The layer; none for what belongs to no layer.
    pub layer: Option<usize>,
    /// Where in the pass. [`Point::OutputNorm`] is shown for a token whose logits are wanted, the
    /// others for every token. A pass that verifies a draft shows its tokens too, right or wrong; a
    /// wrong one's position is shown again when the right one passes.
    pub point: Point,
    /// The position in the context of the first row.
    pub position: usize,
    /// Tokens of the batch; at least one.
    pub rows: usize,
    /// `[rows, width]`, row-major.
    pub values: &'a [f32],
}

impl<'a> Tensor<'a> {
    /// Values in a row.
    pub fn width(&self) -> usize {
        self.values.len() / self.rows
    }

    /// The row of a position in the context, if the batch holds it.
    pub fn row(&self, position: usize) -> Option<&'a [f32]> {
        let row = position.checked_sub(self.position)?;
        self.values.chunks_exact(self.width()).nth(row)
    }
}

/// Watches an engine. Called on the thread that dispatches, in the middle of the dispatch: an
/// observer must not use the session that it watches, and what it takes is time lost.
pub trait Observer {
    /// Something happened.
    fn event(&self, event: Event);

    /// Values are computed.
    fn tensor(&self, _: Tensor<'_>) {}

    /// Asked between the passes of a prompt: true when the rest of it is not wanted any more.
    fn wants_end(&self) -> bool {
        false
    }
}

/// Watches nothing.
impl Observer for () {
    fn event(&self, _: Event) {}
}

/// Both watch; either may end a prompt.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn event(&self, event: Event) {
        self.0.event(event);
        self.1.event(event);
    }

    fn tensor(&self, tensor: Tensor<'_>) {
        self.0.tensor(tensor);
        self.1.tensor(tensor);
    }

    fn wants_end(&self) -> bool {
        self.0.wants_end() || self.1.wants_end()
    }
}

impl<O: Observer + ?Sized> Observer for std::rc::Rc<O> {
    fn event(&self, event: Event) {
        (**self).event(event);
    }

    fn tensor(&self, tensor: Tensor<'_>) {
        (**self).tensor(tensor);
    }

    fn wants_end(&self) -> bool {
        (**self).wants_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn rows_are_found_by_their_position() {
        let tensor = Tensor {
            layer: Some(0),
            point: Point::Key,
            position: 5,
            rows: 2,
            values: &[1.0, 2.0, 3.0, 4.0],
        };
        assert_eq!(tensor.width(), 2);
        assert_eq!(tensor.row(4), None);
        assert_eq!(tensor.row(5), Some(&[1.0, 2.0][..]));
        assert_eq!(tensor.row(6), Some(&[3.0, 4.0][..]));
        assert_eq!(tensor.row(7), None);
    }

    /// Counts what it hears and sees; wants an end after so many events.
    struct Counter {
        heard: Cell<usize>,
        seen: Cell<usize>,
        patience: usize,
    }

    impl Observer for Counter {
        fn event(&self, _: Event) {
            self.heard.set(self.heard.get() + 1);
        }

        fn tensor(&self, tensor: Tensor<'_>) {
            self.seen.set(self.seen.get() + tensor.rows);
        }

        fn wants_end(&self) -> bool {
            self.heard.get() >= self.patience
        }
    }

    #[test]
    fn two_observers_hear_and_see_the_same_and_each_may_end_a_prompt() {
        let counter = |patience| {
            Rc::new(Counter {
                heard: Cell::new(0),
                seen: Cell::new(0),
                patience,
            })
        };
        for patience in [[1, 9], [9, 1]] {
            let [first, second] = patience.map(counter);
            let both = (Rc::clone(&first), Rc::clone(&second));
            assert!(!both.wants_end());
            both.event(Event::Ready);
            both.tensor(Tensor {
                layer: None,
                point: Point::Embedding,
                position: 0,
                rows: 3,
                values: &[0.0; 6],
            });
            for counter in [first, second] {
                assert_eq!((counter.heard.get(), counter.seen.get()), (1, 3));
            }
            assert!(both.wants_end());
        }
    }
}
