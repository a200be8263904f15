//! The reference of the command line, as a page, made from the declarations of its commands.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Flags that every command has.
const EVERYWHERE: [&str; 5] = ["help", "version", "verbose", "json", "server"];

/// Every command with what it takes, as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut cli = Cli::command();
    cli.build();
    let mut page = String::from(
        "# Command line reference\n\n\
         Made from the code by `make docs`. [The command line](cli.md) says how the commands belong together, what\n\
         they print and how they end.\n\n\
         Every command takes `--json` (one document, or one line per event), `-v`, `--verbose` and `-h`, `--help`; those\n\
         that talk to a server also take `--server URL` and `--data-dir DIRECTORY`.\n",
    );
    let commands: Vec<&Command> = shown(&cli).collect();
    page.push('\n');
    for command in &commands {
        let _ = writeln!(page, "- [ash {0}](#ash-{0}): {1}", command.get_name(), about(command));
    }
    for command in commands {
        describe(&mut page, command, &format!("ash {}", command.get_name()), 2);
    }
    page
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}

fn describe(page: &mut String, command: &Command, name: &str, level: usize) {
    let _ = writeln!(page, "\n{} {name}\n", "#".repeat(level));
    let long = command.get_long_about().map(ToString::to_string);
    let told = long.unwrap_or_else(|| about(command));
    let mut paragraphs = told.split("\n\n");
    let _ = writeln!(page, "{}.", paragraphs.next().unwrap_or_default());
    for paragraph in paragraphs {
        let _ = writeln!(page, "\n{}", paragraph.trim_end());
    }
    let aliases: Vec<String> =
        command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        let _ = writeln!(page, "\nAlso called {}.", aliases.join(", "));
    }
    if !command.has_subcommands() {
        let _ = writeln!(page, "\n```text\n{}\n```", usage(command, name));
    }
    let listed: Vec<&Arg> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    if !listed.is_empty() {
        page.push_str("\n| | |\n|---|---|\n");
        for arg in listed {
            let _ = writeln!(page, "| {} | {} |", spelled(arg), meaning(arg));
        }
    }
    for sub in shown(command) {
        describe(page, sub, &format!("{name} {}", sub.get_name()), level + 1);
    }
}

/// Whether an argument is not one that every command has.
fn is_own(arg: &Arg) -> bool {
    let is_global_place = arg.get_id() == "data_dir" && arg.is_global_set();
    !arg.is_hide_set() && !EVERYWHERE.contains(&arg.get_id().as_str()) && !is_global_place
}

fn usage(command: &Command, name: &str) -> String {
    let mut text = name.to_owned();
    let own: Vec<&Arg> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    if own.iter().any(|arg| !arg.is_positional()) {
        text.push_str(" [OPTIONS]");
    }
    for arg in own.into_iter().filter(|arg| arg.is_positional()) {
        let value = value_name(arg);
        let dots =
            if arg.get_num_args().is_some_and(|count| count.max_values() > 1) { "..." } else { "" };
        match arg.is_required_set() {
            true => text.push_str(&format!(" <{value}>{dots}")),
            false => text.push_str(&format!(" [{value}]{dots}")),
        }
    }
    text
}

fn value_name(arg: &Arg) -> String {
    let named = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    named.unwrap_or_else(|| arg.get_id().as_str().to_uppercase())
}

/// `-n`, `--name NAME`.
fn spelled(arg: &Arg) -> String {
    if arg.is_positional() {
        return format!("`{}`", value_name(arg).replace('|', "\\|"));
    }
    let takes = arg.get_action().takes_values();
    let value = if takes { format!(" {}", value_name(arg)) } else { String::new() };
    let short = arg.get_short().map(|short| format!("`-{short}`"));
    let long = arg.get_long().map(|long| format!("`--{long}{}`", value.replace('|', "\\|")));
    short.into_iter().chain(long).collect::<Vec<_>>().join(", ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let defaults: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    let takes = arg.get_action().takes_values();
    let default = match defaults.as_slice() {
        [] => String::new(),
        _ if !takes => String::new(),
        values => format!("; {} if nothing is said", values.join(" ")),
    };
    format!("{help}{default}").replace('|', "\\|")
}
