//! Who is heard, what is refused and how, and that no secret gets out.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::setting::Effect;
use super::*;

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn load(pairs: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load(&ServeFlags::default(), &env(pairs), None)
}

/// Loads a file by the name `server.toml`; messages are without its directory.
fn load_file(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    std::fs::write(&path, text).unwrap();
    let place = format!("{}/", dir.path().display());
    Config::load(&ServeFlags::default(), &env(&[]), Some(&path))
        .map_err(|error| error.to_string().replace(&place, ""))
}

fn effective(config: &Config, name: &str) -> Effective {
    config.effective().into_iter().find(|of| of.name == name).unwrap()
}

#[test]
fn every_setting_has_the_default_of_the_contract() {
    let config = load(&[]).unwrap();
    let shown: BTreeMap<_, _> =
        config.effective().into_iter().map(|of| (of.name, of.value.unwrap_or_default())).collect();
    let contract = [
        ("ALLOWED_ORIGINS", ""),
        ("ANTHROPIC_API_KEY", ""),
        ("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
        ("ASH_API_KEY", ""),
        ("ASH_BRIDGE_ENTRY", ""),
        ("ASH_CLAUDE_PATH", ""),
        ("ASH_CLAUDE_VERSION", ""),
        ("ASH_CLOUD_MBPS", "off"),
        ("ASH_CLOUD_UPLOADS", "4"),
        ("ASH_CLOUD_WAIT_MS", "2000"),
        ("ASH_COLD_TTL_MS", "7200000"),
        ("ASH_CREDENTIAL_KEY", ""),
        ("ASH_DATABASE_URL", ""),
        ("ASH_DATA_DIR", "./data"),
        ("ASH_DEBUG_TIMING", ""),
        ("ASH_DEFAULT_RUNTIME", ""),
        ("ASH_DRAIN_MS", "4000"),
        ("ASH_EVICT_AFTER_MS", "1800000"),
        ("ASH_HOOK_TIMEOUT_MS", "120000"),
        ("ASH_HOST", "127.0.0.1"),
        ("ASH_IDLE_TIMEOUT_MS", "1800000"),
        ("ASH_INTERNAL_SECRET", ""),
        ("ASH_MAX_ATTACHMENT_SIZE", "10485760"),
        ("ASH_MAX_PREWARMED", "16"),
        ("ASH_MAX_SANDBOXES", "1000"),
        ("ASH_MIN_FREE_MB", "1024"),
        ("ASH_MIN_ISOLATION", "rootless"),
        ("ASH_NPM_REGISTRY", ""),
        ("ASH_ORPHAN_TTL_MS", "600000"),
        ("ASH_PERMISSION_MODE", ""),
        ("ASH_PERMISSION_TIMEOUT_MS", "600000"),
        ("ASH_PERSIST_INTERVAL_MS", "300000"),
        ("ASH_PORT", "4100"),
        ("ASH_QUEUE_CONCURRENCY", "4"),
        ("ASH_RATE_LIMIT", "off"),
        ("ASH_EGRESS_RATE_LIMIT", "off"),
        ("ASH_EGRESS_ALLOW_PRIVATE", ""),
        ("ASH_REAL_SDK", ""),
        ("ASH_RETENTION_MS", "604800000"),
        ("CLAUDE_CODE_EXECUTABLE", ""),
        ("ASH_S3_ENDPOINT", ""),
        ("ASH_S3_REGION", "us-east-1"),
        ("ASH_SANDBOX_MEMORY_MB", "2048"),
        ("ASH_SANDBOX_UID_BASE", "200000"),
        ("ASH_SANDBOX_UID_COUNT", "65536"),
        ("ASH_SESSION_TTL_MS", "off"),
        ("ASH_SNAPSHOT_KEEP", "off"),
        ("ASH_LOCAL_SNAPSHOT_TTL_MS", "off"),
        ("ASH_SNAPSHOT_URL", ""),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", ""),
        ("--dangerously-no-sandbox", "false"),
    ];
    let contract: BTreeMap<_, _> =
        contract.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
    assert_eq!(shown, contract);
    assert!(config.effective().iter().all(|of| of.source == Source::Default));
    assert_eq!(config.warnings(), Vec::<String>::new());
    assert_eq!(config.database_path(), Path::new("./data/ash.db"));
}

#[test]
fn names_follow_one_rule_and_are_used_once() {
    let mut seen = BTreeSet::new();
    for setting in SETTINGS {
        let plain = setting.env.strip_prefix(PREFIX).unwrap_or(setting.env);
        assert_eq!(setting.key, plain.to_ascii_lowercase());
        if let Some(flag) = setting.flag {
            assert_eq!(flag, format!("--{}", setting.key.replace('_', "-")));
            assert!(!setting.secret, "{flag}: no secret on a command line");
        }
        assert!(seen.insert(setting.env), "{} is declared twice", setting.env);
        assert!(!setting.doc.trim().ends_with('.'), "{}: no full stop", setting.env);
    }
}

#[test]
fn a_file_can_say_everything_that_variables_can() {
    let config = load_file(
        "# ours\nport = 4_200\nhost = \"::1\"\ndata_dir = \"/srv/ash\"\n\
         database_url = \"sqlite:///srv/db/ash.db\"\n\
         allowed_origins = [\"https://a.example\", \"http://localhost:5173\"]\n\
         rate_limit = 60\nsession_ttl_ms = \"off\"\nanthropic_base_url = \"http://[::1]:9/x\"\n",
    )
    .unwrap();
    assert_eq!((config.port, config.host.to_string()), (4200, "::1".to_owned()));
    assert_eq!(config.database_path(), Path::new("/srv/db/ash.db"));
    assert_eq!(config.allowed_origins, ["https://a.example", "http://localhost:5173"]);
    assert_eq!(config.rate_limit.map(NonZeroU32::get), Some(60));
    assert_eq!(config.session_ttl_ms, None);
    assert_eq!(effective(&config, "ASH_PORT").source, Source::File);
}

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    let refused = [
        ("a = ", "server.toml line 1 is not TOML"),
        ("port = 1\nport = 2", "server.toml line 2 is not TOML: duplicate key"),
        ("\n\nprot = 1", "server.toml line 3: there is no setting `prot`; did you mean `port`?"),
        ("ASH_PORT = 1", "there is no setting `ASH_PORT`; did you mean `port`?"),
        ("[server]\nport = 1", "server.toml line 1: there is no setting `server`"),
        (
            "host = '127.0.0.1'\nport = 65536",
            "`port` in server.toml line 2 is `65536`: expected a port from 0 to 65535",
        ),
        ("port = -1", "`port` in server.toml line 1 is `-1`: expected a port"),
        ("port = 1.5", "is `a TOML float`: expected a port from 0 to 65535, as a whole number"),
        ("api_key = 5", "is `a TOML integer`: expected a key"),
        ("data_dir = ['a']", "is `a TOML array`: expected a path, as a string"),
        ("allowed_origins = [1]", "is `a TOML array`: expected origins"),
    ];
    for (text, expected) in refused {
        let message = load_file(text).unwrap_err();
        assert!(message.contains(expected), "{text}: {message}");
    }
    let missing = Config::load(&ServeFlags::default(), &env(&[]), Some(Path::new("/nowhere/a")));
    assert_eq!(missing.unwrap_err().to_string(), "could not read /nowhere/a");
}

