//! Stop strings over streamed text: what can be shown now, and whether to stop.
//!
//! Text that may be the beginning of a stop string is held back until it is known to be one or
//! not. The stop string that is complete first ends the text (of two complete at the same
//! place, the longer); the text before it is shown, itself not. The outcome does not depend on
//! how the text was cut into pieces, and pieces are whole characters, so no character is split.

/// Watches a stream for stop strings.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    /// Text not shown yet: a suffix of the stream that begins some stop string.
    held: String,
    /// Text of the last call's answer.
    shown: String,
    stopped: bool,
}

impl StopMatcher {
    /// A matcher for these strings; empty ones are ignored.
    #[must_use]
    pub fn new(stops: &[String]) -> Self {
        let stops = stops
            .iter()
            .filter(|stop| !stop.is_empty())
            .cloned()
            .collect();
        StopMatcher {
            stops,
            held: String::new(),
            shown: String::new(),
            stopped: false,
        }
    }

    /// Takes the next piece of text; returns what can be shown and whether a stop string has
    /// been reached. After that, further pieces show nothing.
    pub fn push(&mut self, piece: &str) -> (&str, bool) {
        self.shown.clear();
        if self.stopped {
            return (&self.shown, true);
        }
        self.held.push_str(piece);
        if let Some(start) = self.first_match() {
            self.shown.push_str(&self.held[..start]);
            self.held.clear();
            self.stopped = true;
        } else {
            let keep = self.held.len() - self.partial_len();
            self.shown.push_str(&self.held[..keep]);
            self.held.drain(..keep);
        }
        (&self.shown, self.stopped)
    }

    /// The stream has ended without a stop string: returns what was held back.
    pub fn finish(&mut self) -> &str {
        self.shown.clear();
        std::mem::swap(&mut self.shown, &mut self.held);
        &self.shown
    }

    /// Start of the stop string that ends first; of equal ends, the earliest start.
    fn first_match(&self) -> Option<usize> {
        let ends = self.stops.iter().filter_map(|stop| {
            let start = self.held.find(stop.as_str())?;
            Some((start + stop.len(), start))
        });
        ends.min().map(|(_, start)| start)
    }

    /// Length of the longest suffix of the held text that begins a stop string.
    fn partial_len(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = self.held.len().saturating_sub(longest.saturating_sub(1));
        self.held
            .char_indices()
            .map(|(at, _)| at)
            .filter(|&at| at >= from)
            .find(|&at| {
                self.stops
                    .iter()
                    .any(|stop| stop.starts_with(&self.held[at..]))
            })
            .map_or(0, |at| self.held.len() - at)
    }
}

#[cfg(test)]
mod tests {
    use super::StopMatcher;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(&stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>())
    }

    /// Everything shown for these pieces, and whether it stopped.
    fn stream(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut matcher = matcher(stops);
        let mut out = String::new();
        for piece in pieces {
            let (text, stopped) = matcher.push(piece);
            out.push_str(text);
            if stopped {
                return (out, true);
            }
        }
        out.push_str(matcher.finish());
        (out, false)
    }

    #[test]
    fn a_partial_match_is_held_back_and_released() {
        let mut m = matcher(&["User:"]);
        assert_eq!(m.push("Hi U"), ("Hi ", false));
        assert_eq!(m.push("ser"), ("", false));
        assert_eq!(m.push("s"), ("Users", false));
        assert_eq!(m.push(" and User"), (" and ", false));
        assert_eq!(m.push(": more"), ("", true));
        assert_eq!(m.push("ignored"), ("", true));
        assert_eq!(m.finish(), "");
    }

    #[test]
    fn what_is_held_at_the_end_is_shown() {
        let mut m = matcher(&["</s>"]);
        assert_eq!(m.push("x</"), ("x", false));
        assert_eq!(m.finish(), "</");
        assert_eq!(m.finish(), "");
    }

    #[test]
    fn of_several_the_first_complete_one_counts() {
        assert_eq!(stream(&["abcd", "bc"], &["xabcd"]), ("xa".to_owned(), true));
        assert_eq!(stream(&["bc", "abc"], &["xabc"]), ("x".to_owned(), true));
        assert_eq!(
            stream(&["\n\n", "END"], &["a\n", "b", "EN", "D"]),
            ("a\nb".to_owned(), true)
        );
    }

    #[test]
    fn overlapping_beginnings_are_kept() {
        // After "aab" fails, the later "ab" may still begin the stop string.
        assert_eq!(
            stream(&["abc"], &["a", "a", "b", "a", "b", "c"]),
            ("aab".to_owned(), true)
        );
        assert_eq!(stream(&["aaab"], &["aaaa", "ab"]), ("aa".to_owned(), true));
    }

    #[test]
    fn characters_of_several_bytes_stay_whole() {
        assert_eq!(
            stream(&["é!"], &["caf", "é", "s é", "!"]),
            ("cafés ".to_owned(), true)
        );
        // Shares its first byte with the stop string, no more.
        assert_eq!(stream(&["é!"], &["è", "x"]), ("èx".to_owned(), false));
    }

    #[test]
    fn without_stop_strings_everything_passes() {
        let mut m = matcher(&["", ""]);
        assert_eq!(m.push("text"), ("text", false));
        assert_eq!(m.finish(), "");
    }

    #[test]
    fn the_outcome_does_not_depend_on_the_pieces() {
        let text = "ab§aba§bab§ba";
        for stops in [
            &["ba§b", "§ba"][..],
            &["§ba"],
            &["zz", "aa"],
            &["a§bab§ba", "b§b"],
        ] {
            let whole = stream(stops, &[text]);
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(stream(stops, &letters), whole, "{stops:?}");
            for cut in text.char_indices().map(|(at, _)| at) {
                let pieces = [&text[..cut], &text[cut..]];
                assert_eq!(stream(stops, &pieces), whole, "{stops:?} cut at {cut}");
            }
        }
    }
}
