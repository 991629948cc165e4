//! The time a template sees, and `strftime` in the C locale.

use std::time::{SystemTime, UNIX_EPOCH};

/// A point in civil time, for [`strftime_now`](super::RenderOptions::now). It has no zone: what
/// it says is what a template prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    days: i64,
    seconds: i64,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl CivilTime {
    /// The system's clock, in UTC.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::from_unix(since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX)))
    }

    /// Seconds since 1970-01-01T00:00:00; add a zone's offset to get its local time.
    pub fn from_unix(seconds: i64) -> Self {
        CivilTime {
            days: seconds.div_euclid(86_400),
            seconds: seconds.rem_euclid(86_400),
        }
    }

    /// A date and a time of day, or nothing when there is no such date or time.
    pub fn new(
        year: i32,
        month: u32,
        day: u32,
        hour: u32,
        minute: u32,
        second: u32,
    ) -> Option<Self> {
        if !(1..=12).contains(&month) || day == 0 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_from_civil(i64::from(year), i64::from(month), i64::from(day));
        let time = CivilTime {
            days,
            seconds: i64::from(hour * 3600 + minute * 60 + second),
        };
        // the 31st of a shorter month would have become another day
        (time.date() == (i64::from(year), i64::from(month), i64::from(day))).then_some(time)
    }

    /// Year, month (from 1) and day (from 1) in the proleptic Gregorian calendar.
    ///
    /// Follows Howard Hinnant's `civil_from_days`: years start in March, so that the leap day is
    /// a year's last and the months' lengths follow a line.
    fn date(self) -> (i64, i64, i64) {
        let z = self.days.saturating_add(719_468);
        let era = z.div_euclid(146_097);
        let day_of_era = z.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 {
            shifted + 3
        } else {
            shifted - 9
        };
        (year_of_era + era * 400 + i64::from(month <= 2), month, day)
    }

    /// Formats as C's `strftime` in the C locale, with glibc's flags `-`, `_`, `0`, `^` after the
    /// percent sign. A directive it does not know stays as it is written. `%z` and `%Z` are empty,
    /// as for a Python datetime without a zone.
    pub fn strftime(self, format: &str) -> String {
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let rest = chars.as_str();
            let flags = rest.len() - rest.trim_start_matches(['-', '_', '0', '^', '#']).len();
            let (flag, directive) = rest.split_at(flags);
            let Some(letter) = directive.chars().next() else {
                out.push('%');
                continue;
            };
            match self.directive(letter, flag) {
                Some(text) if flag.contains('^') => out.push_str(&text.to_uppercase()),
                Some(text) => out.push_str(&text),
                None => {
                    out.push('%');
                    out.push_str(flag);
                    out.push(letter);
                }
            }
            chars = directive[letter.len_utf8()..].chars();
        }
        out
    }

    fn directive(self, letter: char, flag: &str) -> Option<String> {
        let (year, month, day) = self.date();
        let (hour, minute, second) = (
            self.seconds / 3600,
            self.seconds / 60 % 60,
            self.seconds % 60,
        );
        let weekday = (self.days + 4).rem_euclid(7);
        let day_of_year = self.days - days_from_civil(year, 1, 1);
        let hour12 = (hour + 11) % 12 + 1;
        let number = |value: i64, width: usize, fill: char| {
            let fill = match flag.chars().rfind(|c| matches!(c, '-' | '_' | '0')) {
                Some('-') => return value.to_string(),
                Some('_') => ' ',
                Some('0') => '0',
                _ => fill,
            };
            let digits = value.to_string();
            let blanks = width.saturating_sub(digits.len());
            fill.to_string().repeat(blanks) + &digits
        };
        let name = |names: &[&str], at: i64, length: usize| {
            let name = names
                .get(usize::try_from(at).unwrap_or(0))
                .copied()
                .unwrap_or_default();
            name[..name.len().min(length)].to_owned()
        };
        Some(match letter {
            'Y' => year.to_string(),
            'C' => number(year.div_euclid(100), 2, '0'),
            'y' => number(year.rem_euclid(100), 2, '0'),
            'm' => number(month, 2, '0'),
            'd' => number(day, 2, '0'),
            'e' => number(day, 2, ' '),
            'H' => number(hour, 2, '0'),
            'I' => number(hour12, 2, '0'),
            'k' => number(hour, 2, ' '),
            'l' => number(hour12, 2, ' '),
            'M' => number(minute, 2, '0'),
            'S' => number(second, 2, '0'),
            'f' => "000000".to_owned(),
            'j' => number(day_of_year + 1, 3, '0'),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'P' => if hour < 12 { "am" } else { "pm" }.to_owned(),
            'a' => name(&WEEKDAYS, weekday, 3),
            'A' => name(&WEEKDAYS, weekday, 9),
            'b' | 'h' => name(&MONTHS, month - 1, 3),
            'B' => name(&MONTHS, month - 1, 9),
            'u' => (if weekday == 0 { 7 } else { weekday }).to_string(),
            'w' => weekday.to_string(),
            'U' => number((day_of_year + 7 - weekday) / 7, 2, '0'),
            'W' => number((day_of_year + 7 - (weekday + 6) % 7) / 7, 2, '0'),
            'G' => self.iso_week().0.to_string(),
            'g' => number(self.iso_week().0.rem_euclid(100), 2, '0'),
            'V' => number(self.iso_week().1, 2, '0'),
            's' => (self.days * 86_400 + self.seconds).to_string(),
            'c' => self.strftime("%a %b %e %H:%M:%S %Y"),
            'D' | 'x' => self.strftime("%m/%d/%y"),
            'F' => self.strftime("%Y-%m-%d"),
            'T' | 'X' => self.strftime("%H:%M:%S"),
            'R' => self.strftime("%H:%M"),
            'r' => self.strftime("%I:%M:%S %p"),
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }

    /// The ISO 8601 year and week: a week belongs to the year its Thursday is in.
    fn iso_week(self) -> (i64, i64) {
        let from_monday = (self.days + 3).rem_euclid(7);
        let thursday = CivilTime {
            days: self.days - from_monday + 3,
            seconds: 0,
        };
        let (year, _, _) = thursday.date();
        (year, (thursday.days - days_from_civil(year, 1, 1)) / 7 + 1)
    }
}

/// Days from 1970-01-01 to a date; the inverse of [`CivilTime::date`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::CivilTime;

    #[test]
    fn dates_survive_the_round_trip() {
        for days in (-800_000..800_000).step_by(97) {
            let time = CivilTime::from_unix(days * 86_400);
            let (year, month, day) = time.date();
            let again = CivilTime::new(year as i32, month as u32, day as u32, 0, 0, 0);
            assert_eq!(again, Some(time), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn impossible_dates_are_refused() {
        for (month, day, hour) in [
            (0, 1, 0),
            (13, 1, 0),
            (2, 29, 0),
            (4, 31, 0),
            (1, 0, 0),
            (1, 1, 24),
        ] {
            assert_eq!(CivilTime::new(2026, month, day, hour, 0, 0), None);
        }
        assert!(CivilTime::new(2024, 2, 29, 23, 59, 59).is_some());
    }

    #[test]
    fn weeks_at_the_turn_of_the_year() {
        let format =
            |y, m, d| CivilTime::new(y, m, d, 0, 0, 0).map(|t| t.strftime("%G-%V %U %W %j %u"));
        assert_eq!(format(2021, 1, 3).as_deref(), Some("2020-53 01 00 003 7"));
        assert_eq!(format(2024, 12, 30).as_deref(), Some("2025-01 52 53 365 1"));
        assert_eq!(format(2023, 1, 1).as_deref(), Some("2022-52 01 00 001 7"));
    }

    #[test]
    fn flags_and_unknown_directives() {
        let time = CivilTime::from_unix(0);
        assert_eq!(
            time.strftime("%-d %_d %^a %^B %Q %"),
            "1  1 THU JANUARY %Q %"
        );
        assert_eq!(time.strftime("%I %p %l"), "12 AM 12");
    }
}