#[test]
fn a_wrong_line_is_named_even_if_a_variable_goes_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    std::fs::write(&path, "drain_ms = 'soon'\n").unwrap();
    let env = env(&[("ASH_DRAIN_MS", "5")]);
    let error = Config::load(&ServeFlags::default(), &env, Some(&path)).unwrap_err().to_string();
    assert!(error.contains("line 1 is `soon`: expected a number of milliseconds"), "{error}");
}

#[test]
fn a_variable_of_ours_that_is_not_utf_8_is_named() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = || OsString::from_vec(vec![b'a', 0xff]);
    let others = [("PATH".into(), odd()), (odd(), odd()), ("ASH_PORT".into(), "1".into())];
    assert_eq!(readable(others.into_iter()).unwrap(), env(&[("ASH_PORT", "1")]));
    for name in ["ASH_DATA_DIR", "ASH_ANYTHING", "ANTHROPIC_API_KEY"] {
        let error = readable([(name.into(), odd())].into_iter()).unwrap_err().to_string();
        assert_eq!(error, format!("the variable {name} is not UTF-8"));
    }
}

#[test]
fn a_bad_variable_is_named_with_its_value_and_what_is_expected() {
    let refused = [
        ("ASH_PORT", "+1", "ASH_PORT is `+1`: expected a port from 0 to 65535"),
        ("ASH_MAX_SANDBOXES", "0", "ASH_MAX_SANDBOXES is `0`: expected a whole number from 1 to"),
        ("ASH_DRAIN_MS", "4s", "ASH_DRAIN_MS is `4s`: expected a number of milliseconds"),
        ("ASH_IDLE_TIMEOUT_MS", "off", "ASH_IDLE_TIMEOUT_MS is `off`: expected a number"),
        ("ASH_DRAIN_MS", "18446744073709551615", "at most a hundred years"),
        (
            "ASH_EGRESS_ALLOW_PRIVATE",
            "10.0.0.0/99",
            "expected ranges of addresses and names of hosts, such as 10.1.0.0/16,vault.internal",
        ),
        ("ASH_RATE_LIMIT", "many", "expected a whole number from 1 to 4294967295, or `off`"),
        ("ASH_MIN_ISOLATION", "none", "the flag --dangerously-no-sandbox"),
        ("ASH_HOST", "example.com", "expected an IP address"),
        ("ALLOWED_ORIGINS", "https://a.example/path", "expected origins"),
        ("ALLOWED_ORIGINS", "*", "expected origins"),
        ("ANTHROPIC_BASE_URL", "api.anthropic.com", "begins with http:// or https://"),
        ("ASH_SNAPSHOT_URL", "s3://", "expected a bucket"),
        ("ANTHROPIC_API_KEY", "sk-secret\n", "ANTHROPIC_API_KEY is `***`: expected a key"),
        ("ASH_DATABASE_URL", "postgres://u:hidden@db/ash", "is `postgres://***@db/ash`"),
    ];
    for (name, value, expected) in refused {
        let message = load(&[(name, value)]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn without_sandboxes_an_address_that_others_can_reach_is_refused_with_the_reason() {
    let flags = ServeFlags { dangerously_no_sandbox: true, ..ServeFlags::default() };
    for host in ["0.0.0.0", "::", "192.168.1.5", "::ffff:127.0.0.1"] {
        let env = BTreeMap::from([("ASH_HOST".to_owned(), host.to_owned())]);
        assert!(load(&[("ASH_HOST", host)]).is_ok(), "{host} is fine for sandboxes");
        let message = Config::load(&flags, &env, None).unwrap_err().to_string();
        assert!(message.starts_with(&format!("ASH_HOST is `{host}`, which other")), "{message}");
        assert!(message.contains("without isolation"), "{message}");
    }
    for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost"] {
        assert!(load(&[("ASH_HOST", host)]).unwrap().host.is_loopback());
    }
}

#[test]
fn an_unknown_variable_is_warned_about_with_the_nearest_name() {
    let config = load(&[
        ("ASH_PROT", "1"),
        ("ASH_RUNNER_ID", "1"),
        ("ASH_HOPE", "1"),
        ("ASH_ZZZ", "1"),
        ("ASH_SERVER_URL", "http://localhost:4100"),
        ("PATH", "/bin"),
    ]);
    let expected = [
        "ASH_HOPE is not a setting, and is ignored",
        "ASH_PROT is not a setting; did you mean ASH_PORT?",
        "ASH_RUNNER_ID is not a setting, and is ignored",
        "ASH_ZZZ is not a setting, and is ignored",
    ];
    assert_eq!(config.unwrap().warnings(), expected);
}

#[test]
fn a_setting_without_effect_says_so_when_it_is_set() {
    let url = "http://127.0.0.1:4318";
    let config = load(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]).unwrap();
    let expected = "OTEL_EXPORTER_OTLP_ENDPOINT has no effect yet: it waits for tracing";
    assert_eq!(config.warnings(), [expected]);
    for setting in SETTINGS {
        let says_so = setting.doc().contains("no effect yet");
        assert_eq!(says_so, setting.effect != Effect::Now, "{}", setting.env);
    }
}

#[test]
fn an_empty_value_is_none() {
    let config = load(&[("ASH_API_KEY", ""), ("ASH_PORT", ""), ("ASH_SNAPSHOT_URL", "")]).unwrap();
    assert_eq!((config.api_key.as_ref(), config.port), (None, 4100));
    assert_eq!(effective(&config, "ASH_API_KEY").source, Source::Default);
    assert_eq!(config.warnings(), Vec::<String>::new());
}

#[test]
fn a_file_with_secrets_that_others_can_read_is_warned_about() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.toml");
    std::fs::write(&path, "api_key = 'k'\n").unwrap();
    for (mode, warnings) in [(0o644, 1), (0o600, 0)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let config = Config::load(&ServeFlags::default(), &env(&[]), Some(&path)).unwrap();
        assert_eq!(config.warnings().len(), warnings, "{:?}", config.warnings());
    }
}

