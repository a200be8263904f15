//! The API reference, rendered from the OpenAPI document: as a page at `/docs`, and as a file in
//! `docs/`.

use std::fmt::Write as _;

use serde_json::Value;

/// A route, as the document has it.
struct Operation<'a> {
    method: String,
    path: &'a str,
    what: &'a Value,
}

/// The reference as Markdown.
pub fn markdown(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap_or_default();
    let mut out = String::from(
        "# API reference\n\n\
         Made from the code by `make docs`; the server shows the same at `/docs`, and the OpenAPI document\n\
         at `/docs/json`. Every request but those to `/health` and `/docs` carries\n\
         `Authorization: Bearer <key>`. Errors have the shape of [Problem](#problem); their codes are\n\
         explained in [errors](errors/README.md), events in [events](events.md).\n",
    );
    for tag in list(&document["tags"]) {
        let (name, about) = (text(&tag["name"]), text(&tag["description"]));
        let _ = writeln!(out, "\n## Routes: {name}\n\n{about}.");
        for operation in operations(&document).iter().filter(|op| has_tag(op, name)) {
            route(&mut out, operation);
        }
    }
    out.push_str("\n## Shapes\n");
    for (name, schema) in entries(&document["components"]["schemas"]) {
        let _ = writeln!(out, "\n### {name}\n\n{}", text(&schema["description"]));
        shape(&mut out, schema);
    }
    out
}

/// The reference as a page: the same text, with a little style and nothing from elsewhere.
pub fn page(document: &str) -> String {
    let mut body = String::new();
    let markdown = markdown(document);
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with('|') {
            body.push_str("<table>");
            let mut rows = vec![line];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(row);
            }
            for (index, row) in rows.iter().enumerate().filter(|(index, _)| *index != 1) {
                let cell = if index == 0 { "th" } else { "td" };
                body.push_str("<tr>");
                for text in row.trim_matches('|').split(" | ") {
                    let _ = write!(body, "<{cell}>{}</{cell}>", inline(text.trim()));
                }
                body.push_str("</tr>\n");
            }
            body.push_str("</table>\n");
        } else if let Some(title) = line.strip_prefix("### ") {
            let _ = writeln!(body, "<h3 id=\"{}\">{}</h3>", anchor(title), inline(title));
        } else if let Some(title) = line.strip_prefix("## ") {
            let _ = writeln!(body, "<h2 id=\"{}\">{}</h2>", anchor(title), inline(title));
        } else if let Some(title) = line.strip_prefix("# ") {
            let _ = writeln!(body, "<h1>{}</h1>", inline(title));
            contents(&mut body, &markdown);
        } else if line.is_empty() {
            body.push_str("<p>");
        } else {
            let _ = writeln!(body, "{}", inline(line));
        }
    }
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>Ash: API reference</title><style>{STYLE}</style>\
         <main>{body}</main></html>"
    )
}

