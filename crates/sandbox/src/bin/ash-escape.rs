//! Plays every part in the tests of this crate: the helper that makes sandboxes, the server that
//! asks for them (as another user than the test's), and the program inside that tries to get out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use ash_sandbox::{Launcher, Limits, Shared, Spec, Tier};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let done = match args.as_slice() {
        ["launch"] => return ash_sandbox::launch(),
        ["probe", ..] => return ash_sandbox::inside_main(),
        ["serve", dir, limits, rest @ ..] => serve(Path::new(dir), limits, rest),
        ["shell", script] => shell(script),
        ["sleep"] => sleep_on(),
        ["fork"] => fork_until_refused(),
        ["memory", mebibytes] => touch_memory(mebibytes),
        ["grandchild", mebibytes] => touch_memory_below(mebibytes),
        ["fill", path] => fill(Path::new(path)),
        ["other-calls"] => other_calls(),
        _ => Err(io::Error::other(format!("{args:?} is no part"))),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let _unheard = writeln!(io::stderr(), "ash-escape: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A server that is not root: starts one sandbox and prints how it ended.
fn serve(dir: &Path, limits: &str, args: &[&str]) -> io::Result<ExitCode> {
    let limits: Limits = serde_json::from_str(limits)?;
    let helper = std::env::current_exe()?;
    let (workspace, home) = (File::open(dir.join("workspace"))?, File::open(dir.join("home"))?);
    let program = File::open(&helper)?;
    let null = File::open("/dev/null")?;
    let append = |name| OpenOptions::new().create(true).append(true).open(dir.join(name));
    let (output, log) = (append("output")?, append("log")?);
    let claude = File::open(dir.join("claude")).ok();
    let origin = dir.join("shared");
    let (shared, secret) = (File::open(&origin).ok(), origin.join("secret"));
    let of = |shared| Shared { name: "a/tree", directory: shared, origin: &origin };
    let shared: Vec<Shared<'_>> = shared.iter().map(|shared| of(shared.as_fd())).collect();
    let launched = Launcher::new(helper, Tier::Rootless).start(&Spec {
        uid: None,
        program: program.as_fd(),
        workspace: workspace.as_fd(),
        home: home.as_fd(),
        control: null.as_fd(),
        spool: output.as_fd(),
        log: log.as_fd(),
        limits: &limits,
        environment: &[("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home/agent")],
        cgroup: None,
        args,
        hidden: &[&secret],
        claude: claude.as_ref().map(|claude| claude.as_fd()),
        shared: &shared,
    });
    let launched = match launched {
        Ok(launched) => launched,
        Err(error) => {
            writeln!(io::stdout(), "error: {error}: {} {:?}", error.source, error.hint)?;
            return Ok(ExitCode::FAILURE);
        }
    };
    loop {
        if let Some(ended) = ash_sandbox::wait(launched.pidfd.as_fd())? {
            writeln!(io::stdout(), "{ended:?}")?;
            return Ok(ExitCode::SUCCESS);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn shell(script: &str) -> io::Result<ExitCode> {
    let status = Command::new("/bin/sh").args(["-c", script]).current_dir("/workspace").status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255)))
}

fn sleep_on() -> io::Result<ExitCode> {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.stdin(Stdio::null());
    command
}

fn fork_until_refused() -> io::Result<ExitCode> {
    let mut children = Vec::new();
    let error = loop {
        match this_program().arg("sleep").spawn() {
            Ok(child) => children.push(child),
            Err(error) => break error,
        }
        if children.len() > 10_000 {
            break io::Error::other("was never refused");
        }
    };
    writeln!(io::stdout(), "{} {error}", children.len())?;
    Ok(ExitCode::SUCCESS)
}

fn touch_memory(mebibytes: &str) -> io::Result<ExitCode> {
    let mebibytes: usize = mebibytes.parse().map_err(io::Error::other)?;
    let mut kept = Vec::new();
    for _ in 0..mebibytes {
        let mut page = vec![0_u8; 1 << 20];
        page.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        kept.push(std::hint::black_box(page));
    }
    writeln!(io::stdout(), "touched {}", kept.len())?;
    Ok(ExitCode::SUCCESS)
}

fn touch_memory_below(mebibytes: &str) -> io::Result<ExitCode> {
    let script = format!("/run/ash/bridge memory {mebibytes}; echo child $?");
    Command::new("/bin/sh").args(["-c", &script]).status()?;
    writeln!(io::stdout(), "survived")?;
    Ok(ExitCode::SUCCESS)
}

fn fill(path: &Path) -> io::Result<ExitCode> {
    let mut file = File::create(path)?;
    let chunk = vec![1_u8; 1 << 20];
    let mut mebibytes = 0;
    let error = loop {
        match file.write_all(&chunk) {
            Ok(()) => mebibytes += 1,
            Err(error) => break error,
        }
        if mebibytes > 4096 {
            break io::Error::other("was never refused");
        }
    };
    fs::remove_file(path)?;
    writeln!(io::stdout(), "{mebibytes} {error}")?;
    Ok(ExitCode::SUCCESS)
}

/// The call of a process of another architecture: `getpid`, as it is numbered on i386.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "no library makes calls of another architecture")]
fn other_calls() -> io::Result<ExitCode> {
    let result: i64;
    // SAFETY: the call takes no arguments and changes nothing but its result.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("rax") 20_i64 => result, out("r8") _, out("r9") _,
            out("r10") _, out("r11") _);
    }
    writeln!(io::stdout(), "answered {result}")?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(target_arch = "x86_64"))]
fn other_calls() -> io::Result<ExitCode> {
    Ok(ExitCode::from(254))
}
