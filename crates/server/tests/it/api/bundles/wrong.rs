//! Bundles that are damaged, forged, or from the future.

use std::io::Read as _;

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::*;

const MANIFEST: &str = "manifest.json";

/// The files in a bundle, in their order.
pub(super) fn objects(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(bundle);
    let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

/// Those files as a bundle whose manifest fits them.
fn forged(files: &[(String, Vec<u8>)], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let described = files.iter().find(|(name, _)| name == MANIFEST).unwrap();
    let mut manifest: Value = serde_json::from_slice(&described.1).unwrap();
    let kept = files.iter().filter(|(name, _)| name.starts_with("tenants/"));
    let kept: Vec<_> = kept.collect();
    let object = |(name, bytes): &&(String, Vec<u8>)| json!({ "name": name, "bytes": bytes.len(), "blake3": blake3::hash(bytes).to_hex().as_str() });
    manifest["objects"] = kept.iter().map(object).collect();
    change(&mut manifest);
    let time = manifest["at"].as_u64().unwrap() / 1000;
    let manifest = manifest.to_string().into_bytes();
    let digest = format!("{}  {MANIFEST}\n", blake3::hash(&manifest).to_hex());
    let mut made = Builder::new(Vec::new());
    add(&mut made, MANIFEST, time, EntryType::Regular, &manifest);
    add(&mut made, "manifest.blake3", time, EntryType::Regular, digest.as_bytes());
    for (name, bytes) in kept {
        add(&mut made, name, time, EntryType::Regular, bytes);
    }
    made.into_inner().unwrap()
}

fn add(made: &mut Builder<Vec<u8>>, name: &str, time: u64, kind: EntryType, bytes: &[u8]) {
    let mut header = Header::new_ustar();
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(time);
    header.set_entry_type(kind);
    header.set_size(bytes.len() as u64);
    header.set_device_major(0).unwrap();
    header.set_device_minor(0).unwrap();
    // As the standard has it: the end of a long name, and what is before it.
    let (prefix, name) = match name.len() {
        0..=100 => ("", name),
        long => {
            let at = name.match_indices('/').find(|(at, _)| long - at - 1 <= 100).unwrap().0;
            (&name[..at], &name[at + 1..])
        }
    };
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[345..345 + prefix.len()].copy_from_slice(prefix.as_bytes());
    header.set_cksum();
    // As most write it: six digits, and no more.
    let sum = format!("{:06o}\0 ", header.cksum().unwrap());
    header.as_mut_bytes()[148..156].copy_from_slice(sum.as_bytes());
    made.append(&header, bytes).unwrap();
}

/// A bundle of a session, and a server that has nothing.
async fn bundle_and_server() -> (Vec<u8>, Served) {
    let first = Served::start().await;
    let session = stopped(&first.client, &[WRITE]).await;
    let bundle = export(&first.client, &session).await;
    first.end().await;
    (bundle, Served::start().await)
}

async fn refused(served: &Served, bundle: &[u8], why: &str) -> String {
    let answer = send(&served.client, bundle, &[]).await;
    assert_eq!(answer.status, 422, "{why}: {}", answer.body);
    for list in ["sessions", "agents"] {
        let left = served.client.get(&format!("/api/{list}")).await.ok();
        assert_eq!(left[list], json!([]), "{why}: nothing is left");
    }
    assert_eq!(left(&served.dir), Vec::<PathBuf>::new(), "{why}: nothing lies about");
    answer.refused(422)
}

#[tokio::test]
async fn a_bundle_that_is_damaged_anywhere_is_refused_and_leaves_nothing() {
    let (bundle, served) = bundle_and_server().await;
    // Every byte in turn is for tests of the format; here is one in each region, and the end.
    let step = bundle.len() / 60;
    for at in (0..bundle.len()).step_by(step).chain([bundle.len() - 1]) {
        let mut damaged = bundle.clone();
        damaged[at] ^= 1;
        let code = refused(&served, &damaged, &format!("byte {at}")).await;
        assert!(["import_damaged", "import_too_new"].contains(&code.as_str()), "{at}: {code}");
    }
    for end in (0..bundle.len()).step_by(step) {
        let code = refused(&served, &bundle[..end], &format!("{end} bytes")).await;
        assert_eq!(code, "import_damaged", "{end} bytes");
    }
    let more = [bundle.as_slice(), b"more"].concat();
    assert_eq!(refused(&served, &more, "more").await, "import_damaged");
    assert_eq!(refused(&served, b"not a bundle at all", "something").await, "import_damaged");
    import(&served.client, &bundle).await;
    served.end().await;
}

#[tokio::test]
async fn a_manifest_that_fits_makes_nothing_whole() {
    let (bundle, served) = bundle_and_server().await;
    let files = objects(&bundle);
    assert!(files.len() > 6, "{files:?}");
    for index in 2..files.len() {
        // Chunks that are here are not read again: a server that has seen none of them.
        let other = match files[index].0.contains("/packs/") {
            true => Some(Served::start().await),
            false => None,
        };
        let served = other.as_ref().unwrap_or(&served);
        let mut damaged = files.clone();
        let (name, bytes) = &mut damaged[index];
        let name = name.clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        let code = refused(served, &forged(&damaged, |_| {}), &name).await;
        assert_eq!(code, "import_damaged", "{name}");
        // One that is missing, and one that is empty.
        damaged[index].1.clear();
        refused(served, &forged(&damaged, |_| {}), &format!("{name}, empty")).await;
        damaged.remove(index);
        // Who opens a repository without a word on its format makes it anew.
        if !name.ends_with("/format") {
            refused(served, &forged(&damaged, |_| {}), &format!("{name}, missing")).await;
        }
        if let Some(other) = other {
            other.end().await;
        }
    }
    import(&served.client, &forged(&files, |_| {})).await;
    served.end().await;
}

#[tokio::test]
async fn what_is_from_the_future_or_leads_elsewhere_is_refused() {
    let (bundle, served) = bundle_and_server().await;
    let files = objects(&bundle);
    let newer = forged(&files, |manifest| manifest["version"] = json!(2));
    assert_eq!(refused(&served, &newer, "newer").await, "import_too_new");
    let another = "01890a5d-ac96-774b-bcce-b302099a8057";
    for (field, value) in [("session", json!(another)), ("session", json!(1)), ("more", json!(1))] {
        let wrong = forged(&files, |manifest| manifest[field] = value.clone());
        assert_eq!(refused(&served, &wrong, field).await, "import_damaged");
    }
    for name in
        ["../out", "/tmp/out", "tenants/default/../../out", "tenants/other/a", "manifest.json"]
    {
        let mut with = files.clone();
        with.push((name.to_owned(), b"x".to_vec()));
        let mut made = tar::Archive::new(bundle.as_slice());
        let time = made.entries().unwrap().next().unwrap().unwrap().header().mtime().unwrap();
        let wrong = forged(&files, |manifest| {
            let object =
                json!({ "name": name, "bytes": 1, "blake3": blake3::hash(b"x").to_hex().as_str() });
            manifest["objects"].as_array_mut().unwrap().push(object);
        });
        let mut wrong = wrong[..wrong.len() - 1024].to_vec();
        let mut more = Builder::new(Vec::new());
        add(&mut more, name, time, EntryType::Regular, b"x");
        wrong.extend(more.into_inner().unwrap());
        assert_eq!(refused(&served, &wrong, name).await, "import_damaged");
    }
    for (kind, name) in [
        (EntryType::Symlink, "tenants/default/link"),
        (EntryType::Link, "tenants/default/link"),
        (EntryType::Directory, "tenants/default/directory"),
        (EntryType::Fifo, "tenants/default/pipe"),
    ] {
        let mut wrong = bundle[..bundle.len() - 1024].to_vec();
        let mut more = Builder::new(Vec::new());
        add(&mut more, name, 0, kind, b"");
        wrong.extend(more.into_inner().unwrap());
        assert_eq!(refused(&served, &wrong, name).await, "import_damaged");
    }
    assert!(!served.dir.join("data/out").exists() && !served.dir.join("out").exists());
    let huge = forged(&files, |manifest| manifest["objects"][0]["bytes"] = json!(1_u64 << 62));
    assert_eq!(send(&served.client, &huge, &[]).await.refused(413), "too_large");
    assert_eq!(left(&served.dir), Vec::<PathBuf>::new());
    // More than there can be, before a byte of it was sent.
    let head = format!("content-length: {}", 1_u64 << 60);
    let mut request = served.client.request("POST", "/api/sessions/import", &[&head], None);
    request.extend_from_slice(&bundle[..512]);
    let answer = super::super::client::exchange(served.client.address, &request).await;
    assert_eq!(answer.refused(413), "too_large");
    served.end().await;
}

#[tokio::test]
async fn a_disk_without_room_takes_no_bundle() {
    let first = Served::start().await;
    let session = stopped(&first.client, &[WRITE]).await;
    let bundle = export(&first.client, &session).await;
    first.end().await;
    let much = ("ASH_MIN_FREE_MB", u32::MAX.to_string());
    let short = Served::with(With { variables: vec![much], ..With::default() }).await;
    let answer = send(&short.client, &bundle, &[]).await;
    assert_eq!(answer.refused(503), "disk_pressure");
    assert_eq!(left(&short.dir), Vec::<PathBuf>::new());
    short.end().await;
}
