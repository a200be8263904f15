//! The wire to the model: what odd streams are understood as.

use ash_bridge::builtin::model::{Answer, Client, Failure, Patience};
use ash_bridge::reports::Reports;
use serde_json::json;

use crate::fake::{FakeModel, Reply, events, local, stream};

async fn ask(bytes: Vec<u8>) -> (Answer, Result<(), Failure>) {
    let model = FakeModel::new(vec![Reply::Say(bytes)]).await;
    let client = Client::new(model.endpoint, &Patience::default());
    let mut answer = Answer::default();
    let (reports, mut told) = Reports::channel();
    let asking = async {
        let result = client.ask("{}".into(), &mut answer, Some(&reports)).await;
        drop(reports);
        result
    };
    let listening = async { while told.recv().await.is_some() {} };
    let (result, ()) = tokio::join!(asking, listening);
    (answer, result)
}

#[test]
fn other_line_ends_comments_and_unknown_things_are_no_trouble() {
    local(async {
        let odd = ": hi\r\n\
            data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":3}}}\r\n\r\n\
            event: content_block_start\r\n\
            data: {\"index\":0,\r\ndata: \"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\r\n\r\n\
            data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"novel\",\"x\":{\"y\":1}}}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"novel_delta\"}}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":9,\"delta\":{\"type\":\"text_delta\",\"text\":\"?\"}}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"b\"}}\n\n\
            data: {\"type\":\"novel_event\"}\n\n\
            data: {\"type\":\"message_stop\"}";
        let (answer, result) = ask([stream(&[]), odd.into()].concat()).await;
        assert_eq!(result, Ok(()));
        assert_eq!(answer.text(), "ab");
        assert_eq!(answer.tokens.input, 3);
    });
}

#[test]
fn a_stream_that_is_cut_at_any_byte_is_a_cut_and_nothing_else() {
    local(async {
        let call = json!({ "type": "tool_use", "id": "t", "name": "n", "input": { "a": 1 } });
        let whole = stream(&events(&[json!({ "type": "text", "text": "hé" }), call], "tool_use"));
        let head = stream(&[]).len();
        let stop = b"data: {\"type\":\"message_stop\"}".len() + 2;
        for end in (0..whole.len() - stop).step_by(7).chain(head..head + 40) {
            let (_, result) = ask(whole[..end].to_vec()).await;
            assert!(matches!(result, Err(Failure::Cut(_))), "{end}: {result:?}");
        }
        let (answer, result) = ask(whole).await;
        assert_eq!(result, Ok(()));
        assert_eq!(answer.calls()[0].name, "n");
    });
}

#[test]
fn harmless_oddities_are_no_reason_to_ask_again() {
    local(async {
        let odd = "\u{feff}event: ping\ndata:\n\n\
            event: keepalive\ndata: still here\n\n\
            data: {\"type\":\"novel_event\",\"index\":\"x\",\"usage\":7}\n\n\
            data: {\"type\":\"message_start\",\"message\":{\"id\":null,\"model\":null,\"content\":null,\"usage\":null}}\r\r\
            data: {\"type\":\"content_block_start\",\"index\":null,\"content_block\":{\"type\":\"text\",\"text\":null}}\r\n\r\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"},\"usage\":null}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":null}}\n\n\
            data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":null}\n\n\
            data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":null,\"type\":null},\"usage\":{\"output_tokens\":null}}\n\n\
            event: message_stop\ndata:\n\n";
        let (answer, result) = ask([stream(&[]), odd.into()].concat()).await;
        assert_eq!(result, Ok(()));
        assert_eq!(answer.text(), "a");
    });
}
