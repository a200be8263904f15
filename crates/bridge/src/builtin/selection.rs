//! Which of the tools that there are an agent may use.
//!
//! A session names tools as we do or as Claude Code does, and a whole MCP server by its prefix. What
//! it forbids counts for more than what it allows.

use super::delegate::DELEGATE_CODER;
use super::mcp;
use super::memory::UPDATE_MEMORY;

/// What Claude Code calls tools that do the same as ours.
const OTHER_NAMES: [(&str, &str); 9] = [
    ("Bash", "bash"),
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("Glob", "list_files"),
    ("LS", "list_files"),
    ("Task", DELEGATE_CODER),
    ("Agent", DELEGATE_CODER),
    ("TodoWrite", UPDATE_MEMORY),
];

/// A patch set writes and edits: whoever forbids one of these forbids it too.
const PARTS_OF_A_PATCHSET: [&str; 2] = ["write_file", "edit_file"];

/// What a session says about tools.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// Empty: everything is.
    allowed: Vec<Rule>,
    disallowed: Vec<Rule>,
}

/// What one of its names stands for.
#[derive(Clone, Debug)]
struct Rule {
    /// As the session says it.
    said: String,
    /// As we call it.
    name: String,
    /// Whether it is about some uses of the tool only: `Bash(git log:*)`.
    is_partial: bool,
}

impl Selection {
    pub(super) fn new(allowed: &[String], disallowed: &[String]) -> Self {
        let rules = |names: &[String]| names.iter().map(|name| Rule::read(name)).collect();
        Self { allowed: rules(allowed), disallowed: rules(disallowed) }
    }

    /// Whether a tool may be used.
    pub(super) fn offers(&self, tool: &str) -> bool {
        // Which use of a tool it is cannot be told from here. So a rule about some uses allows
        // none of them, and forbids them all.
        let is_allowed = self.allowed.is_empty()
            || self.allowed.iter().any(|rule| !rule.is_partial && rule.fits(tool));
        is_allowed && !self.disallowed.iter().any(|rule| rule.forbids(tool))
    }

    /// What is to be said about names that are not understood as they were meant.
    pub(super) fn problems(&self, tools: &[String]) -> Vec<String> {
        let allowed = self
            .allowed
            .iter()
            .filter_map(|rule| rule.problem("allowed", "it allows nothing here", tools));
        let disallowed = self
            .disallowed
            .iter()
            .filter_map(|rule| rule.problem("disallowed", "it forbids the whole tool here", tools));
        allowed.chain(disallowed).collect()
    }
}

impl Rule {
    fn read(said: &str) -> Self {
        let (name, is_partial) = match said.trim().split_once('(') {
            Some((name, _)) => (name.trim_end(), true),
            None => (said.trim(), false),
        };
        let ours = OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|&(_, ours)| ours);
        let name = match ours {
            Some(ours) => ours.to_owned(),
            None if name.starts_with("mcp__") => {
                mcp::clean(name.strip_suffix("__*").unwrap_or(name))
            }
            None => name.to_owned(),
        };
        Self { said: said.to_owned(), name, is_partial }
    }

    /// Whether it names the tool, or the MCP server that has it.
    fn fits(&self, tool: &str) -> bool {
        tool.strip_prefix(&self.name).is_some_and(|rest| {
            rest.is_empty() || (self.name.starts_with("mcp__") && rest.starts_with("__"))
        })
    }

    fn problem(&self, list: &str, effect: &str, tools: &[String]) -> Option<String> {
        let said = &self.said;
        if !tools.iter().any(|tool| self.fits(tool)) {
            return Some(format!("the {list} tool {said:?} is none that there is"));
        }
        self.is_partial.then(|| format!("the {list} tool {said:?} is a part of one: {effect}"))
    }

    fn forbids(&self, tool: &str) -> bool {
        self.fits(tool)
            || (tool == "apply_patchset" && PARTS_OF_A_PATCHSET.contains(&self.name.as_str()))
    }
}

#[cfg(test)]
mod test {
    use proptest::prelude::*;

    use super::*;

