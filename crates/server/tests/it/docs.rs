//! The manual tells the truth: every example in it is played.

use std::path::Path;

use ash_server::model::{Model, Options, Script};

use crate::talk::{Talk, model};

/// The fenced blocks of the manual, by language.
fn blocks() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scripted-model.md");
    let page = std::fs::read_to_string(page).unwrap();
    let fenced = page.split("```").skip(1).step_by(2);
    fenced
        .map(|block| {
            let (language, text) = block.split_once('\n').unwrap();
            (language.to_owned(), text.trim_end().to_owned())
        })
        .collect()
}

#[tokio::test]
async fn every_example_of_the_manual_gives_the_answers_it_says() {
    let mut script = None;
    let mut prompt = None;
    let mut played = 0;
    for (language, text) in blocks() {
        match language.as_str() {
            "script" => script = Some(Script::parse(&text).unwrap()),
            "prompt" => assert!(prompt.replace(text).is_none(), "a prompt has no answers"),
            "answers" => {
                let model = model(Options { script: script.take(), ..Options::default() }).await;
                let expected: Vec<&str> = text.lines().collect();
                play(&model, &prompt.take().unwrap(), &expected).await;
                model.shutdown().await;
                played += 1;
            }
            _ => {}
        }
    }
    assert!(script.is_none() && prompt.is_none(), "an example has no answers");
    assert!(played >= 6, "only {played} examples were found");
}

/// Asks as often as answers are expected: again after a fault, with results after a call.
async fn play(model: &Model, prompt: &str, expected: &[&str]) {
    let mut talk = Talk::new(model, prompt);
    for (index, kind) in expected.iter().enumerate() {
        let response = if *kind == "hang" {
            tokio::select! {
                response = talk.ask(true) => panic!("{prompt} does not hang: {response:?}"),
                () = model.received(index as u64 + 1) => None,
            }
        } else {
            talk.ask(true).await
        };
        assert_eq!(model.requests().last().unwrap().answer, *kind, "{prompt}");
        if let Some(response) = response.filter(|of| of.status == 200 && of.is_complete) {
            talk.take(&response);
        }
    }
}
