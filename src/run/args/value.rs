//! Values of flags: from the operating system's text to numbers, names and pairs. Errors say
//! what was wanted; the caller puts the flag's name in front.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::config::{Source, Switch};

/// The value given to a flag.
pub(super) struct Text<'a>(pub &'a OsStr);

impl Text<'_> {
    /// The value as text.
    pub fn str(&self) -> Result<&str, String> {
        self.0
            .to_str()
            .ok_or_else(|| "the value is not valid UTF-8".to_owned())
    }

    /// The value as a path; any bytes will do, none will not.
    pub fn path(&self) -> Result<PathBuf, String> {
        if self.0.is_empty() {
            return Err("wants a file name, but the value is empty".to_owned());
        }
        Ok(PathBuf::from(OsString::from(self.0)))
    }

    /// A whole number within a range.
    pub fn int(&self, range: RangeInclusive<i64>) -> Result<i64, String> {
        let text = self.str()?;
        let wanted = || {
            let (low, high) = (range.start(), range.end());
            format!("'{text}' is not a whole number from {low} to {high}")
        };
        let number: i64 = text.trim().parse().map_err(|_| wanted())?;
        if range.contains(&number) {
            Ok(number)
        } else {
            Err(wanted())
        }
    }

    /// A count that fits 32 bits.
    pub fn count(&self, low: u32) -> Result<u32, String> {
        let number = self.int(i64::from(low)..=i64::from(u32::MAX))?;
        u32::try_from(number).map_err(|error| error.to_string())
    }

    /// A finite number.
    pub fn float(&self) -> Result<f32, String> {
        let text = self.str()?;
        match text.trim().parse::<f32>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(format!("'{text}' is not a finite number")),
        }
    }

    /// A finite number within a range.
    pub fn float_in(&self, range: RangeInclusive<f32>) -> Result<f32, String> {
        let number = self.float()?;
        if range.contains(&number) {
            return Ok(number);
        }
        Err(format!(
            "{number} is not from {} to {}",
            range.start(),
            range.end()
        ))
    }

    /// One of several names; case does not count.
    pub fn one_of<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, String> {
        let text = self.str()?;
        let found = names
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text));
        found.map(|&(_, value)| value).ok_or_else(|| {
            let known: Vec<&str> = names.iter().map(|&(name, _)| name).collect();
            format!("'{text}' is none of {}", known.join(", "))
        })
    }

    /// `auto` (none) or one of several values by their names.
    pub fn auto_or<T: Copy>(
        &self,
        all: &[T],
        name: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, String> {
        let named = all.iter().map(|&value| (name(value), Some(value)));
        let names: Vec<(&str, Option<T>)> = std::iter::once(("auto", None)).chain(named).collect();
        self.one_of(&names)
    }

    /// `on`, `off` or `auto`, with llama.cpp's other spellings of the first two.
    pub fn switch(&self) -> Result<Switch, String> {
        match self.str()?.to_ascii_lowercase().as_str() {
            "on" | "enabled" | "true" | "1" => Ok(Switch::On),
            "off" | "disabled" | "false" | "0" => Ok(Switch::Off),
            "auto" | "-1" => Ok(Switch::Auto),
            other => Err(format!("'{other}' is none of on, off, auto")),
        }
    }

    /// A file to read a text from, `-` being standard input.
    pub fn file_or_stdin(&self) -> Result<Source, String> {
        if self.0 == "-" {
            return Ok(Source::Stdin);
        }
        Ok(Source::File(self.path()?))
    }

    /// `ID+BIAS` or `ID-BIAS`, as in `15043+1` or `2-inf`.
    pub fn logit_bias(&self) -> Result<(u32, f32), String> {
        let text = self.str()?;
        let wanted = || format!("'{text}' is not TOKEN_ID+BIAS or TOKEN_ID-BIAS");
        let sign = text.find(['+', '-']).ok_or_else(wanted)?;
        let (id, bias) = text.split_at(sign);
        let id = id.trim().parse().map_err(|_| wanted())?;
        let size: f32 = bias[1..].trim().parse().map_err(|_| wanted())?;
        let bias = if bias.starts_with('-') { -size } else { size };
        if bias.is_nan() || bias == f32::INFINITY {
            return Err(wanted());
        }
        Ok((id, bias))
    }
}
