//! What is refused before anything is asked.

use super::*;

#[test]
fn the_digest_of_the_pinned_release_is_our_own() {
    let pinned: Version = PINNED.parse().unwrap();
    let package = "@anthropic-ai/claude-code-linux-x64";
    let known = expected(package, &pinned, None).unwrap();
    assert_eq!(expected(package, &pinned, Some(&known.to_string())).unwrap(), known);
    let other = Integrity::of(&[1; 64]).to_string();
    let refused = expected(package, &pinned, Some(&other)).unwrap_err().to_string();
    assert!(refused.contains("something else under the name"), "{refused}");
    let version: Version = "2.1.1".parse().unwrap();
    assert_eq!(expected(package, &version, Some(&other)).unwrap().to_string(), other);
    let refused = expected(package, &version, Some("sha1-AAAA")).unwrap_err().to_string();
    assert!(refused.contains("does not say the SHA-512 digest"), "{refused}");
}
