//! The documents about the API are what the code says, and say it in whole.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use ash_server::http::{codes, document};
use ash_server::reference::{markdown, page};
use serde_json::Value;

use crate::tested::Tested;

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file that is made from code: written anew for `make docs`, else compared.
fn is_up_to_date(path: &str, made: &str) {
    let place = root().join(path);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&place, made).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&place).unwrap_or_default();
    let differs = kept.lines().zip(made.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| kept.lines().count().min(made.lines().count())) + 1;
    assert!(kept == made, "{path} is not up to date from line {line}: run `make docs`");
}

#[test]
fn the_openapi_document_in_the_repository_is_what_the_code_says() {
    is_up_to_date("docs/openapi.json", &document());
}

#[test]
fn the_api_reference_is_what_the_code_says() {
    is_up_to_date("docs/api-reference.md", &markdown(&document()));
}

#[test]
fn the_cli_reference_is_what_the_code_says() {
    is_up_to_date("docs/cli-reference.md", &ash_server::cli::reference());
}

/// Every operation: its method, its path and the rest.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            all.push((method.clone(), path.clone(), operation.clone()));
        }
    }
    all
}

fn parsed() -> Value {
    serde_json::from_str(&document()).unwrap()
}

#[test]
fn every_operation_says_what_it_does_takes_and_answers() {
    let document = parsed();
    assert_eq!(document["openapi"].as_str().unwrap().split('.').take(2).last(), Some("1"));
    assert_eq!(document["security"], serde_json::json!([{ "key": [] }]));
    assert_eq!(document["components"]["securitySchemes"]["key"]["scheme"], "bearer");
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations(&document) {
        let place = format!("{method} {path}");
        let name = operation["operationId"].as_str().unwrap().to_owned();
        assert!(names.insert(name), "{place} has the id of another");
        assert!(!path.contains('*'), "{place}");
        assert!(!operation["summary"].as_str().unwrap().ends_with('.'), "{place}");
        let public = path.starts_with("/health") || path.starts_with("/docs");
        assert_eq!(operation.get("security").is_some(), public, "{place}");
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in &parameters {
            assert_ne!(parameter["description"].as_str().unwrap_or_default(), "", "{place}");
            // There is no way to write nothing but to leave it out.
            assert!(!parameter["schema"].to_string().contains("null"), "{place}: {parameter}");
        }
        let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
        assert_eq!(in_path, path.matches('{').count(), "{place}");
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert_ne!(response["description"].as_str().unwrap(), "", "{place} {status}");
            let is_problem = response["content"]["application/json"]["schema"]["$ref"]
                == "#/components/schemas/Problem";
            assert_eq!(is_problem, !status.starts_with('2'), "{place} {status}");
            let waits = matches!(status.as_str(), "429" | "503");
            assert_eq!(response["headers"].get("Retry-After").is_some(), waits, "{place} {status}");
        }
    }
    for name in document.to_string().split("#/components/schemas/").skip(1) {
        let name = name.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "there is no {name}");
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        assert_ne!(schema["description"].as_str().unwrap_or_default(), "", "{name}");
        for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
            let one = schema["oneOf"]
                .as_array()
                .and_then(|all| all.iter().find(|s| s["$ref"].is_string()));
            let told = schema["description"].is_string() || one.is_some();
            assert!(told, "{name}.{field}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_of_the_router_is_in_the_document_and_every_one_of_the_document_in_the_router()
{
    let tested = Tested::start().await;
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (method, path, _) in operations(&parsed()) {
        documented.entry(path).or_default().insert(method);
    }
    for (path, methods) in &documented {
        // An id that nothing has; where a name is wanted, it is one too.
        let parts = path.split('/').map(|part| match part {
            "{version}" => "1",
            part if part.starts_with('{') => "01994c6f-0000-7000-8000-000000000000",
            part => part,
        });
        let place = parts.collect::<Vec<_>>().join("/");
        for method in METHODS {
            let (status, headers, body) = tested.ask(method, &place).await;
            let code = serde_json::from_str::<Value>(&body).unwrap_or_default()["code"].clone();
            if methods.contains(method) {
                assert!(status != 405 && code != "no_such_route", "{method} {path}: {body}");
                continue;
            }
            assert_eq!((status, code), (405, "method_not_allowed".into()), "{method} {path}");
            let allowed = headers["allow"].to_str().unwrap().to_lowercase();
            let allowed: BTreeSet<String> =
                allowed.split(',').map(|m| m.trim().to_owned()).collect();
            let mut wanted = methods.clone();
            if methods.contains("get") {
                wanted.insert("head".to_owned());
            }
            assert_eq!(allowed, wanted, "{path}");
        }
    }
    tested.end().await;
}

/// A route gets into the router through the document, which the test above holds against it. The one
/// that does not is another spelling of one that does.
#[test]
fn no_route_gets_past_the_document() {
    let mut found = Vec::new();
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http")).unwrap() {
        let path = file.unwrap().path();
        let source = std::fs::read_to_string(&path).unwrap_or_default();
        for way in [".route(", ".merge(", ".nest(", ".route_service(", ".nest_service("] {
            found.extend(
                source.lines().filter(|line| line.contains(way)).map(|line| line.trim().to_owned()),
            );
        }
    }
    found.sort();
    // What is not offered has no place in the document: it would be a promise.
    let not_offered =
        ".fold(router, |router, path| router.route(path, any(internal::not_offered)));";
    assert_eq!(found, [not_offered, r#".route("/docs/", get(openapi::page))"#]);
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let codes: BTreeSet<String> = codes().into_iter().map(str::to_owned).collect();
    let dir = root().join("docs/errors");
    let pages = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let pages: BTreeSet<String> = pages
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| name != "README")
        .collect();
    assert_eq!(codes, pages);
    let list = std::fs::read_to_string(dir.join("README.md")).unwrap();
    for code in codes {
        let page = std::fs::read_to_string(dir.join(format!("{code}.md"))).unwrap();
        let mut lines = page.lines();
        assert_eq!(lines.next(), Some(format!("# {code}").as_str()));
        let sentence = lines.nth(1).unwrap_or_default();
        let row = format!("| [{code}]({code}.md) | {sentence} |");
        assert!(list.contains(&row), "docs/errors/README.md has no row {row}");
        assert!(page.contains("**What it means.**") && page.contains("**What to do.**"), "{code}");
    }
}

#[test]
fn the_page_at_docs_takes_nothing_from_elsewhere_and_its_links_lead_somewhere() {
    let page = page(&document());
    for outside in ["http://", "https://", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let ids: Vec<&str> =
        page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let anchors: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(anchors.len(), ids.len(), "two places have the same name");
    let links: Vec<&str> =
        page.split("href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(links.len() > 50, "only {} links", links.len());
    for link in links {
        assert!(anchors.contains(link), "#{link} leads nowhere");
    }
}