#[derive(Debug, clap::Parser)]
struct Line {
    #[command(flatten)]
    flags: ServeFlags,
}

#[test]
fn every_flag_of_the_table_is_a_flag_of_the_command_line() {
    use clap::{CommandFactory as _, Parser as _};
    let line = Line::command();
    let flags: BTreeSet<String> =
        line.get_arguments().filter_map(|of| of.get_long()).map(|of| format!("--{of}")).collect();
    let declared = SETTINGS.iter().filter_map(|setting| setting.flag).map(str::to_owned);
    let others = ["--config", "--dangerously-no-sandbox"].map(str::to_owned);
    assert_eq!(flags, declared.chain(others).collect());
    for setting in SETTINGS.iter().filter(|setting| setting.flag.is_some()) {
        let value = if setting.key == "database_url" { "sqlite:x" } else { setting.default };
        let line = Line::try_parse_from(["ash", setting.flag.unwrap(), value]).unwrap();
        let config = Config::load(&line.flags, &env(&[]), None).unwrap();
        assert_eq!(effective(&config, setting.env).source, Source::Flag);
    }
    let refused = Line::try_parse_from(["ash", "--port", "x"]).unwrap_err().to_string();
    assert!(refused.contains("expected a port from 0 to 65535"), "{refused}");
}

