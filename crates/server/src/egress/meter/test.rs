use super::*;
use proptest::prelude::*;

fn headers(kind: &'static str) -> HeaderMap {
    [(header::CONTENT_TYPE, kind.parse().unwrap())].into_iter().collect()
}

const STREAM: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"claude-opus-4-1\",\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":300,\"cache_creation_input_tokens\":20,\"output_tokens\":1}}}\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"data: {\\\"type\\\":\\\"message_delta\\\",\\\"usage\\\":{\\\"output_tokens\\\":9999}}\"}}\n\nevent: message_delta\r\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":77}}\r\n\r\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

fn usage(input: u64, output: u64, creation: u64, read: u64) -> Usage {
    Usage {
        input_tokens: input,
        output_tokens: output,
        cache_creation_tokens: creation,
        cache_read_tokens: read,
        ..Usage::default()
    }
}

#[test]
fn a_document_says_what_it_consumed_when_it_is_whole() {
    let mut meter = Meter::new(&headers("application/json; charset=utf-8"), 400);
    let text = r#"{"type":"message","model":"m","content":[],"usage":{"input_tokens":5,"output_tokens":6}}"#;
    for piece in text.as_bytes().chunks(7) {
        meter.see(&Bytes::copy_from_slice(piece));
    }
    assert_eq!(
        meter.usage(true),
        (None, usage(100, text.len().div_ceil(4) as u64, 0, 0)),
        "it was cut"
    );
    meter.finish();
    assert_eq!(meter.usage(true), (Some("m"), usage(5, 6, 0, 0)));
}

#[test]
fn what_is_cut_is_estimated_and_never_free() {
    // Nothing came.
    let meter = Meter::new(&headers("text/event-stream"), 4_001);
    assert_eq!(meter.usage(true), (None, usage(1_001, 0, 0, 0)));
    assert_eq!(meter.usage(false), (None, Usage::default()), "as long as it goes on, it may come");
    // The end did not come: many words, and each is a token at least.
    let mut meter = Meter::new(&headers("text/event-stream"), 4_001);
    let start = STREAM.split("event: ping").next().unwrap();
    meter.see(&Bytes::from(start));
    for _ in 0..50 {
        meter.see(&Bytes::from_static(b"event: content_block_delta\ndata: {}\n\n"));
    }
    assert_eq!(meter.usage(true), (Some("claude-opus-4-1"), usage(10, 50, 20, 300)));
    let long = format!("event: content_block_delta\ndata: {}\n\n", "x".repeat(40_000));
    meter.see(&Bytes::from(long));
    assert!(meter.usage(true).1.output_tokens > 9_900);
    // What cannot be read.
    let mut meter = Meter::new(&headers("text/html"), 0);
    meter.see(&Bytes::from_static(&[b'x'; 400]));
    meter.finish();
    assert_eq!(meter.usage(true), (None, usage(0, 100, 0, 0)));
    let mut packed = headers("text/event-stream");
    packed.insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
    let mut meter = Meter::new(&packed, 0);
    meter.see(&Bytes::from(STREAM));
    assert_eq!(meter.usage(true).0, None);
}

#[test]
fn a_line_without_an_end_is_not_kept() {
    let mut meter = Meter::new(&headers("text/event-stream"), 0);
    for _ in 0..100 {
        meter.see(&Bytes::from(vec![b'x'; 10_000]));
    }
    let Form::Events(events) = &meter.form else { panic!("{meter:?}") };
    assert!(events.line.len() <= MAX_LINE);
    meter.see(&Bytes::from_static(b"\n"));
    meter.see(&Bytes::from(STREAM));
    assert_eq!(meter.usage(true), (Some("claude-opus-4-1"), usage(10, 77, 20, 300)));
}

proptest! {
    /// However an answer is cut into pieces, the same is read from it.
    #[test]
    fn pieces_do_not_matter(cuts in proptest::collection::vec(0..STREAM.len(), 0..20)) {
        let mut cuts = cuts;
        cuts.extend([0, STREAM.len()]);
        cuts.sort_unstable();
        let mut meter = Meter::new(&headers("text/event-stream"), 1);
        for ends in cuts.windows(2) {
            meter.see(&Bytes::copy_from_slice(&STREAM.as_bytes()[ends[0]..ends[1]]));
        }
        meter.finish();
        prop_assert_eq!(meter.usage(true), (Some("claude-opus-4-1"), usage(10, 77, 20, 300)));
    }

    #[test]
    fn nothing_that_is_answered_upsets_it(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20)) {
        for kind in ["text/event-stream", "application/json", "x/y"] {
            let mut meter = Meter::new(&headers(kind), 1);
            for piece in &pieces {
                meter.see(&Bytes::from(piece.clone()));
            }
            meter.finish();
            meter.usage(true);
        }
    }
}
