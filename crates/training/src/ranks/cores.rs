//! The cores of machines, which the ranks on them share.

use std::{collections::BTreeSet, env, fs, thread};

use serde::{Deserialize, Serialize};

use super::{Ranks, gather_texts};
use crate::{Error, machine::host};

/// The cores of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Cores {
    host: String,
    /// That it may use.
    usable: usize,
    /// Which these are, where the system says it.
    numbers: BTreeSet<usize>,
    /// That its machine has.
    present: usize,
    /// Whether Open MPI started it, which binds unless told otherwise.
    is_bound: bool,
}

/// Ranks of one machine share its cores among them, unless somebody has done it already. What is wrong with that is returned.
pub(super) fn share(ranks: &dyn Ranks) -> Result<Vec<String>, Error> {
    let usable = thread::available_parallelism().map_or(1, usize::from);
    let present = present().unwrap_or(usable);
    let is_bound = env::var_os("OMPI_COMM_WORLD_SIZE").is_some() && usable < present;
    let numbers = allowed().unwrap_or_default();
    let own = Cores { host: host(), usable, numbers, present, is_bound };
    let text = serde_json::to_string(&own).expect("words can be written");
    let all: Vec<Cores> = gather_texts(ranks, &text)?
        .iter()
        .filter_map(|text| serde_json::from_str(text).ok())
        .collect();
    if env::var_os("RAYON_NUM_THREADS").is_none() {
        // A pool that exists already keeps its size; bits do not depend on it.
        let threads = threads(&own, &all);
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    Ok(warnings(&all))
}

/// Threads of a rank: all it may use, or its share of them if its neighbors may use the same.
fn threads(own: &Cores, all: &[Cores]) -> usize {
    let neighbors = all.iter().filter(|other| other.host == own.host).count().max(1);
    let share = (own.present / neighbors).max(1);
    own.usable.min(if own.usable < own.present { own.usable } else { share })
}

fn warnings(all: &[Cores]) -> Vec<String> {
    let is_wasted =
        |rank: &&Cores| rank.is_bound && rank.usable == 1 && used(&rank.host, all) < rank.present;
    let mut hosts: Vec<(&str, usize)> =
        all.iter().filter(is_wasted).map(|rank| (rank.host.as_str(), rank.present)).collect();
    hosts.dedup();
    let say = |(host, present): (&str, usize)| {
        format!(
            "Open MPI has bound each rank on {host} to one of its {present} cores; mpirun --bind-to none lets them share all"
        )
    };
    hosts.into_iter().map(say).collect()
}

/// The cores of a machine that its ranks use between them: two ranks on one core use one.
fn used(host: &str, all: &[Cores]) -> usize {
    let ranks = || all.iter().filter(|rank| rank.host == host);
    if ranks().any(|rank| rank.numbers.is_empty()) {
        return ranks().map(|rank| rank.usable).sum();
    }
    ranks().flat_map(|rank| &rank.numbers).collect::<BTreeSet<_>>().len()
}

/// The cores that this process may use.
fn allowed() -> Option<BTreeSet<usize>> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    listed(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// How many cores of the machine are switched on.
fn present() -> Option<usize> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    listed(&list).map(|cores| cores.len())
}

/// The numbers of a list such as `0-3,8`.
fn listed(list: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        numbers.extend(first.parse::<usize>().ok()?..=last.parse().ok()?);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(host: &str, usable: usize, present: usize, is_bound: bool) -> Cores {
        Cores { host: host.into(), usable, numbers: BTreeSet::new(), present, is_bound }
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(listed("0-3,8\n"), Some(BTreeSet::from([0, 1, 2, 3, 8])));
        assert_eq!(listed("\t5"), Some(BTreeSet::from([5])));
        assert_eq!(listed("none"), None);
    }

    #[test]
    fn ranks_of_one_machine_share_its_cores() {
        let free = cores("a", 16, 16, false);
        let all = vec![free.clone(), free.clone(), cores("b", 16, 16, false)];
        assert_eq!((threads(&free, &all), threads(&all[2], &all)), (8, 16));
        let given = cores("a", 4, 16, false);
        assert_eq!(threads(&given, &[given.clone(), given.clone()]), 4);
        assert_eq!(threads(&cores("a", 2, 2, false), &vec![cores("a", 2, 2, false); 5]), 1);
    }

    #[test]
    fn a_rank_bound_to_one_core_of_many_is_worth_a_warning() {
        let bound = cores("a", 1, 16, true);
        let said = warnings(&[bound.clone(), bound.clone()]);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("each rank on a to one of its 16 cores; mpirun --bind-to none"));
        // All cores are in use, or somebody else has decided.
        assert!(warnings(&vec![cores("a", 1, 2, true); 2]).is_empty());
        assert!(warnings(&[cores("a", 1, 16, false)]).is_empty());
        // As many ranks as cores, but on which?
        let on = |core| Cores { numbers: BTreeSet::from([core]), ..cores("a", 1, 2, true) };
        assert!(warnings(&[on(0), on(1)]).is_empty());
        assert_eq!(warnings(&[on(0), on(0)]).len(), 1);
    }
}
