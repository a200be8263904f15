use super::*;
use proptest::prelude::*;

fn allows(entry: &str, host: &str, port: u16) -> bool {
    let host = Host::parse(host).unwrap();
    Destination::parse(entry).unwrap().iter().any(|one| one.allows(&host, port))
}

#[test]
fn an_entry_allows_what_it_says_and_nothing_beside_it() {
    for (entry, host, port, fine) in [
        ("api.example.com", "api.example.com", 443, true),
        ("api.example.com", "API.Example.COM.", 80, true),
        ("api.example.com", "api.example.com", 8443, false),
        ("api.example.com", "example.com", 443, false),
        ("api.example.com", "x.api.example.com", 443, false),
        ("api.example.com", "api.example.com.evil.org", 443, false),
        ("api.example.com:8443", "api.example.com", 8443, true),
        ("api.example.com:8443", "api.example.com", 443, false),
        ("*.example.com", "a.example.com", 443, true),
        ("*.example.com", "a.b.example.com", 443, true),
        ("*.example.com", "example.com", 443, false),
        ("*.example.com", "evilexample.com", 443, false),
        ("*.example.com:22", "a.example.com", 22, true),
        ("1.1.1.1", "1.1.1.1", 443, true),
        ("1.1.1.1", "1.0.0.1", 443, false),
        ("[2606:4700::1111]:853", "[2606:4700:0:0::1111]", 853, true),
        ("preset:npm", "registry.npmjs.org", 443, true),
        ("preset:github", "raw.githubusercontent.com", 443, true),
        ("preset:pypi", "registry.npmjs.org", 443, false),
    ] {
        assert_eq!(allows(entry, host, port), fine, "{entry} {host} {port}");
    }
}

#[test]
fn what_is_no_host_is_refused_with_the_reason() {
    for (entry, reason) in [
        ("https://a.example", "is none"),
        ("a.example/path", "is none"),
        ("*", "is none"),
        ("*.com", "two labels"),
        ("a.*.com", "is none"),
        ("", "is none"),
        ("-a.example", "is none"),
        ("a..example", "is none"),
        ("a.example:0", "no port"),
        ("a.example:65536", "no port"),
        ("a.example:+80", "no port"),
        ("preset:nothing", "crates, debian, github, gitlab, go, npm, pypi"),
        ("127.1", "unusual spelling"),
        ("010.0.0.1", "unusual spelling"),
        ("2130706433", "unusual spelling"),
        ("0x7f000001", "unusual spelling"),
        ("0x7f.1", "unusual spelling"),
        ("1.2.3.4.", "unusual spelling"),
        ("::1", "no port"),
        ("[::1%1]", "is none"),
        ("[fe80::1%eth0]", "is none"),
        ("a@b.example", "is none"),
        ("ex\u{e4}mple.com", "is none"),
        ("a.example\0", "is none"),
    ] {
        let said = Destination::parse(entry).expect_err(entry);
        assert!(said.contains(reason), "{entry}: {said}");
    }
}

proptest! {
    #[test]
    fn whatever_is_read_has_one_spelling(text in "[a-zA-Z0-9._:x-]{0,24}|\\[[0-9a-f:.]{0,24}\\]") {
        if let Ok(host) = Host::parse(&text) {
            prop_assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
            // What the system would take for an address is never a name.
            if let Host::Name(name) = &host {
                prop_assert!(name.parse::<IpAddr>().is_err());
                prop_assert!(!name.rsplit('.').next().unwrap().bytes().all(|b| b.is_ascii_digit()));
            }
        }
    }

    #[test]
    fn a_name_is_allowed_by_itself_alone(
        wanted in "[a-z]{1,5}(\\.[a-z]{1,5}){1,3}",
        asked in "[a-z]{1,5}(\\.[a-z]{1,5}){1,3}",
    ) {
        prop_assert_eq!(allows(&wanted, &asked, 443), wanted == asked);
        let below = allows(&format!("*.{wanted}"), &asked, 443);
        prop_assert_eq!(below, asked.ends_with(&format!(".{wanted}")));
    }
}
