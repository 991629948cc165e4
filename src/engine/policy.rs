//! What the caller decides about a run: instruction set, lanes, and the thresholds of the prefill
//! routes. The engine never detects any of it by itself; [`ExecutionPolicy::detect`] and
//! [`RoutePolicy::default`] are for callers who ask for them by name.

use emel_kernels::{Level, Patience};
use std::fmt;
use std::str::FromStr;

/// Where kernels run: the instruction-set level and how many lanes (threads, the caller's own
/// included) share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionPolicy {
    /// Instruction set of every kernel.
    pub level: Level,
    /// Lanes of a decode step; at least 1.
    pub lanes: usize,
    /// Lanes of prompt processing; at least 1.
    pub lanes_batch: usize,
    /// Work (multiply-adds, or a comparable count of element operations) below which a job runs on
    /// the caller's lane alone, because a fork and join would cost more than it saves.
    pub fork_min_work: usize,
    /// Cached positions from which on a decode step shares its attention between lanes by blocks
    /// of positions, not by heads.
    pub split_min_depth: usize,
    /// How lanes wait for each other.
    pub patience: Patience,
}

impl ExecutionPolicy {
    /// Work that is worth a fork and join: a fork costs about a microsecond, in which one lane
    /// finishes some tens of thousands of multiply-adds.
    pub const DEFAULT_FORK_MIN_WORK: usize = 64 * 1024;

    /// Some blocks of 64 positions for each lane.
    pub const DEFAULT_SPLIT_MIN_DEPTH: usize = 256;

    /// The best level of this processor and one lane for every core this process may use.
    pub fn detect() -> Self {
        Self::new(Level::best(), available_cores())
    }

    /// The given level and lane count, the same for decode and prompt; lanes wait actively when
    /// this process has a core for each.
    pub fn new(level: Level, lanes: usize) -> Self {
        Self {
            level,
            lanes,
            lanes_batch: lanes,
            fork_min_work: Self::DEFAULT_FORK_MIN_WORK,
            split_min_depth: Self::DEFAULT_SPLIT_MIN_DEPTH,
            patience: Patience::OwnCores,
        }
        .with_lanes(lanes, lanes)
    }

    /// The same with other lane counts.
    pub fn with_lanes(self, lanes: usize, lanes_batch: usize) -> Self {
        let patience = if lanes.max(lanes_batch) > available_cores() {
            Patience::SharedCores
        } else {
            Patience::OwnCores
        };
        Self {
            lanes,
            lanes_batch,
            patience,
            ..self
        }
    }
}

/// Cores that this process may use.
fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// How a run of prompt tokens passes through the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// One token at a time.
    Scalar,
    /// Four tokens at a time.
    Chunk4,
    /// Eight tokens at a time.
    Chunk8,
    /// Up to a physical batch (`n_ubatch`) at a time, each weight tile held in cache meanwhile.
    Wide,
}

impl Route {
    /// Every route, narrowest first.
    pub const ALL: [Route; 4] = [Route::Scalar, Route::Chunk4, Route::Chunk8, Route::Wide];

    /// The name used by flags, traces and records.
    pub fn name(self) -> &'static str {
        match self {
            Route::Scalar => "scalar",
            Route::Chunk4 => "chunk4",
            Route::Chunk8 => "chunk8",
            Route::Wide => "wide",
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A route name that is none of the four.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown route '{0}': use scalar, chunk4, chunk8 or wide")]
pub struct UnknownRoute(pub String);

impl FromStr for Route {
    type Err = UnknownRoute;

    fn from_str(name: &str) -> Result<Self, UnknownRoute> {
        Route::ALL
            .into_iter()
            .find(|route| route.name() == name)
            .ok_or_else(|| UnknownRoute(name.to_owned()))
    }
}

/// Thresholds by which the prefill machine picks a route for the tokens that are left. A route is
/// taken when at least its minimum is left, the widest first; the scalar route takes the rest.
/// Results do not depend on any of these numbers, only speed does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutePolicy {
    /// Fewest tokens left for the wide route.
    pub wide_min: usize,
    /// Fewest tokens left for the eight-token route; at least 8.
    pub chunk8_min: usize,
    /// Fewest tokens left for the four-token route; at least 4.
    pub chunk4_min: usize,
    /// Most tokens in one pass of any route (the physical batch, `-ub`); at least 1.
    pub n_ubatch: usize,
}

impl Default for RoutePolicy {
    fn default() -> Self {
        Self {
            wide_min: 9,
            chunk8_min: 8,
            chunk4_min: 4,
            n_ubatch: 512,
        }
    }
}

impl RoutePolicy {
    const NEVER: usize = usize::MAX;

    /// The thresholds under which only `route` (and, for what is left over by the chunk routes,
    /// the scalar route) is ever taken.
    pub fn only(route: Route) -> Self {
        let never = Self {
            wide_min: Self::NEVER,
            chunk8_min: Self::NEVER,
            chunk4_min: Self::NEVER,
            ..Self::default()
        };
        match route {
            Route::Scalar => never,
            Route::Chunk4 => Self {
                chunk4_min: 4,
                ..never
            },
            Route::Chunk8 => Self {
                chunk8_min: 8,
                ..never
            },
            Route::Wide => Self {
                wide_min: 1,
                ..never
            },
        }
    }

    /// The same thresholds with another physical batch.
    pub fn with_ubatch(self, n_ubatch: usize) -> Self {
        Self { n_ubatch, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_names_round_trip() {
        for route in Route::ALL {
            assert_eq!(route.name().parse(), Ok(route));
        }
        let error = "diagonal".parse::<Route>().unwrap_err();
        assert!(error.to_string().contains("diagonal"));
    }

    #[test]
    fn a_single_route_switches_the_others_off() {
        let only = RoutePolicy::only(Route::Chunk4);
        assert_eq!(only.chunk4_min, 4);
        assert_eq!(only.wide_min, usize::MAX);
        assert_eq!(only.chunk8_min, usize::MAX);
    }
}
