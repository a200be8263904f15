//! Credentials are added outside, and are found nowhere else.

use std::path::Path;

use serde_json::{Value, json};

use super::super::spawned::Spawned;
use super::outside::{Manner, Outside};
use super::{ALLOW_LOOPBACK, Inside, deploy, read};

const OF_THE_HOST: &str = "Bearer hush-of-the-host-5d1c";
const OF_THE_MODEL: &str = "hush-of-the-model-a7e3";

/// What of them is sought: a pattern that does not find itself.
const SOUGHT: &str = "hus[h]-of-the-";

async fn credential(spawned: &Spawned, body: Value) -> String {
    let made = spawned.client.post("/api/credentials", &body).await.ok();
    assert!(made["credential"].get("key").is_none(), "{made}");
    made["credential"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_credential_is_added_outside_and_found_nowhere() {
    let spawned = Spawned::with(&[ALLOW_LOOPBACK]).await;
    let client = &spawned.client;
    let web = Outside::start(Manner::Web).await;
    deploy(client, "coder", &["nobody.example".to_owned()]).await;
    let host = format!("http://{}", web.host());
    let for_host = json!({
        "name": "tracker", "type": "custom", "key": OF_THE_HOST, "header": "Authorization", "host": host,
    });
    let for_host = credential(&spawned, for_host).await;
    let for_model = json!({ "type": "anthropic", "key": OF_THE_MODEL });
    let for_model = credential(&spawned, for_model).await;
    let plain = credential(&spawned, json!({ "type": "custom", "key": "as the original" })).await;
    let listed = client.get("/api/credentials").await.ok();
    let shown = listed["credentials"].as_array().unwrap();
    let shown = shown.iter().find(|of| of["id"] == for_host.as_str()).unwrap();
    assert_eq!((&shown["label"], &shown["host"]), (&json!("tracker"), &json!(host)));
    assert_eq!(shown["header"], "authorization");
    for (wrong, code) in [
        (json!({ "credentialIds": [plain] }), "invalid_credential"),
        (json!({ "credentialIds": ["nothing"] }), "invalid_credential"),
        (json!({ "credentialIds": vec![for_host.clone(); 21] }), "invalid_request"),
    ] {
        let mut create = json!({ "agent": "coder" });
        create.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        assert_eq!(client.post("/api/sessions", &create).await.refused(400), code, "{wrong}");
    }
    for wrong in [
        json!({ "type": "custom", "key": "x", "header": "x-key" }),
        json!({ "type": "custom", "key": "x", "header": "host", "host": "a.example" }),
        json!({ "type": "custom", "key": "x", "header": "x-key", "host": "a.example/path" }),
        json!({ "type": "anthropic", "key": "x", "header": "x-key", "host": "a.example" }),
    ] {
        client.post("/api/credentials", &wrong).await.refused(400);
    }

    let options = json!({ "credentialId": for_model, "credentialIds": [for_host] });
    let inside = Inside::of(client, "coder", options).await;
    let other = Inside::of(client, "coder", json!({})).await;
    let asked =
        format!("GET {host}/issues?q=1 HTTP/1.1\nhost: x\nauthorization: mine\nx-mine: yes");
    let answer = inside.ask(std::slice::from_ref(&asked)).await.remove(0);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
    let heard = web.heard().remove(0);
    assert!(heard.contains(&format!("authorization: {OF_THE_HOST}\r\n")), "{heard}");
    assert!(heard.contains("x-mine: yes\r\n") && !heard.contains("mine\r\n\r\n"), "{heard}");
    assert_eq!(heard.to_lowercase().matches("authorization").count(), 1, "{heard}");
    // Nobody else has it, and nobody gets past it.
    let refused = (403, "host_not_allowed".to_owned());
    assert_eq!(read(&other.ask(&[asked]).await[0]), refused);
    assert_eq!(inside.connect(&[&web.host()]).await, [refused]);
    client.say(&inside.session, "hello\n/bash echo work > file\n/say done").await.all().await;
    assert!(
        spawned
            .model
            .requests()
            .iter()
            .all(|of| of.key.as_ref().is_some_and(|key| key.reveal() == OF_THE_MODEL))
    );

    // In every process, file and environment of the sandbox.
    let search = format!(
        r#"python3 - <<'E'
import os, re
sought = re.compile({SOUGHT:?}.encode())
found, looked = [], 0
for top in ["/workspace", "/home", "/tmp", "/etc", "/run", "/dev/shm", "/var"]:
    for at, _, names in os.walk(top):
        for name in names:
            path = os.path.join(at, name)
            try:
                if os.path.isfile(path): data = open(path, "rb").read(1 << 24)
                else: continue
            except OSError: continue
            looked += 1
            if sought.search(data): found.append(path)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ["environ", "cmdline", "maps"]:
        try: data = open(f"/proc/{{pid}}/{{name}}", "rb").read()
        except OSError: continue
        looked += 1
        if sought.search(data): found.append(f"/proc/{{pid}}/{{name}}")
    if int(pid) == os.getpid(): continue
    try:
        maps, memory = open(f"/proc/{{pid}}/maps").read(), open(f"/proc/{{pid}}/mem", "rb", 0)
    except OSError: continue
    for line in maps.splitlines():
        if " r" not in line or "[v" in line: continue
        a, b = (int(x, 16) for x in line.split()[0].split("-"))
        try:
            memory.seek(a)
            if sought.search(memory.read(min(b - a, 1 << 26))): found.append(f"/proc/{{pid}}/mem")
        except (OSError, OverflowError, ValueError): pass
print(found, looked > 10)
E"#
    );
    assert_eq!(inside.run(&search).await, "[] True\n");

    // Nor in anything that is kept or told: the workspace as a snapshot has it, what is exported, logs, answers.
    client.post(&format!("/api/sessions/{}/stop", inside.session), &json!({})).await.ok();
    let told = [
        inside.get("").await.body,
        inside.get("/egress").await.body,
        inside.get("/logs").await.body,
        inside.get("/events").await.body,
        client.get("/api/credentials").await.body,
        client.get("/metrics").await.body,
        spawned.said(),
    ];
    for text in &told {
        assert!(!text.contains("hush-of-the-"), "{text}");
    }
    assert!(told[6].contains("/v1/messages"), "requests are in the log: {}", told[6]);
    let bundle = client.download(&format!("/api/sessions/{}/export", inside.session)).await;
    assert!(!holds(&bundle));
    let mut files = 0;
    walk(&spawned.dir.path().join("data"), &mut |path| {
        files += 1;
        let content = std::fs::read(path).unwrap_or_default();
        assert!(!holds(&content), "{}", path.display());
        // What is packed is looked at unpacked.
        let unpacked = zstd::stream::decode_all(&content[..]).unwrap_or_default();
        assert!(!holds(&unpacked), "{}", path.display());
    });
    assert!(files > 5, "there is something to be searched");
    spawned.end().await;
}

fn holds(content: &[u8]) -> bool {
    content.windows(12).any(|window| window == b"hush-of-the-")
}

fn walk(directory: &Path, look: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            walk(&entry.path(), look);
        } else if kind.is_file() {
            look(&entry.path());
        }
    }
}
