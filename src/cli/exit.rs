//! How the program ends; decided here and nowhere else.

/// The exit codes that all programs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done. A reader of standard output that went away is no failure.
    Done,
    /// The run failed; the message is on standard error.
    Failed,
    /// The command line cannot be followed.
    Usage,
    /// Of `emel-compare`: the streams part.
    Diverged,
    /// Of `emel-compare`: the streams cannot be compared.
    NotComparable,
    /// Ended by the second Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The number that the shell sees.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Diverged => 3,
            Exit::NotComparable => 4,
            Exit::Interrupted => 130,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Exit;

    #[test]
    fn codes_are_the_documented_ones() {
        let all = [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Diverged,
            Exit::NotComparable,
            Exit::Interrupted,
        ];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4, 130]);
    }
}
