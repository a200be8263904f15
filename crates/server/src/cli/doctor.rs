//! `ash doctor`: looks at the machine and says what is missing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use ash_engine::SystemClock;

use super::output::print;
use crate::config::{Config, ServeFlags};
use crate::doctor::{Check, Machine, Verdict, examine};

/// Check whether this machine is ready for `ash serve`, and say what to do if it is not
///
/// Takes the settings of `ash serve`. Ends with 1 if there is a problem; warnings are none.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    flags: ServeFlags,
}

pub(super) fn run(args: &Args, env: &BTreeMap<String, String>, json: bool) -> anyhow::Result<()> {
    let machine = Machine::this(&SystemClock).context("could not find the program that runs")?;
    let checks = match Config::load(&args.flags, env, args.flags.config.as_deref()) {
        Ok(config) => examine(&config, &machine),
        Err(error) => {
            let found = format!("{:#}", anyhow::Error::from(error));
            let fix = "docs/configuration.md lists every setting";
            vec![Check::problem("settings", found, fix)]
        }
    };
    let problems = checks.iter().filter(|check| check.verdict == Verdict::Problem).count();
    if json {
        let shown = serde_json::json!({ "ready": problems == 0, "checks": checks });
        print(&format!("{shown:#}\n"))?;
    } else {
        print(&lines(&checks))?;
    }
    match problems {
        0 => Ok(()),
        1 => anyhow::bail!("this machine is not ready: there is a problem"),
        _ => anyhow::bail!("this machine is not ready: there are {problems} problems"),
    }
}

fn lines(checks: &[Check]) -> String {
    let names = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut lines = String::new();
    for check in checks {
        let verdict = check.verdict.as_str();
        writeln!(lines, "{verdict:8} {:names$}  {}", check.name, check.found)
            .expect("writing into a string does not fail");
        if let Some(fix) = &check.fix {
            writeln!(lines, "{:8} {:names$}  fix: {fix}", "", "")
                .expect("writing into a string does not fail");
        }
    }
    lines
}
