//! What measurements need to know of the machine beyond what records say of it.

use std::collections::BTreeSet;
use std::fs;

/// Cores that this process may use.
pub fn cpu_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The value of the first line `KEY : VALUE` of `text`.
fn field<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == key).then(|| value.trim())
    })
}

/// Instruction-set flags, as Linux names them.
pub fn cpu_flags() -> BTreeSet<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = field(&cpuinfo, "flags").unwrap_or_default();
    flags.split_ascii_whitespace().map(str::to_owned).collect()
}

/// Bytes of memory that a new program could have now.
pub fn memory_available() -> Option<u64> {
    kib(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

fn kib(meminfo: &str, key: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, key)?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Bytes of the largest cache of the first processor.
pub fn last_cache_bytes() -> Option<u64> {
    let sizes = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        cache_bytes(fs::read_to_string(path).ok()?.trim())
    });
    sizes.max()
}

/// `491520K` and the like.
fn cache_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return text.parse().ok(),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(cache_bytes("48K"), Some(48 << 10));
        assert_eq!(cache_bytes("32M"), Some(32 << 20));
        assert_eq!(cache_bytes("512"), Some(512));
        assert_eq!(cache_bytes(""), None);
        assert_eq!(cache_bytes("99999999999999999999M"), None);
        assert_eq!(kib("MemTotal:  24 kB\n", "MemTotal"), Some(24 * 1024));
        assert_eq!(kib("MemTotal: 24\n", "MemTotal"), None);
    }
}
