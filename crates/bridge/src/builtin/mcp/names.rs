//! What a server's tools are called: `mcp__<server>__<tool>`, in the letters and the length that a
//! model's interface allows, and no two alike.

use std::collections::BTreeSet;

/// How long a name may be.
const MAX_NAME: usize = 64;

/// A name that is not among those taken, which it then is.
pub(super) fn unique(server: &str, tool: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name = format!("mcp__{}__{}", clean(server), clean(tool));
    name.truncate(MAX_NAME);
    let mut candidate = name.clone();
    let mut number = 2;
    while taken.contains(&candidate) {
        let suffix = format!("_{number}");
        let base = &name[..name.len().min(MAX_NAME - suffix.len())];
        candidate = format!("{base}{suffix}");
        number += 1;
    }
    taken.insert(candidate.clone());
    candidate
}

/// A name in the letters that are allowed.
pub(in crate::builtin) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect()
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_clean_short_and_unique() {
        let mut taken = BTreeSet::new();
        assert_eq!(unique("my server", "do.it", &mut taken), "mcp__my_server__do_it");
        assert_eq!(unique("my-server", "doit", &mut taken), "mcp__my-server__doit");
        assert_eq!(unique("my server", "do/it", &mut taken), "mcp__my_server__do_it_2");
        let long = "é".repeat(100);
        let first = unique(&long, "a", &mut taken);
        let second = unique(&long, "b", &mut taken);
        assert_eq!((first.len(), second.len()), (64, 64));
        assert_ne!(first, second);
    }
}
