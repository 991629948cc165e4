//! What machine this is, as far as the system says.

use std::collections::BTreeSet;
use std::fs;

/// The machine. What the system does not say is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineInfo {
    /// The processor's name.
    pub cpu_model: Option<String>,
    /// Physical cores.
    pub cpu_cores: Option<u64>,
    /// Threads that can run at once.
    pub cpu_threads: Option<u64>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// The system and its version.
    pub os: Option<String>,
    /// Running tasks, averaged over the last minute.
    pub load_average: Option<f64>,
    /// What the processor can do, in the system's words (`avx512f`, `amx_int8`, ...).
    pub cpu_flags: BTreeSet<String>,
}

impl MachineInfo {
    /// Asks the system, now.
    #[must_use]
    pub fn read() -> MachineInfo {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpus = text("/proc/cpuinfo");
        let threads = std::thread::available_parallelism().ok();
        MachineInfo {
            cpu_model: cpu_model(&cpus),
            cpu_cores: cpu_cores(&cpus),
            cpu_threads: threads.map(|count| count.get() as u64),
            memory_bytes: memory_bytes(&text("/proc/meminfo")),
            os: Some(os(
                &text("/etc/os-release"),
                &text("/proc/sys/kernel/osrelease"),
            )),
            load_average: load_average(&text("/proc/loadavg")),
            cpu_flags: cpu_flags(&cpus),
        }
    }

    /// How many threads the lane of all cores has: physical cores, no more than may run at once.
    #[must_use]
    pub fn lane_threads(&self) -> usize {
        let threads = self.cpu_threads.unwrap_or(1);
        let cores = self.cpu_cores.unwrap_or(threads).min(threads);
        usize::try_from(cores).unwrap_or(1).max(1)
    }
}

/// The value of a `key : value` line.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = line.split_once(':')?;
    (name.trim() == key).then(|| value.trim())
}

fn cpu_flags(cpus: &str) -> BTreeSet<String> {
    // The first processor's; `Features` on ARM.
    let names = ["flags", "Features"];
    let find = |key: &&str| cpus.lines().find_map(|line| value(line, key));
    let flags = names.iter().find_map(find).unwrap_or_default();
    flags.split_whitespace().map(str::to_owned).collect()
}

fn cpu_model(cpus: &str) -> Option<String> {
    // ARM systems have no name there; some have the board's.
    let names = ["model name", "Model", "Hardware", "cpu model"];
    let find = |key: &&str| cpus.lines().find_map(|line| value(line, key));
    names.iter().find_map(find).map(str::to_owned)
}

/// Pairs of package and core that differ; none when the system does not list them.
fn cpu_cores(cpus: &str) -> Option<u64> {
    let mut cores = BTreeSet::new();
    for cpu in cpus.split("\n\n") {
        let find = |key| cpu.lines().find_map(|line| value(line, key));
        if let Some(core) = find("core id") {
            cores.insert((find("physical id").unwrap_or("0"), core));
        }
    }
    (!cores.is_empty()).then_some(cores.len() as u64)
}

fn memory_bytes(memory: &str) -> Option<u64> {
    let total = memory.lines().find_map(|line| value(line, "MemTotal"))?;
    let kibibytes: u64 = total.strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn load_average(load: &str) -> Option<f64> {
    load.split_whitespace().next()?.parse().ok()
}

fn os(release: &str, kernel: &str) -> String {
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let kernel = kernel.trim();
    match (name.map(|name| name.trim_matches('"')), kernel) {
        (None, "") => std::env::consts::OS.to_owned(),
        (None, kernel) => format!("{} {kernel}", std::env::consts::OS),
        (Some(name), "") => name.to_owned(),
        (Some(name), kernel) => format!("{name}, {} {kernel}", std::env::consts::OS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPUS: &str = "processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\nphysical id\t: 0\n\
        core id\t\t: 0\n\nprocessor\t: 1\nmodel name\t: Fast CPU @ 2 GHz\nphysical id\t: 0\n\
        core id\t\t: 0\n\nprocessor\t: 2\nmodel name\t: Fast CPU @ 2 GHz\nphysical id\t: 1\n\
        core id\t\t: 0\n";

    #[test]
    fn two_threads_of_one_core_are_one_core() {
        assert_eq!(cpu_model(CPUS).as_deref(), Some("Fast CPU @ 2 GHz"));
        assert_eq!(cpu_cores(CPUS), Some(2));
    }

    #[test]
    fn what_is_not_said_is_none() {
        assert_eq!((cpu_model(""), cpu_cores("processor: 0")), (None, None));
        assert_eq!((memory_bytes(""), load_average("")), (None, None));
        assert_eq!(memory_bytes("MemTotal: many kB"), None);
        assert_eq!(os("", ""), std::env::consts::OS);
        let unknown = MachineInfo::default();
        assert_eq!(unknown.lane_threads(), 1);
    }

    #[test]
    fn memory_load_and_system_are_read() {
        assert_eq!(
            memory_bytes("MemTotal:   16 kB\nMemFree: 1 kB\n"),
            Some(16384)
        );
        assert_eq!(load_average("0.52 0.60 0.70 1/200 4242\n"), Some(0.52));
        let name = os("NAME=x\nPRETTY_NAME=\"Some Linux 1\"\n", "6.1.0\n");
        assert_eq!(
            name,
            format!("Some Linux 1, {} 6.1.0", std::env::consts::OS)
        );
    }

    #[test]
    fn a_lane_has_the_physical_cores_it_may_use() {
        let of = |cores, threads| MachineInfo {
            cpu_cores: cores,
            cpu_threads: Some(threads),
            ..MachineInfo::default()
        };
        assert_eq!(of(Some(4), 8).lane_threads(), 4);
        assert_eq!(of(Some(64), 2).lane_threads(), 2);
        assert_eq!(of(None, 3).lane_threads(), 3);
    }
}
