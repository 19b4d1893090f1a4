//! `whatwhere reproduce`: published claims, held against what this machine measures.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::Args;
use serde_json::json;
use whatwhere_lab::reproduce::{self, CLAIMS, Changes, Claim, Finding, Judgement};
use whatwhere_training::interrupt::Interrupt;

use crate::{
    comparing::Progress,
    failure::{Ended, Failure},
    say::say,
    verb,
};

/// What to check.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reproduce {
    /// Claims by name, `all` for those that need no data; without one they are listed.
    claims: Vec<String>,
    /// The data that a claim needs: a file or folder.
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Another number of seeds than the claim's own.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Runs at the same time, each on its share of the threads; claims about speed still run one at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = verb::jobs)]
    jobs: usize,
    /// Work on the folder together with other processes that run the same command, as compare takes it.
    #[arg(long)]
    share: bool,
    /// Change a setting of the experiment, such as training.steps=100; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    changes: Vec<String>,
    /// Where everything goes, one folder for each claim; the same command goes on in it.
    #[arg(long, value_name = "FOLDER", default_value = "reproductions")]
    out: PathBuf,
    /// Print one JSON object per claim.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Reproduce) -> anyhow::Result<()> {
    if args.claims.is_empty() {
        return list(args.json);
    }
    let claims = chosen(&args.claims)?;
    let interrupt = Interrupt::new()?;
    let changes = Changes {
        settings: args.changes.clone(),
        data: args.data.clone(),
        seeds: args.seeds,
        jobs: Some(args.jobs),
        share: args.share,
    };
    let mut measured = true;
    for claim in claims {
        let folder = args.out.join(claim.name);
        let mut progress = Progress::new();
        let findings = claim.check(&changes, &folder, &interrupt, &mut progress)?;
        drop(progress);
        let Some(findings) = findings else {
            say!("interrupted: what is finished is kept");
            say!("hint: the same command goes on in {}", folder.display());
            return Err(Ended::INTERRUPTED.into());
        };
        print(claim, &findings, &folder, args.json)?;
        measured &= findings.iter().any(|f| f.judgement != Judgement::NotMeasured);
    }
    match measured {
        true => Ok(()),
        false => Err(Ended::FAILED.into()),
    }
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Claim>> {
    let mut claims = Vec::new();
    for name in names {
        match (name.as_str(), reproduce::find(name)) {
            ("all", _) => claims
                .extend(CLAIMS.iter().filter(|claim| claim.data.is_none() && claim.minutes < 1000)),
            (_, Some(claim)) => claims.push(claim),
            (_, None) => {
                let names: Vec<&str> = CLAIMS.iter().map(|claim| claim.name).collect();
                let hint = format!("there are {}", names.join(", "));
                return Err(Failure::usage(format!("no claim is called {name}"), hint).into());
            }
        }
    }
    Ok(claims)
}

fn list(json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout();
    for claim in CLAIMS {
        if json {
            let object = json!({
                "name": claim.name, "title": claim.title, "paper": claim.paper, "reports": claim.reports,
                "scaled_down": claim.scaled_down, "minutes": claim.minutes, "data": claim.data,
            });
            writeln!(out, "{object}")?;
            continue;
        }
        writeln!(out, "{}", claim.name)?;
        writeln!(out, "  {}", claim.title)?;
        writeln!(out, "  {}", claim.paper)?;
        writeln!(out, "  reported: {}", claim.reports)?;
        writeln!(out, "  here: {}", claim.scaled_down.unwrap_or("as published"))?;
        let data = claim.data.map_or(String::new(), |data| format!("; --data: {data}"));
        let plural = if claim.minutes == 1 { "" } else { "s" };
        writeln!(out, "  about {} minute{plural} on two cores{data}", claim.minutes)?;
    }
    Ok(())
}

fn print(
    claim: &Claim,
    findings: &[Finding],
    folder: &std::path::Path,
    json: bool,
) -> anyhow::Result<()> {
    let mut out = io::stdout();
    if json {
        let object = json!({ "claim": claim.name, "folder": folder, "findings": findings });
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(out, "{}: {}", claim.name, claim.title)?;
    writeln!(out, "  reported: {}", claim.reports)?;
    writeln!(
        out,
        "  here: {}",
        claim.scaled_down.map_or("as published".into(), |how| format!("scaled down: {how}"))
    )?;
    for finding in findings {
        writeln!(out, "  {}: {}", finding.judgement, finding.expected)?;
        writeln!(out, "    {}", finding.measured)?;
    }
    writeln!(out, "  kept in {}", folder.display())?;
    Ok(())
}
