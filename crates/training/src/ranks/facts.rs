//! What ranks must have in common to compute the same bits: the program, its instruction set, the data.

use serde::{Deserialize, Serialize};
use whatwhere_kernels::Precision;

use super::{Ranks, gather_texts};
use crate::{Error, hash, machine::host};

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Facts {
    host: String,
    version: String,
    /// SHA-256 of the running program; nothing where the system does not let it be read.
    program: String,
    instructions: String,
    fingerprint: u64,
}

/// Refuses ranks that differ in what bits depend on. All hear the same.
pub(crate) fn compare(
    ranks: &dyn Ranks,
    fingerprint: u64,
    precision: Precision,
) -> Result<(), Error> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let own = Facts {
        host: host(),
        version: env!("CARGO_PKG_VERSION").into(),
        program: hash::PROGRAM.clone(),
        instructions: precision.instructions(),
        fingerprint,
    };
    let own = serde_json::to_string(&own).expect("words can be written");
    let all: Result<Vec<Facts>, _> =
        gather_texts(ranks, &own)?.iter().map(|text| serde_json::from_str(text)).collect();
    let all = all.map_err(|e| {
        Error::Settings(format!(
            "a rank describes itself otherwise ({e}); start the same program on all machines"
        ))
    })?;
    check(&all)
}

fn check(all: &[Facts]) -> Result<(), Error> {
    let first = &all[0];
    for (rank, other) in all.iter().enumerate().skip(1) {
        let differs = |what: &str, of: fn(&Facts) -> String, right: &str| {
            let (there, here) = (of(other), of(first));
            (there != here).then(|| {
                Error::Settings(format!(
                    "rank {rank} on {} has {what} {there}, rank 0 on {} has {here}; {right}",
                    other.host, first.host
                ))
            })
        };
        let found = differs(
            "whatwhere",
            |facts| facts.version.clone(),
            "start the same program on all machines",
        )
        .or_else(|| {
            let right = "one version can be built in two ways, and its sums round in two ways: copy one program to all machines";
            let is_known = !first.program.is_empty() && !other.program.is_empty();
            differs("the program of SHA-256", |facts| facts.program.chars().take(12).collect(), right)
                .filter(|_| is_known)
        })
        .or_else(|| {
            let right = "their sums round differently: train on machines of one kind";
            differs("the instruction set", |facts| facts.instructions.clone(), right)
        })
        .or_else(|| {
            let right = "give every machine the same files in the same place";
            differs("data of fingerprint", |facts| format!("{:016x}", facts.fingerprint), right)
        });
        if let Some(error) = found {
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_is_refused_by_name() {
        let facts = Facts {
            host: "h1".into(),
            version: "0.1.0".into(),
            program: "0123456789abcdef".into(),
            instructions: "AVX2".into(),
            fingerprint: 7,
        };
        assert!(check(&[facts.clone(), facts.clone()]).is_ok());
        let unread = Facts { program: String::new(), ..facts.clone() };
        assert!(check(&[facts.clone(), unread.clone()]).is_ok());
        assert!(check(&[unread, facts.clone()]).is_ok());
        let other = Facts { host: "h2".into(), ..facts.clone() };
        for (changed, expected) in [
            (Facts { version: "0.2.0".into(), ..other.clone() }, "has whatwhere 0.2.0, rank 0"),
            (
                Facts { program: "0123456789ffffff".into(), ..other.clone() },
                "has the program of SHA-256 0123456789ff, rank 0 on h1 has 0123456789ab; one version",
            ),
            (
                Facts { instructions: "AVX-512".into(), ..other.clone() },
                "the instruction set AVX-512",
            ),
            (Facts { fingerprint: 8, ..other.clone() }, "data of fingerprint 0000000000000008"),
        ] {
            let message = check(&[facts.clone(), facts.clone(), changed]).unwrap_err().to_string();
            assert!(message.contains("rank 2 on h2"), "{message}");
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn ranks_of_one_program_with_other_data_all_hear_it() {
        let heard = crate::ranks::threads::each(3, |ranks| {
            let fingerprint = if ranks.rank() == 2 { 5 } else { 4 };
            compare(ranks, fingerprint, Precision::F32).unwrap_err().to_string()
        });
        assert!(heard[0].contains("rank 2 on") && heard.iter().all(|said| *said == heard[0]));
    }
}