    const TOOLS: [&str; 12] = [
        "bash",
        "read_file",
        "write_file",
        "edit_file",
        "list_files",
        "apply_patchset",
        "update_memory",
        "delegate_coder",
        "mcp__git__log",
        "mcp__git__push",
        "mcp__github__log",
        "mcp__my_server__x",
    ];

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn offered(allowed: &[&str], disallowed: &[&str]) -> Vec<&'static str> {
        let selection = Selection::new(&owned(allowed), &owned(disallowed));
        TOOLS.into_iter().filter(|tool| selection.offers(tool)).collect()
    }

    #[test]
    fn tools_are_named_as_ours_as_claude_codes_or_by_their_server() {
        assert_eq!(offered(&[], &[]), TOOLS);
        assert_eq!(offered(&["bash", "Read"], &[]), ["bash", "read_file"]);
        assert_eq!(offered(&["LS", "Glob"], &[]), ["list_files"]);
        assert_eq!(offered(&["Task", "TodoWrite"], &[]), ["update_memory", "delegate_coder"]);
        let git = ["mcp__git__log", "mcp__git__push"];
        assert_eq!(offered(&["mcp__git"], &[]), git);
        assert_eq!(offered(&["mcp__git__*"], &[]), git);
        assert_eq!(offered(&["mcp__git"], &["mcp__git__push"]), ["mcp__git__log"]);
        assert_eq!(offered(&["mcp__my server"], &[]), ["mcp__my_server__x"]);
        assert_eq!(offered(&["read"], &[]), Vec::<&str>::new());
    }

    #[test]
    fn who_may_not_write_or_edit_may_not_patch() {
        for name in ["Write", "Edit", "write_file", "edit_file"] {
            assert!(!offered(&[], &[name]).contains(&"apply_patchset"), "{name}");
            assert!(!offered(&[name], &[]).contains(&"apply_patchset"), "{name}");
        }
        assert_eq!(offered(&["apply_patchset"], &[]), ["apply_patchset"]);
    }

    #[test]
    fn what_cannot_be_held_is_not_offered_and_said() {
        assert_eq!(offered(&["Bash(git log:*)", "Read"], &[]), ["read_file"]);
        assert!(!offered(&[], &["Bash(rm:*)"]).contains(&"bash"));
        let selection = Selection::new(
            &owned(&["Bash(git:*)", "Read", "WebFetch"]),
            &owned(&["Bash(rm:*)", "mcp__gone"]),
        );
        assert_eq!(
            selection.problems(&owned(&TOOLS)),
            [
                r#"the allowed tool "Bash(git:*)" is a part of one: it allows nothing here"#,
                r#"the allowed tool "WebFetch" is none that there is"#,
                r#"the disallowed tool "Bash(rm:*)" is a part of one: it forbids the whole tool here"#,
                r#"the disallowed tool "mcp__gone" is none that there is"#,
            ]
        );
    }

    fn names() -> impl Strategy<Value = Vec<String>> {
        let other: Vec<&str> = OTHER_NAMES.iter().map(|&(other, _)| other).collect();
        let name = prop_oneof![
            prop::sample::select(TOOLS.to_vec()).prop_map(str::to_owned),
            prop::sample::select(other).prop_map(str::to_owned),
            prop::sample::select(vec!["mcp__git", "mcp__github", "Nothing", "Bash(x)", ""])
                .prop_map(str::to_owned),
            ".{0,12}",
        ];
        prop::collection::vec(name, 0..5)
    }

    proptest! {
        #[test]
        fn nothing_is_offered_that_is_forbidden_or_not_allowed(
            allowed in names(),
            disallowed in names(),
        ) {
            let both = Selection::new(&allowed, &disallowed);
            let forbidden = Selection::new(&disallowed, &[]);
            let without = Selection::new(&allowed, &[]);
            for tool in TOOLS {
                if both.offers(tool) {
                    prop_assert!(without.offers(tool), "{tool} was not allowed");
                    prop_assert!(disallowed.is_empty() || !forbidden.offers(tool), "{tool}");
                }
            }
            // A name that does not fit any tool changes nothing but an empty list.
            let mut more = disallowed.clone();
            more.push("no such tool".to_owned());
            let same = Selection::new(&allowed, &more);
            for tool in TOOLS {
                prop_assert_eq!(both.offers(tool), same.offers(tool));
            }
        }
    }
}
