//! Times of phases, taken from the engine's probe events.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::engine::{Event, Observer, Route};

/// Notes when each event happened.
#[derive(Debug, Default)]
pub struct Clock {
    marks: RefCell<Marks>,
}

/// What a [`Clock`] has noted since it was last taken.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    pack_begins: Option<Instant>,
    packed: Option<Instant>,
    prompt_begins: Option<Instant>,
    prompt_ends: Option<Instant>,
    step_begins: Option<Instant>,
    selecting: Option<Instant>,
    /// Choosing the first token.
    pub first_token: Duration,
    /// Every later step, its choice included.
    pub steps: Vec<Duration>,
    /// Passes by route, in the order of [`Route::ALL`].
    passes: [u64; 4],
    /// Tokens by route.
    tokens: [u64; 4],
}

fn between(begin: Option<Instant>, end: Option<Instant>) -> Option<Duration> {
    Some(end?.duration_since(begin?))
}

impl Marks {
    /// Packing.
    pub fn pack(&self) -> Option<Duration> {
        between(self.pack_begins, self.packed)
    }

    /// The prompt through the model, with the last token's logits.
    pub fn prefill(&self) -> Option<Duration> {
        between(self.prompt_begins, self.prompt_ends)
    }

    /// Passes and tokens of each route, with names: `route_wide_passes`, ...
    pub fn routes(&self) -> impl Iterator<Item = (String, u64)> {
        let (passes, tokens) = (self.passes, self.tokens);
        Route::ALL.into_iter().flat_map(move |route| {
            let (name, at) = (route.name(), route as usize);
            [
                (format!("route_{name}_passes"), passes[at]),
                (format!("route_{name}_tokens"), tokens[at]),
            ]
        })
    }

    fn note(&mut self, event: Event, now: Instant) {
        match event {
            Event::Packing { done: 0, .. } => self.pack_begins = Some(now),
            Event::Packed => self.packed = Some(now),
            Event::PromptBegins { .. } => self.prompt_begins = Some(now),
            Event::Passed { route, tokens } => {
                self.passes[route as usize] += 1;
                self.tokens[route as usize] += tokens as u64;
            }
            Event::PromptEnds => self.prompt_ends = Some(now),
            Event::StepBegins => self.step_begins = Some(now),
            Event::Selecting => self.selecting = Some(now),
            Event::Selected { .. } => match between(self.step_begins.take(), Some(now)) {
                Some(step) => self.steps.push(step),
                None => self.first_token = between(self.selecting, Some(now)).unwrap_or_default(),
            },
            Event::LoadBegins
            | Event::Bound
            | Event::Packing { .. }
            | Event::Ready
            | Event::PromptCut => {}
        }
    }
}

impl Clock {
    /// What was noted; the clock begins anew, with room for `steps` steps.
    pub fn take(&self, steps: usize) -> Marks {
        let fresh = Marks {
            steps: Vec::with_capacity(steps),
            ..Marks::default()
        };
        self.marks.replace(fresh)
    }
}

impl Observer for Clock {
    fn event(&self, event: Event) {
        let now = Instant::now();
        self.marks.borrow_mut().note(event, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_lie_between_their_events() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let ms = Duration::from_millis;
        let mut marks = Marks::default();
        assert_eq!((marks.pack(), marks.prefill()), (None, None));
        let packing = |done| Event::Packing { done, total: 2 };
        let route = Route::Wide;
        let events = [
            (0, Event::LoadBegins),
            (1, Event::Bound),
            (2, packing(0)),
            (5, packing(2)),
            (9, Event::Packed),
            (10, Event::Ready),
            (
                20,
                Event::PromptBegins {
                    reused: 0,
                    tokens: 9,
                },
            ),
            (25, Event::Passed { route, tokens: 9 }),
            (31, Event::PromptEnds),
            (32, Event::Selecting),
            (36, Event::Selected { id: 7 }),
            (50, Event::StepBegins),
            (55, Event::Selecting),
            (58, Event::Selected { id: 8 }),
            (60, Event::StepBegins),
            (61, Event::Selecting),
            (62, Event::Selected { id: 9 }),
        ];
        for (time, event) in events {
            marks.note(event, at(time));
        }
        assert_eq!(marks.pack(), Some(ms(7)));
        assert_eq!(marks.prefill(), Some(ms(11)));
        assert_eq!(marks.first_token, ms(4));
        assert_eq!(marks.steps, [ms(8), ms(2)]);
        let routes: Vec<_> = marks.routes().filter(|(_, count)| *count > 0).collect();
        let expected = [("route_wide_passes", 1), ("route_wide_tokens", 9)];
        assert_eq!(routes, expected.map(|(name, n)| (name.to_owned(), n)));
    }
}