proptest! {
    #[test]
    fn the_nearest_source_is_heard(flag: Option<u16>, variable: Option<u16>, line: Option<u16>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.toml");
        std::fs::write(&path, line.map(|port| format!("port = {port}")).unwrap_or_default()).unwrap();
        let flags = ServeFlags { port: flag.map(|port| port.to_string()), ..Default::default() };
        let env = variable.map(|port| ("ASH_PORT".to_owned(), port.to_string()));
        let config = Config::load(&flags, &env.into_iter().collect(), Some(&path)).unwrap();
        let (port, source) = flag.map(|port| (port, Source::Flag))
            .or(variable.map(|port| (port, Source::Environment)))
            .or(line.map(|port| (port, Source::File)))
            .unwrap_or((4100, Source::Default));
        prop_assert_eq!((config.port, effective(&config, "ASH_PORT").source), (port, source));
    }

    /// Any text, for any setting: it is taken or refused, and a secret is not in what is said.
    #[test]
    fn no_secret_gets_out(index in 0..SETTINGS.len(), text in "[ -~\n\u{e9}]{0,30}", in_file: bool) {
        let setting = &SETTINGS[index];
        let text = format!("{text}Zq7secret{text}");
        let said = if in_file {
            let quoted = toml_string(&text);
            match load_file(&format!("{} = {quoted}\n", setting.key)) {
                Ok(config) => format!("{config:?}{:?}", config.effective()),
                Err(message) => message,
            }
        } else {
            match load(&[(setting.env, &text)]) {
                Ok(config) => format!("{config:?}{:?}", config.effective()),
                Err(error) => error.to_string(),
            }
        };
        prop_assert_eq!(setting.secret && said.contains("Zq7secret"), false, "{}", said);
    }
}

fn toml_string(text: &str) -> String {
    let escaped: String = text.chars().map(|of| format!("\\U{:08x}", u32::from(of))).collect();
    format!("\"{escaped}\"")
}
