//! Start, kill, reopen, check; again and again.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::check::{Findings, Ledger};
use crate::random::Random;
use crate::workload::Acknowledged;
use crate::{Fallible, database, say};

/// How often one store is killed before a fresh one takes its place: so that opening and migrating
/// are hit too, and a check does not grow for ever.
const KILLS_PER_STORE: u64 = 20;

/// Up to this many kills, each is told on a line of its own.
const TOLD_ONE_BY_ONE: u64 = 25;

/// A writer that says nothing for so long is killed anyway.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) until: Until,
}

pub(crate) enum Until {
    Kills(u64),
    Elapsed(Duration),
}

/// When a writer is killed.
enum Moment {
    /// So long after its start: while it opens, migrates, or writes for the first time.
    Early(Duration),
    /// So long after so many acknowledgements: in the middle of its work.
    AtWork(u64, Duration),
}

impl Moment {
    fn choose(random: &mut Random, fresh: bool) -> Self {
        let early = if fresh { random.below(4) > 0 } else { random.below(8) == 0 };
        if early {
            Self::Early(Duration::from_micros(random.below(15_000)))
        } else {
            let wait = Duration::from_micros(random.below(3_000));
            Self::AtWork(1 + random.below(100), wait)
        }
    }
}

#[derive(Default)]
struct Tally {
    kills: u64,
    early: u64,
    kept: u64,
    unacknowledged: u64,
    faults: Vec<String>,
}

pub(crate) async fn run(directory: &Path, plan: &Plan) -> Fallible<()> {
    let began = Instant::now();
    let mut random = Random::new(plan.seed);
    let mut tally = Tally::default();
    let one_by_one = matches!(plan.until, Until::Kills(kills) if kills <= TOLD_ONE_BY_ONE);
    fs::create_dir_all(directory)?;
    say(&format!(
        "A writer commits to a store from several tasks at once and prints each commit that was\n\
         acknowledged. It is killed with SIGKILL at a random moment; then the store is reopened\n\
         and checked. Seed {}.\n",
        plan.seed
    ))?;
    let goes_on = |tally: &Tally| match plan.until {
        Until::Kills(kills) => tally.kills < kills,
        Until::Elapsed(duration) => began.elapsed() < duration,
    };
    for store in 1.. {
        if !goes_on(&tally) || !tally.faults.is_empty() {
            break;
        }
        let place = directory.join(format!("store-{store}"));
        fs::create_dir(&place)?;
        let (kills, kept) = (tally.kills, tally.kept);
        let mut ledger = Ledger::default();
        while goes_on(&tally) && tally.kills - kills < KILLS_PER_STORE {
            let fresh = tally.kills == kills;
            let line = kill_once(&place, fresh, &mut random, &mut ledger, &mut tally).await?;
            if one_by_one {
                say(&line)?;
            }
            if !tally.faults.is_empty() {
                break;
            }
        }
        let opened = ash_store::sqlite::SqliteStore::open(&database(&place))?;
        tally.faults.extend(ledger.check_outbox(&opened).await?);
        opened.close().await;
        if !one_by_one && tally.faults.is_empty() {
            say(&format!(
                "store {store}: {} kills, {} acknowledged commits, all there",
                tally.kills - kills,
                grouped(tally.kept - kept),
            ))?;
        }
        if tally.faults.is_empty() {
            fs::remove_dir_all(&place)?;
        }
    }
    summarize(&tally, began.elapsed(), plan.seed, directory)
}

/// Starts a writer, kills it, and checks what is left. Returns what to tell about it.
async fn kill_once(
    place: &Path,
    fresh: bool,
    random: &mut Random,
    ledger: &mut Ledger,
    tally: &mut Tally,
) -> Fallible<String> {
    let moment = Moment::choose(random, fresh);
    let mut writer = start_writer("write", place, random.next())?;
    let output = writer.stdout.take().ok_or("the writer has no output")?;
    let (lines, acknowledged) = mpsc::channel();
    let reader = thread::spawn(move || read_lines(output, &lines));
    let mut heard = Vec::new();
    match moment {
        Moment::Early(wait) => {
            tally.early += 1;
            thread::sleep(wait);
        }
        Moment::AtWork(acknowledgements, wait) => {
            while (heard.len() as u64) < acknowledgements {
                let Ok(line) = acknowledged.recv_timeout(PATIENCE) else { break };
                heard.push(line);
            }
            thread::sleep(wait);
        }
    }
    let status = kill(&mut writer)?;
    // What it had printed before it died counts, read or not.
    heard.extend(acknowledged.iter());
    reader.join().map_err(|_| "reading the writer's output panicked")?;
    tally.kills += 1;
    let kill = tally.kills;
    if status.code().is_some() {
        tally.faults.push(format!("kill {kill}: the writer had ended by itself, with {status}"));
    }

    let told: Result<Vec<Acknowledged>, _> =
        heard.iter().map(|line| serde_json::from_str(line)).collect();
    if let Some(fault) = ledger.expect_of_one_life(told?) {
        tally.faults.push(format!("kill {kill}: {fault}"));
    }
    let reopening = Instant::now();
    let findings = ledger.check_reopened(place).await?;
    let millis = reopening.elapsed().as_millis();
    let Findings { kept, unacknowledged, faults } = findings;
    tally.kept += kept;
    tally.unacknowledged += unacknowledged;
    tally.faults.extend(faults.into_iter().map(|fault| format!("kill {kill}: {fault}")));
    let lost = match unacknowledged {
        0 => String::new(),
        more => format!(", and {more} more whose acknowledgement died on the way"),
    };
    let what = match (fresh, heard.is_empty()) {
        (true, true) => "a fresh store, while it was being created".to_owned(),
        (false, true) => "before the first acknowledgement".to_owned(),
        (_, false) => format!("after {} acknowledged commits", heard.len()),
    };
    Ok(format!("kill {kill:>2}: {what}. Reopened and checked in {millis} ms: {kept} there{lost}."))
}

/// Starts this program in another role.
pub(crate) fn start_writer(role: &str, place: &Path, seed: u64) -> Fallible<Child> {
    let program = std::env::current_exe()?;
    let child = Command::new(program)
        .arg(role)
        .arg(place)
        .arg(seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(child)
}

fn kill(writer: &mut Child) -> Fallible<ExitStatus> {
    writer.kill()?;
    Ok(writer.wait()?)
}

/// Hands on whole lines; the kill may have cut the last one.
fn read_lines(output: ChildStdout, lines: &mpsc::Sender<String>) {
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
        if lines.send(std::mem::take(&mut line)).is_err() {
            return;
        }
    }
}

fn summarize(tally: &Tally, elapsed: Duration, seed: u64, directory: &Path) -> Fallible<()> {
    let kept = grouped(tally.kept);
    let seconds = elapsed.as_secs_f64();
    if tally.faults.is_empty() {
        say(&format!(
            "\n{} kills in {seconds:.1} s: {kept} commits acknowledged, all there; {} were durable \
             but their\nacknowledgement was lost; {} kills came while the store was being opened \
             or had hardly begun.\nNo commit was half there, no log has a hole, every file is \
             sound.",
            tally.kills, tally.unacknowledged, tally.early,
        ))?;
        return Ok(());
    }
    say(&format!("\n{} kills in {seconds:.1} s, and this is wrong:", tally.kills))?;
    for fault in &tally.faults {
        say(&format!("  {fault}"))?;
    }
    let directory = directory.display();
    Err(format!("{} faults; seed {seed}; the store is in {directory}", tally.faults.len()).into())
}

/// A number for people: 41,233.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