/// What is on the page: its parts, and the routes or shapes in each.
fn contents(body: &mut String, markdown: &str) {
    body.push_str("<nav>");
    let mut first = true;
    for line in markdown.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let end = if std::mem::take(&mut first) { "" } else { "</details>\n" };
            let _ = write!(body, "{end}<details><summary>{}</summary>", inline(title));
        } else if let Some(title) = line.strip_prefix("### ") {
            let _ = writeln!(body, "<a href=\"#{}\">{}</a>", anchor(title), inline(title));
        }
    }
    body.push_str("</details></nav>\n");
}

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:0;color:#1a1a1a;background:#fff}\
main{max-width:60rem;margin:0 auto;padding:1rem 1.5rem 4rem}code{font:.9em ui-monospace,monospace;\
background:#f2f2f0;padding:.1em .3em;border-radius:3px}table{border-collapse:collapse;width:100%;\
margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;\
border-bottom:1px solid #e5e5e0}nav a{display:block;padding:.1rem 0 .1rem 1rem}\
summary{cursor:pointer}main{overflow-wrap:anywhere}h2{margin-top:3rem;border-bottom:2px solid #1a1a1a}h3{margin-top:2rem}\
@media(prefers-color-scheme:dark){body{background:#16181a;color:#e6e6e3}code{background:#26292c}\
td,th{border-color:#33373b}h2{border-color:#e6e6e3}a{color:#8ab4f8}}";

fn route(out: &mut String, operation: &Operation<'_>) {
    let Operation { method, path, what } = operation;
    let _ = write!(out, "\n### `{method} {path}`\n\n{}.", text(&what["summary"]));
    match text(&what["description"]) {
        "" => out.push('\n'),
        more => {
            let _ = writeln!(out, " {}", more.replace('\n', " "));
        }
    }
    let parameters: Vec<&Value> = list(&what["parameters"]).collect();
    if !parameters.is_empty() {
        out.push_str("\n| parameter | in | type | meaning |\n|---|---|---|---|\n");
        for parameter in parameters {
            let _ = writeln!(
                out,
                "| `{}`{} | {} | {} | {} |",
                text(&parameter["name"]),
                if parameter["required"] == true { "" } else { "?" },
                text(&parameter["in"]),
                kind(&parameter["schema"]),
                text(&parameter["description"]).replace('\n', " "),
            );
        }
    }
    if let Some((_, body)) = entries(&what["requestBody"]["content"]).next() {
        let _ = writeln!(out, "\nBody: {}", kind(&body["schema"]));
    }
    out.push_str("\n| status | body | meaning |\n|---|---|---|\n");
    for (status, response) in entries(&what["responses"]) {
        let content = entries(&response["content"]).next();
        let body = content.map_or_else(String::new, |(media, body)| match media.as_str() {
            "application/json" => kind(&body["schema"]),
            media => format!("`{media}`"),
        });
        let _ = writeln!(out, "| {status} | {body} | {} |", text(&response["description"]));
    }
}

fn shape(out: &mut String, schema: &Value) {
    let required: Vec<&str> = list(&schema["required"]).map(text).collect();
    let fields: Vec<_> = entries(&schema["properties"]).collect();
    if fields.is_empty() {
        let _ = writeln!(out, "\n{}", kind_inside(schema));
        return;
    }
    out.push_str("\n| field | type | meaning |\n|---|---|---|\n");
    for (name, field) in fields {
        let optional = if required.contains(&name.as_str()) { "" } else { "?" };
        let about = text(&field["description"]).replace('\n', " ");
        let _ = writeln!(out, "| `{name}`{optional} | {} | {about} |", kind(field));
    }
}

/// Formats that say something to a person.
const SAID: [&str; 2] = ["uuid", "date-time"];

/// What a schema allows, in a few words; shapes with a name by their name.
fn kind(schema: &Value) -> String {
    match schema["$ref"].as_str().and_then(|of| of.rsplit('/').next()) {
        Some(name) => format!("[{name}](#{})", anchor(name)),
        None => kind_inside(schema),
    }
}

fn kind_inside(schema: &Value) -> String {
    for several in ["oneOf", "anyOf", "allOf"] {
        if schema[several].is_array() {
            return list(&schema[several]).map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    if schema["enum"].is_array() {
        let values =
            list(&schema["enum"]).map(|value| format!("`{}`", value.to_string().trim_matches('"')));
        return values.collect::<Vec<_>>().join(", ");
    }
    if schema["const"].is_string() {
        return format!("`{}`", text(&schema["const"]));
    }
    let fields: Vec<String> = entries(&schema["properties"])
        .map(|(name, field)| format!("`{name}`: {}", kind(field)))
        .collect();
    if !fields.is_empty() {
        return format!("{{{}}}", fields.join(", "));
    }
    let mut words = match &schema["type"] {
        Value::String(one) => one.clone(),
        Value::Array(several) => several.iter().map(text).collect::<Vec<_>>().join(" or "),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => "anything".to_owned(),
    };
    if schema["items"].is_object() {
        let _ = write!(words, " of {}", kind(&schema["items"]));
    }
    if schema["additionalProperties"].is_object() {
        let _ = write!(words, " of {}", kind(&schema["additionalProperties"]));
    }
    if let Some(format) = schema["format"].as_str().filter(|format| SAID.contains(format)) {
        let _ = write!(words, " ({format})");
    }
    let bounds = [
        ("minimum", "from"),
        ("maximum", "to"),
        ("minLength", "at least"),
        ("maxLength", "at most"),
        ("minItems", "at least"),
        ("maxItems", "at most"),
    ];
    for (bound, word) in bounds {
        if let Some(limit) = schema.get(bound).filter(|limit| limit.is_number()) {
            let _ = write!(words, ", {word} {limit}");
        }
    }
    words
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let Value::Object(paths) = &document["paths"] else { return Vec::new() };
    let mut all = Vec::new();
    for (path, methods) in paths {
        for (method, what) in entries(methods) {
            all.push(Operation { method: method.to_uppercase(), path, what });
        }
    }
    all
}

fn has_tag(operation: &Operation<'_>, tag: &str) -> bool {
    list(&operation.what["tags"]).any(|has| has == tag)
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn anchor(title: &str) -> String {
    title
        .to_lowercase()
        .chars()
        .filter_map(|letter| match letter {
            letter if letter.is_alphanumeric() => Some(letter),
            ' ' | '-' => Some('-'),
            _ => None,
        })
        .collect()
}

/// Code and links of a line, as HTML.
fn inline(line: &str) -> String {
    let escaped =
        line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    let mut out = String::new();
    for (index, part) in escaped.split('`').enumerate() {
        if index % 2 == 1 {
            let _ = write!(out, "<code>{part}</code>");
        } else {
            out.push_str(&links(part));
        }
    }
    out
}

fn links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        let Some((label, after)) = link.split_once("](") else {
            out.push('[');
            rest = link;
            continue;
        };
        let Some((target, after)) = after.split_once(')') else {
            out.push('[');
            rest = link;
            continue;
        };
        // Only shapes are on this page; the rest is in the repository.
        match target.strip_prefix('#') {
            Some(id) => {
                let _ = write!(out, "<a href=\"#{id}\">{label}</a>");
            }
            None => out.push_str(label),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}
